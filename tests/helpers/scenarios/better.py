"""The same scenario on hardware of which one thing is better by a factor."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from magus.compiler.ir import Fabric, OpCase
from tests.helpers.oracle.lowering import on_gpu


def _fabric(scenario: OpCase, change: Callable[[Fabric], Fabric]) -> OpCase:
    return replace(scenario, system=replace(scenario.system, fabric=change(scenario.system.fabric)))


def more_cache(scenario: OpCase, factor: float) -> OpCase:
    """A larger last cache in front of memory, or L2 where there is none."""
    gpu, mall = scenario.gpu, scenario.gpu.mall
    if mall is not None:
        return on_gpu(scenario, replace(gpu, mall=replace(mall, size_bytes=int(mall.size_bytes * factor))))
    return on_gpu(scenario, replace(gpu, l2=replace(gpu.l2, size_bytes=int(gpu.l2.size_bytes * factor))))


def faster_links(scenario: OpCase, factor: float) -> OpCase:
    """Links and ports of switches with a higher rate."""

    def change(fabric: Fabric) -> Fabric:
        link, switch = fabric.link, fabric.switch
        peak, achieved = int(link.peak_bytes_per_s * factor), int(link.achieved_bytes_per_s * factor)
        link = replace(link, peak_bytes_per_s=peak, achieved_bytes_per_s=achieved)
        faster = None if switch is None else replace(switch, bytes_per_s=int(switch.bytes_per_s * factor))
        return replace(fabric, link=link, switch=faster)

    return _fabric(scenario, change)


def nearer_peers(scenario: OpCase, factor: float) -> OpCase:
    """Links and switches with less latency."""

    def change(fabric: Fabric) -> Fabric:
        link, switch = fabric.link, fabric.switch
        nearer = None if switch is None else replace(switch, latency_ticks=int(switch.latency_ticks / factor))
        return replace(fabric, link=replace(link, latency_ticks=int(link.latency_ticks / factor)), switch=nearer)

    return _fabric(scenario, change)


def faster_memory(scenario: OpCase, factor: float) -> OpCase:
    """Memory with a higher rate."""
    hbm = scenario.gpu.hbm
    peak, achieved = int(hbm.peak_bytes_per_s * factor), int(hbm.achieved_bytes_per_s * factor)
    return on_gpu(
        scenario, replace(scenario.gpu, hbm=replace(hbm, peak_bytes_per_s=peak, achieved_bytes_per_s=achieved))
    )


def nearer_memory(scenario: OpCase, factor: float) -> OpCase:
    """Memory and L2 with less latency."""
    gpu = scenario.gpu
    l2 = replace(gpu.l2, latency_ticks=int(gpu.l2.latency_ticks / factor))
    return on_gpu(
        scenario, replace(gpu, l2=l2, hbm=replace(gpu.hbm, latency_ticks=int(gpu.hbm.latency_ticks / factor)))
    )


def more_sms(scenario: OpCase, factor: float) -> OpCase:
    """More SMs of the same kind: the peak grows with them."""
    gpu, sms = scenario.gpu, max(scenario.gpu.sms + 1, int(scenario.gpu.sms * factor))
    peaks = tuple((dtype, peak * sms // gpu.sms) for dtype, peak in gpu.peak_flops)
    return on_gpu(scenario, replace(gpu, sms=sms, peak_flops=peaks))


def faster_engines(scenario: OpCase, factor: float) -> OpCase:
    """SMs and engines that copy faster."""
    gpu = scenario.gpu
    sm_copy = replace(gpu.sm_copy, bytes_per_s=int(gpu.sm_copy.bytes_per_s * factor))
    return on_gpu(
        scenario, replace(gpu, sm_copy=sm_copy, dma=replace(gpu.dma, bytes_per_s=int(gpu.dma.bytes_per_s * factor)))
    )


def quicker_starts(scenario: OpCase, factor: float) -> OpCase:
    """Kernels and commands that begin sooner."""
    gpu, launch = scenario.gpu, scenario.gpu.launch
    sooner = replace(
        launch, kernel_ticks=int(launch.kernel_ticks / factor), event_ticks=int(launch.event_ticks / factor)
    )
    dma = replace(gpu.dma, setup_ticks=int(gpu.dma.setup_ticks / factor))
    return on_gpu(scenario, replace(gpu, launch=sooner, dma=dma))


BETTER: Mapping[str, Callable[[OpCase, float], OpCase]] = {
    "cache": more_cache,
    "links": faster_links,
    "memory": faster_memory,
    "peers": nearer_peers,
    "latency of memory": nearer_memory,
    "sms": more_sms,
    "engines": faster_engines,
    "starts": quicker_starts,
}
