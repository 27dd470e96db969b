"""The hardware numbers that decide an answer, and a scenario with one of them changed.

Left out are numbers on which no time depends (capacities, peak rates of links), limits (bytes in flight), counts (SMs,
engines, channels), and those constants of the GEMM form that mean nothing alone: they were fitted together.

A number changes alone, as one that was measured wrongly does: a faster link leaves the times of the library, which were
measured for themselves, as they are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import Any

from ...compiler.ir import Gpu, Link, Scenario, Switch, System
from ...compiler.planning.knobs.library import library_on

# 10 % lower and higher: about what measurements of one GPU differ by, and profiles are off by.
TEN_PERCENT = (0.9, 1.1)
# Costs of commands are doubled too: driver, host and other processes change them by as much.
DOUBLED = 2.0

Device = Gpu | Link | Switch


@dataclass(frozen=True, slots=True)
class HardwareNumber:
    """A number of a device of a system, or several that one cause changes together.

    ``name`` is its path in the language, without the name of the GPU. ``paths`` are all that change, with that name,
    and ``attributes`` lead from ``device`` to their values. ``factors`` are what they are multiplied by, in turn.
    """

    name: str
    device: Device
    paths: tuple[str, ...]
    attributes: tuple[str, ...]
    factors: tuple[float, ...] = TEN_PERCENT


def _library(word: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the library's numbers: of the protocols all that end in ``word``, and its ``own``."""
    protocols = ("ll", "ll128", "simple")
    blocks = ("collectives", "collectives.all_to_all")
    attribute = {"start": "start_ticks", "step": "step_ticks", "bandwidth": "bytes_per_s"}[word]
    of_protocols = {f"{protocol}_{word}": f"{protocol}.{attribute}" for protocol in protocols}
    return {f"{block}.{path}": f"{block}.{each}" for block in blocks for path, each in {**own, **of_protocols}.items()}


_LAUNCH = {"launch.kernel": "launch.kernel_ticks", "gemm.start": "gemm.start_ticks"}
_EVENT = {"launch.event": "launch.event_ticks"}
# Numbers of a GPU by name: the attribute of ``Gpu`` for each path that changes.
_OF_GPU: Mapping[str, Mapping[str, str]] = {
    "peak": {"peak": "peak_flops"},
    "hbm.bandwidth": {"hbm.bandwidth": "hbm.peak_bytes_per_s", "hbm.achieved": "hbm.achieved_bytes_per_s"},
    "hbm.latency": {"hbm.latency": "hbm.latency_ticks"},
    "l2.bandwidth": {"l2.bandwidth": "l2.bytes_per_s"},
    "mall.bandwidth": {"mall.bandwidth": "mall.bytes_per_s"},
    "noc.copy_bandwidth": {"noc.copy_bandwidth": "noc.copy_bytes_per_s"},
    "gemm.tile": {"gemm.tile": "gemm.tile_ticks"},
    "gemm.k_step": {"gemm.k_step": "gemm.k_step_ticks"},
    "launch.kernel": _LAUNCH,
    "launch.event": _EVENT,
    "launch": {**_LAUNCH, **_EVENT},
    "sync.graph_launch": {"sync.graph_launch": "sync.graph_launch_ticks"},
    "sync.poll_interval": {"sync.poll_interval": "sync.poll_interval_ticks"},
    "sync.monitor_arm": {"sync.monitor_arm": "sync.monitor_arm_ticks"},
    "sync.monitor_wake": {"sync.monitor_wake": "sync.monitor_wake_ticks"},
    "dma.bandwidth": {"dma.bandwidth": "dma.bytes_per_s"},
    "dma.setup": {"dma.setup": "dma.setup_ticks"},
    "dma.issue_interval": {"dma.issue_interval": "dma.issue_interval_ticks"},
    "dma.packet_cost": {"dma.packet_cost": "dma.packet_ticks"},
    "dma.prelaunch": {"dma.prelaunch": "dma.prelaunch_ticks"},
    "sm_copy.bandwidth": {"sm_copy.bandwidth": "sm_copy.bytes_per_s"},
    "sm_copy.setup": {"sm_copy.setup": "sm_copy.setup_ticks"},
    "collectives.start": {
        **_library("start", {"start": "start_ticks"}),
        **_library("step", {}),
        "collectives.nvls.start": "collectives.nvls.start_ticks",
    },
    "collectives.bandwidth": {
        **_library("bandwidth", {"own_bandwidth": "own_bytes_per_s"}),
        "collectives.nvls.bandwidth": "collectives.nvls.bytes_per_s",
    },
}
# A launch and an event are one call of the host each: what doubles one doubles the other.
_FACTORS: Mapping[str, tuple[float, ...]] = {
    "launch": (DOUBLED,),
    **dict.fromkeys(
        ("sync.graph_launch", "dma.setup", "dma.issue_interval", "dma.prelaunch", "sm_copy.setup"),
        (*TEN_PERCENT, DOUBLED),
    ),
}


def hardware_numbers(system: System) -> tuple[HardwareNumber, ...]:
    """Return the numbers that ``system`` has: those of the GPU, of each kind of link, and of the switch."""
    return (*_of_gpu(system.gpu), *_of_fabric(system))


def _of_gpu(gpu: Gpu) -> Iterator[HardwareNumber]:
    """Yield the numbers of ``gpu``; not those that are 0, or that its profile does not have."""
    for name, attributes in _OF_GPU.items():
        known = {path: attribute for path, attribute in attributes.items() if _value(gpu, attribute)}
        if known:
            paths = tuple(f"{gpu.name}.{path}" for path in known)
            yield HardwareNumber(name, gpu, paths, tuple(known.values()), _FACTORS.get(name, TEN_PERCENT))


def _of_fabric(system: System) -> Iterator[HardwareNumber]:
    def number(device: Link | Switch, word: str, attribute: str) -> HardwareNumber:
        path = f"{device.name}.{word}"
        return HardwareNumber(path, device, (path,), (attribute,))

    for link in system.fabric.links:
        yield number(link, "achieved", "achieved_bytes_per_s")
        yield number(link, "latency", "latency_ticks")
    switch = system.fabric.switch
    if switch is not None:
        yield number(switch, "bandwidth", "bytes_per_s")
        yield number(switch, "latency", "latency_ticks")


def _value(device: Device, attribute: str) -> Any:
    """Return the value to which ``attribute`` leads, None where a part of the profile is missing."""
    return reduce(lambda part, name: part and getattr(part, name), attribute.split("."), device)


def with_number(scenario: Scenario, number: HardwareNumber, factor: float) -> Scenario:
    """Return ``scenario`` with ``number``, one of its own, multiplied by ``factor``."""
    system, device = scenario.system, number.device
    for attribute in number.attributes:
        device = _multiplied(device, attribute, factor)
    if isinstance(device, Gpu):
        return replace(scenario, system=replace(system, gpu=device))
    gpu, fabric = system.gpu, system.fabric
    library = None if fabric.one_switch is None else library_on(system)
    if library is not None:  # its times were measured: they stay as they are
        gpu = replace(gpu, collectives=replace(library, link_bytes_per_s=None, link_latency_ticks=None))
    if isinstance(device, Switch):
        fabric = replace(fabric, switch=device)
    else:
        link, layout = (_with_link(part, number.device, device) for part in (fabric.link, fabric.layout))
        fabric = replace(fabric, link=link, layout=layout)
    return replace(scenario, system=replace(system, gpu=gpu, fabric=fabric))


def _multiplied(part: Any, attribute: str, factor: float) -> Any:
    """Return ``part`` with the value of ``attribute`` multiplied: a whole number, or one for each element type."""
    name, _, rest = attribute.partition(".")
    value = getattr(part, name)
    if rest:
        value = _multiplied(value, rest, factor)
    elif isinstance(value, tuple):
        value = tuple((dtype, round(rate * factor)) for dtype, rate in value)
    else:
        value = round(value * factor)
    return replace(part, **{name: value})


def _with_link(part: Any, old: Device, new: Link) -> Any:
    """Return a part of a fabric with the link ``new`` wherever it has ``old``."""
    if isinstance(part, Link):
        return new if part == old else part
    if isinstance(part, tuple):
        return tuple(_with_link(each, old, new) for each in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: _with_link(getattr(part, field.name), old, new) for field in fields(part)})
    return part
