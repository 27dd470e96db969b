"""Persistent kernels in the step-level estimate: the simulator's shares, launched in advance.

All groups of a stream are one launch. The tile is that of the whole GEMM, whose units are dealt to the groups by their
operations (``simcore/lower/kernels.py``). A group waits for its signals, for groups of other streams that it names, and
for SMs that groups before it hold (``static_order.py``); sums are launched when all groups are done.
"""

from collections.abc import Mapping, Sequence

from ...compiler.ir import Kernels, Scenario, Schedule, Step, TileGroup
from ...simcore.kernels.dispatch import stream_parts, stream_work
from ...simcore.kernels.work import KernelWork


def persistent_parts(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> Mapping[str, KernelWork]:
    """Return the part of each group of a rank in its stream's kernel, by name; empty for launched kernels."""
    if schedule.tactics.kernel is not Kernels.PERSISTENT or scenario.workload.gemm is None:
        return {}
    streams: dict[int, list[TileGroup]] = {}
    for step in steps:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append(step)
    parts, sms = dict[str, KernelWork](), schedule.compute_sms
    for groups in streams.values():
        parts |= stream_parts(scenario, stream_work(scenario, groups, sms), groups, sms, away={})
    return parts
