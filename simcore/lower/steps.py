"""OpCase + OpPlan -> ops of a Program: every step of one part on servers and pools.

Where a shift of all ranks changes neither the plan nor the fabric, only the first ranks are written, as many as it
shifts by (``period``): one for a plan that is the same for all on a switch, those of a node on rails. What one of them
sends to a rank further on comes to the one that stands for it, which gives the same times as all ranks together (a test
compares them).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ...compiler.ir import (
    Direction,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    checkpoint,
    kernels_that_pull,
    kernels_that_store,
    num_sharing,
)
from ..program.program import Program
from .cache_hits import Hits
from .collective import begin_calls, lower_called
from .copies import lower_transfer
from .kernels import lower_by_groups, lower_group, lower_reduction, order_units
from .machine import Machine
from .one_kernel import awaited, begin_kernels, end_kernel, look, lower_sum, wait_for_peers
from .state import Lowering, StepOps, Waiters, pairs_of
from .waits import announce, lower_pulls, lower_stores, tell, tile_by_tile, wait_for_rows, wait_tile_by_tile


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """A part in a Program, with the way back to its plan."""

    scenario: OpCase
    schedule: OpPlan
    program: Program
    steps: tuple[StepOps, ...]
    machine: Machine
    hits: Hits

    def gets(self) -> Iterator[tuple[range, tuple[int, ...]]]:
        """The ops of each get, and the ranks whose data it reads; a sum in the switch reads that of all."""
        n = self.scenario.num_ranks
        for ops in self.steps:
            if isinstance(ops.step, Transfer) and ops.step.direction is Direction.GET:
                to_all = ops.step.reach is Reach.ALL
                yield ops.work, tuple(range(n)) if to_all else ((ops.rank + ops.step.peer) % n,)


def lower_steps(state: Lowering) -> None:
    """Lower the plan of ``state`` into its builder and onto its machine, where other plans may be too."""
    schedule, ranks = state.schedule, range(state.period)
    begin_kernels(state, ranks)
    begin_calls(state, ranks)
    for rank in ranks:
        steps = schedule.steps_of(rank)
        transfers = [step for step in steps if isinstance(step, Transfer) and (rank, step.name) not in state.writes]
        # Of peers that a profile describes only the writes are known: they share engines as the rank that is simulated.
        state.num_sharing[rank] = num_sharing(schedule.steps_of(0) if state.writes else steps, schedule.engine)
        state.kernel_names[rank] = _run_before(state, steps)
        state.pairs |= {(rank, first): second for first, second in pairs_of(transfers, schedule.engine.mode).items()}
        if state.by_tiles:
            state.stored_by[rank] = kernels_that_store(steps)
            state.pulled_by[rank] = kernels_that_pull(steps)
        # What a kernel pulls is dealt to its units, and comes after these.
        for step in sorted(steps, key=lambda step: step.name in state.pulled_by.get(rank, {})):
            checkpoint()
            _add(state, rank, step, steps)
    announced = announce(state, ranks)
    signals = [signals_at(state, rank) for rank in ranks]
    peer_flags = _flags_for_gets(state, signals)
    for rank in ranks:
        checkpoint()
        order_units(state, rank)
        _connect(state, rank, announced, signals[rank], peer_flags)


def _run_before(state: Lowering, steps: Iterable[Step]) -> frozenset[str]:
    """Names of kernels, of ``steps`` and of other plans: whoever waits for these alone waits for no event."""
    own = (step.name for step in steps if not isinstance(step, Transfer))
    return frozenset((*own, *(name for name, other in state.foreign.items() if other.runs_before)))


def period_of(scenario: OpCase, schedule: OpPlan) -> int:
    """The least shift of all ranks that changes neither plan, kernels nor fabric: so many ranks stand for all."""
    if scenario.shape.ranks_differ:
        return scenario.num_ranks
    return math.lcm(schedule.period(scenario.num_ranks), scenario.network.period)


def _add(state: Lowering, rank: int, step: Step, steps: Sequence[Step]) -> None:
    """Emit the ops of ``step``, one of ``steps`` of the rank."""
    match step:
        case Transfer() | Reduction() if state.by_library:
            lower_called(state, rank, step)
        case Transfer() if step.name in state.stored_by.get(rank, {}):
            lower_stores(state, rank, step, state.stored_by[rank][step.name])
        case Transfer() if step.name in state.pulled_by.get(rank, {}):
            lower_pulls(state, rank, step, state.pulled_by[rank][step.name])
        case Transfer() if state.schedule.engine.kernel is not None and step.reach is Reach.PEER:
            lower_by_groups(state, rank, step, state.schedule.engine.kernel)
        case Transfer():
            lower_transfer(state, rank, step)
        case TileGroup():
            lower_group(state, rank, step, steps)
        case Reduction() if state.one_kernel or state.looks_for_parts:
            lower_sum(state, rank, step)
        case Reduction():
            lower_reduction(state, rank, step)


def _connect(
    state: Lowering,
    rank: int,
    announced: Mapping[tuple[int, str], Sequence[int]],
    signals: Mapping[str, list[tuple[int, str]]],
    peer_flags: Mapping[tuple[int, str], int],
) -> None:
    """Turn the plan's waits, the order of streams and of engine lanes into dependencies.

    Sums of a switch also wait for what is ``announced`` to them, and gets for ``peer_flags``.
    """
    steps = {step.name: step for step in state.schedule.steps_of(rank)}
    # A persistent kernel has every SM until it ends: other kernels come after all its groups.
    persistent = [state.step_ops[rank, name].done for name in steps if not state.waiters[rank, name].queued]
    last: dict[tuple[str, int], list[int]] = {}
    for step in steps.values():
        waiters = state.waiters[rank, step.name]
        queue = None if (rank, step.name) in state.writes else _queue_of(state, step)
        kernels = [steps[name] for name in step.after if isinstance(steps.get(name), TileGroup | Reduction)]
        foreign = [state.foreign[name] for name in step.after if name in state.foreign]
        before = _after_kernels(state, rank, kernels, waiters, queue)
        before += [op for other in foreign if other.runs_before for op in other.ops[rank]]
        copies = [
            name
            for name in step.after
            if name not in state.foreign and not isinstance(steps.get(name), TileGroup | Reduction)
        ]
        senders = [sender for name in copies for sender in signals.get(name, ((rank, name),))]
        if isinstance(step, Reduction) and tile_by_tile(state):
            wait_tile_by_tile(
                state,
                step,
                waiters,
                [state.step_ops[rank, each.name] for each in kernels],
                [state.step_ops[sender] for sender in senders],
            )
            continue
        if isinstance(step, TileGroup) and tile_by_tile(state):
            senders = wait_for_rows(state, rank, step, waiters, senders)
        arrived = awaited(state, rank, step, [state.step_ops[sender] for sender in senders])
        arrived += [op for other in foreign if not other.runs_before for op in other.ops[rank]]
        if queue is not None:
            before += _queued(state, rank, step, queue, last, persistent)
        state.builder.after(waiters.on_kernels, before)
        if (rank, step.name) in announced:
            arrived = [*arrived, look(state, rank, step.name, announced[rank, step.name])]
        if (rank, step.name) in peer_flags:
            arrived = [*arrived, look(state, rank, step.name, (peer_flags[rank, step.name],))]
        state.builder.after(waiters.on_transfers, arrived)
        state.builder.flags(waiters.polling, arrived)
        if isinstance(step, Transfer):
            wait_for_peers(state, rank, step)
    end_kernel(state, rank, (state.step_ops[sender] for senders in signals.values() for sender in senders))


def _after_kernels(
    state: Lowering,
    rank: int,
    kernels: Sequence[Step],
    waiters: Waiters,
    queue: tuple[str, int] | None,
) -> list[int]:
    """The ops that end the ``kernels`` before a step of ``waiters``, which is in ``queue``.

    The SMs of a persistent kernel go through its groups in order, and need not wait for earlier ones.
    """
    return [
        state.step_ops[rank, other.name].done
        for other in kernels
        if waiters.queued or isinstance(other, Reduction) or _queue_of(state, other) != queue
        if other.name != waiters.stored_by
    ]


def _flags_for_gets(
    state: Lowering, signals_of: Sequence[Mapping[str, list[tuple[int, str]]]]
) -> dict[tuple[int, str], int]:
    """The flags by which peers say that they have what a get reads, by its rank and name.

    A rank tells the others in the order of their distance, as each rank does: so ranks that do the same are alike.
    """
    gets = [
        ((rank + step.peer) % state.period, step.peer, rank, step)
        for rank in range(state.period)
        for step in state.schedule.steps_of(rank)
        if isinstance(step, Transfer) and step.peer_after
    ]
    peer_flags = dict[tuple[int, str], int]()
    for peer, offset, rank, step in sorted(gets, key=itemgetter(0, 1)):
        senders = [sender for name in step.peer_after for sender in signals_of[peer].get(name, ((peer, name),))]
        there = awaited(state, peer, step, [state.step_ops[sender] for sender in senders])
        peer_flags[rank, step.name] = tell(state, peer, -offset, step.name, step.signal, there)
    return peer_flags


def _queued(
    state: Lowering,
    rank: int,
    step: Step,
    queue: tuple[str, int],
    last: dict[tuple[str, int], list[int]],
    persistent: list[int],
) -> list[int]:
    """What a step of a queue waits for there, as for ``persistent`` kernels; it is then the ``last`` of its queue."""
    waiters, held = state.waiters[rank, step.name], last.get(queue, [])
    if isinstance(step, Transfer) and state.prepares(step):
        own, sent = state.step_ops[rank, step.name], state.sent[rank, step.name]
        state.builder.after((*own.work, sent), held[:1])
        last[queue] = [sent, own.done, *held[1:2]]
        return held[2:]
    if not waiters.queued:
        return []
    if waiters.on_kernels:  # nothing waits in the other half of a broadcast: it was over with the first
        last[queue] = [state.step_ops[rank, step.name].done]
    return held or ([] if isinstance(step, Transfer) else persistent)


def signals_at(state: Lowering, rank: int) -> dict[str, list[tuple[int, str]]]:
    """For each signal the transfers that set it at ``rank``, as rank and name; several put to all with one signal."""
    signals: dict[str, list[tuple[int, str]]] = {}
    for arrival in state.hits.arrivals(rank):
        sender = (arrival.issuer % state.period, arrival.transfer.name)
        senders = signals.setdefault(arrival.transfer.signal, [])
        if sender not in senders:
            senders.append(sender)
    return signals


def _queue_of(state: Lowering, step: Step) -> tuple[str, int] | None:
    """The queue in which ``step`` runs in order: its stream or engine lane; None for sums of one kernel.

    A lane of work-groups is none: a group goes on when it has issued a copy.
    """
    if isinstance(step, Transfer):
        return None if step.lane is None or state.machine.groups is not None else ("lane", step.lane)
    return None if state.one_kernel or state.looks_for_parts else ("stream", step.stream)
