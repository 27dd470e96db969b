"""Persistent kernels in the step-level estimate: the simulator's shares, launched in advance.

All groups of a stream are one launch. The tile is that of the whole GEMM, whose units are dealt to the groups by their
operations (``simcore/lower/kernels.py``). A group waits for its signals, for groups of other streams that it names, and
for SMs that groups before it hold (``static_order.py``); sums are launched when all groups are done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...compiler.ir import Kernels, Scenario, Schedule, Step, TileGroup
from ...simcore.kernels.gemm_parts import group_shape
from ...simcore.kernels.persistent import dealt_units, split_by_weight, stream_work
from ...simcore.kernels.work import KernelWork


def persistent_parts(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> Mapping[str, KernelWork]:
    """Return the part of each group of a rank in its stream's kernel, by name; empty for launched kernels."""
    if schedule.tactics.kernel is not Kernels.PERSISTENT or scenario.workload.gemm is None:
        return {}
    streams: dict[int, list[TileGroup]] = {}
    for step in steps:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append(step)
    parts = (_parts(scenario, groups, schedule.compute_sms) for groups in streams.values())
    return {name: work for each in parts for name, work in each.items()}


def _parts(scenario: Scenario, groups: Sequence[TileGroup], sms: int) -> dict[str, KernelWork]:
    whole = stream_work(scenario, groups, sms)
    shapes = [group_shape(scenario, group) for group in groups]
    flops = [shape.flops for shape in shapes]
    dealt = zip(groups, shapes, dealt_units(whole, flops), split_by_weight(whole.hbm_read_bytes, flops), strict=True)
    return {
        group.name: replace(
            whole,
            num_units=units,
            unit_ticks=ticks,
            waves=-(-units // sms),
            hbm_read_bytes=read,
            hbm_write_bytes=shape.m * shape.n * shape.dtype.num_bytes,
        )
        for group, shape, (units, ticks), read in dealt
    }
