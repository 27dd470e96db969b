"""Waits of work units for transfers: plainly, by polling the flag, or with a monitor.

A unit that polls holds its SM and reads the line of the flag from memory, round after round. A monitored one reads it
once to arm the monitor, gives its SM back, is woken when the flag is set, and reads it once more (AMD, US patent
12,131,199: a waiter is resumed by the write to the address it waits for). So polls cost reads in proportion to the wait
and a monitor two, however long it is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...compiler.ir import Gpu, Reduction, Step, Wait, WaitPer
from ..kernels.work import KernelWork
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .state import Lowering

Runs = Iterable[tuple[int, Stage]]
"""Work units in order, equal ones together: (how many, the stage of each)."""


@dataclass(frozen=True, slots=True)
class Units:
    """The ops of work units: ``ops`` themselves, what begins each (``starts``), and those that wait for transfers."""

    ops: range
    starts: tuple[int, ...]
    on_transfers: tuple[int, ...]
    polling: tuple[int, ...]


def num_waiting(state: Lowering, work: KernelWork) -> int:
    """Units that look for flags: the first of each SM, or all of them."""
    per_tile = state.schedule.tactics.per is WaitPer.TILE
    return work.num_units if per_tile else min(work.num_units, state.schedule.compute_sms)


def add_units(state: Lowering, rank: int, step: Step, runs: Runs, waiting: int, flag: str) -> Units:
    """Emit the units of a kernel; the first ``waiting`` look for ``flag`` as the schedule says."""
    if state.schedule.tactics.wait is Wait.EVENT or not waiting:
        ops = _emit(state, rank, step, ((count, (stage,)) for count, stage in runs))
        return Units(ops, tuple(ops), tuple(ops[:waiting]), ())
    monitored = _entries(state, rank, waiting)
    poll, read = _poll(state, rank, flag), _read(state, rank, flag)
    arms, wakes = _arm(state, rank, step, monitored, flag) if monitored else (range(0), range(0))
    stages: list[tuple[int, tuple[Stage, ...]]] = []
    for first, count, stage in _cut(runs, (monitored, waiting)):
        looks = Stage(0, (read,)) if first < monitored else poll if first < waiting else None
        stages.append((count, (looks, stage) if looks else (stage,)))
    ops = _emit(state, rank, step, stages)
    state.builder.after(ops[:monitored], wakes)
    for arm, op in zip(arms, ops, strict=False):
        state.builder.after((op,), (arm,))
    return Units(ops, (*arms, *ops[monitored:]), tuple(wakes), tuple(ops[monitored:waiting]))


def _entries(state: Lowering, rank: int, waiting: int) -> int:
    """Take entries of the monitor of ``rank`` for ``waiting`` units; return how many there were."""
    if state.schedule.tactics.wait is not Wait.MONITOR:
        return 0
    limit, taken = state.scenario.gpu.sync.monitor_entries, state.monitored.get(rank, 0)
    granted = waiting if limit is None else min(waiting, limit - taken)
    state.monitored[rank] = taken + granted
    return granted


def _arm(state: Lowering, rank: int, step: Step, count: int, flag: str) -> tuple[range, range]:
    """For each monitored unit an op that arms, and for all one that is done when they are woken."""
    sync, wake_ticks = state.scenario.gpu.sync, monitor_wake_ticks(state.scenario.gpu)
    wakes = state.builder.op(rank, OpSpec(OpKind.JOIN, step.name, setup_ticks=wake_ticks))
    stage = Stage(sync.monitor_arm_ticks, (_read(state, rank, flag),))
    return state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, (stage,)), count=count), wakes


def _poll(state: Lowering, rank: int, flag: str) -> Stage:
    return Stage(poll_ticks(state.scenario.gpu), (_read(state, rank, flag),), polls=True)


def poll_ticks(gpu: Gpu) -> int:
    """Time from one look at a flag to the next: what the profile says, else a read of memory."""
    interval = gpu.hbm.latency_ticks if gpu.sync.poll_interval_ticks is None else gpu.sync.poll_interval_ticks
    return max(1, interval)


def monitor_wake_ticks(gpu: Gpu) -> int:
    """Time from a flag that is set to the waking of who is monitored: what the profile says, else a read of memory."""
    wake_ticks = gpu.sync.monitor_wake_ticks
    return gpu.hbm.latency_ticks if wake_ticks is None else wake_ticks


def _read(state: Lowering, rank: int, flag: str) -> Flow:
    """One unit, the line of the flag, from memory."""
    memory = state.machine.memory_for(TrafficClass.COMPUTE)
    return Flow((state.flag_hop(memory, flag, rank),), 1, traffic=TrafficClass.FLAGS)


def tell(state: Lowering, rank: int, offset: int, label: str, flag: str, after: Iterable[int]) -> int:
    """The op that sets ``flag`` of ``rank`` at the one ``offset`` further, when ``after`` are done."""
    hop = state.flag_hop(state.machine.memory_for(TrafficClass.COMM), flag, rank + offset)
    flow = Flow((*state.machine.route(rank, rank + offset), hop), 1, traffic=TrafficClass.FLAGS)
    told = state.builder.op(rank, OpSpec(OpKind.LAUNCH, label, (Stage(0, (flow,)),)))
    state.builder.after(told, after)
    return told.start


def _emit(state: Lowering, rank: int, step: Step, runs: Iterable[tuple[int, tuple[Stage, ...]]]) -> range:
    """Ops on the SM pool for runs of (number of units, stages of each)."""
    kind = OpKind.REDUCE if isinstance(step, Reduction) else OpKind.TILE
    ops: list[range] = []
    for count, stages in runs:
        ops.append(state.builder.op(rank, OpSpec(kind, step.name, stages, pool=state.machine.sms), count=count))
    return range(ops[0].start, ops[-1].stop)


def _cut(runs: Runs, edges: tuple[int, ...]) -> Iterator[tuple[int, int, Stage]]:
    """Cut ``runs`` at ``edges``: (number of the first unit, number of units, stage)."""
    first = 0
    for count, stage in runs:
        cuts = sorted({first, first + count} | {edge for edge in edges if first < edge < first + count})
        for low, high in pairwise(cuts):
            yield low, high - low, stage
        first += count
