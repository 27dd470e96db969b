"""The begin of copies: commands issued to copy engines, and launches of the kernels in which SMs copy."""

from collections.abc import Sequence

from ...compiler.ir import Direction, EngineKind, EngineMode, Reach, Scenario, Schedule, Transfer
from ..program.program import OpKind, OpSpec
from .state import Lowering


def pairs_of(steps: Sequence[Transfer], mode: EngineMode) -> dict[str, Transfer]:
    """The first of two puts that one broadcast command serves, and the second: of the same region after the same."""
    if mode is not EngineMode.BROADCAST:
        return {}
    waiting: dict[object, Transfer] = {}
    pairs = {}
    for step in steps:
        if step.direction is not Direction.PUT or step.reach is Reach.ALL:
            continue
        key = step.region, frozenset(step.after), step.lane
        if key in waiting:
            pairs[waiting.pop(key).name] = step
        else:
            waiting[key] = step
    return pairs


def counts_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """The time in which the host reads how many rows its copy engines are to copy; 0 where it knows, or SMs copy.

    An event tells it that the counts are there, a copy brings them, and then it issues: what each takes is the
    profile's, of a host that does nothing else.
    """
    if not scenario.workload.counts_on_device or schedule.engine.kind is not EngineKind.DMA:
        return 0
    gpu = scenario.gpu
    return gpu.launch.event_ticks + gpu.dma.setup_ticks + gpu.launch.kernel_ticks


def after_counts(state: Lowering, rank: int, ops: Sequence[int]) -> None:
    """Let copies begin once the host has read the counts, which are there when the plan begins."""
    ticks = counts_ticks(state.scenario, state.schedule)
    if not ticks:
        return
    if rank not in state.counts:
        read = state.builder.op(rank, OpSpec(OpKind.JOIN, "counts", setup_ticks=state.setup(ticks)))
        state.counts[rank] = read.start
        state.gate(rank, read)
    state.builder.after(ops, (state.counts[rank],))


def issue_ticks(state: Lowering) -> int:
    """The part of a command's setup that keeps the queue of the GPU busy; none for commands written before."""
    if state.machine.issue is None or state.schedule.engine.mode is EngineMode.PRELAUNCHED:
        return 0
    return state.scenario.gpu.dma.issue_interval_ticks


def begun_by(state: Lowering, rank: int, step: Transfer, ops: Sequence[int]) -> Sequence[int]:
    """The ops that wait for what the copy waits for: the copy, or the issue of its command.

    Commands that wait for the same are dealt to the engines, and those of one engine are issued together: a doorbell is
    rung once for all that was written. Copies that queue for SMs beside kernels are a kernel themselves, launched once.
    """
    if state.schedule.engine.mode is EngineMode.SHARED and not state.one_kernel:
        return _launched(state, rank, step, ops)
    if not issue_ticks(state):
        return ops
    alike = _issued_alike(state, rank, step)
    engines = state.schedule.engine.count
    if len(alike) >= engines:
        alike.append(alike[-engines])
        state.builder.after(ops, alike[-1])
        return ()
    setup = state.setup(issue_ticks(state))
    issue = state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, pool=state.machine.issue, setup_ticks=setup))
    alike.append(issue)
    state.builder.after(ops, issue)
    return issue


def _issued_alike(state: Lowering, rank: int, step: Transfer) -> list[range]:
    """Issues or launches so far for copies with the same waits; none for a lane, whose copies wait for each other."""
    return [] if step.lane is not None else state.issues.setdefault((rank, frozenset(step.after)), [])


def _launched(state: Lowering, rank: int, step: Transfer, ops: Sequence[int]) -> Sequence[int]:
    """The launch of the kernel that makes a copy, and all others that wait for the same."""
    alike = _issued_alike(state, rank, step)
    if alike:
        state.builder.after(ops, alike[0])
        return ()
    setup = state.setup(state.scenario.gpu.launch.kernel_ticks)
    alike.append(state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, setup_ticks=setup)))
    state.builder.after(ops, alike[0])
    return alike[0]
