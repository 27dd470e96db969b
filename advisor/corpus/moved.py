"""Hardware whose every figure is moved by up to 30 %, so that a model sees more than what ships."""

import math
from dataclasses import replace
from random import Random

from ...compiler.ir import Gpu, System

SPREAD = 0.3


def moved_system(random: Random, system: System) -> System:
    """Return ``system`` with every figure moved, independently."""
    fabric, link, switch, speed = system.fabric, system.fabric.link, system.fabric.switch, _factor(random)
    link = replace(
        link,
        achieved_bytes_per_s=_scaled(link.achieved_bytes_per_s, speed),
        latency_ticks=_moved(random, link.latency_ticks),
    )
    if switch is not None:
        latency = _moved(random, switch.latency_ticks)
        switch = replace(switch, bytes_per_s=_scaled(switch.bytes_per_s, speed), latency_ticks=latency)
    return replace(system, gpu=_moved_gpu(random, system.gpu), fabric=replace(fabric, link=link, switch=switch))


def _moved_gpu(random: Random, gpu: Gpu) -> Gpu:
    """Return ``gpu`` with every figure moved, independently; notes on where they came from are dropped."""
    hbm, model, memory = gpu.hbm, gpu.gemm, _factor(random)
    return replace(
        gpu,
        sms=_moved(random, gpu.sms),
        peak_flops=tuple((dtype, _moved(random, peak)) for dtype, peak in gpu.peak_flops),
        l2=replace(
            gpu.l2,
            bytes_per_s=_moved(random, gpu.l2.bytes_per_s),
            latency_ticks=_moved(random, gpu.l2.latency_ticks),
        ),
        hbm=replace(
            hbm,
            peak_bytes_per_s=_scaled(hbm.peak_bytes_per_s, memory),
            achieved_bytes_per_s=_scaled(hbm.achieved_bytes_per_s, memory),
            latency_ticks=_moved(random, hbm.latency_ticks),
        ),
        gemm=replace(
            model,
            start_ticks=_moved(random, model.start_ticks),
            tile_ticks=_moved(random, model.tile_ticks),
            k_step_ticks=_moved(random, model.k_step_ticks),
        ),
        dma=replace(
            gpu.dma,
            engines=random.choice((2, 4, 8, 14, 16)),
            setup_ticks=_moved(random, gpu.dma.setup_ticks),
            bytes_per_s=_moved(random, gpu.dma.bytes_per_s),
        ),
        sm_copy=replace(
            gpu.sm_copy,
            bytes_per_s=_moved(random, gpu.sm_copy.bytes_per_s),
            setup_ticks=_moved(random, gpu.sm_copy.setup_ticks),
        ),
        launch=replace(
            gpu.launch,
            kernel_ticks=_moved(random, gpu.launch.kernel_ticks),
            event_ticks=_moved(random, gpu.launch.event_ticks),
        ),
        provenance=(),
    )


def _factor(random: Random) -> float:
    """Between 1 - SPREAD and 1 + SPREAD, even in the logarithm."""
    return math.exp(random.uniform(math.log(1 - SPREAD), math.log(1 + SPREAD)))


def _moved(random: Random, value: int) -> int:
    """Return ``value`` times a random factor."""
    return _scaled(value, _factor(random))


def _scaled(value: int, factor: float) -> int:
    """Return ``value`` times ``factor``, at least 1."""
    return max(1, round(value * factor))
