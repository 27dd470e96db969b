"""From a finished run to figures: intervals, busy times, loads, utilization, and who waited for what."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    Arrival,
    Direction,
    EngineKind,
    EngineMode,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    arrivals_at,
)
from ..kernels.dispatch import whole_works
from ..lower.collective import library_operation
from ..lower.plan import Lowered
from ..lower.state import StepOps
from ..lower.steps import LoweredPart
from ..program.arrays import NONE, Int64Array
from ..program.program import NEVER, OpKind, Program, Run
from .load_buckets import union_ticks
from .result import Interval, IntervalKind, ServerLoad, Timeline, Utilization


def intervals_of(lowered: LoweredPart, run: Run, starts: Int64Array | None = None) -> list[Interval]:
    """Every step that ran; transfers are not dealt to engines yet. ``starts`` are the ``work_starts`` if known."""
    starts = work_starts(lowered.program, run) if starts is None else starts
    return [interval for ops in _shown(lowered) if (interval := _interval(lowered, ops, run, starts)) is not None]


def timeline_with(program: Program, run: Run, intervals: Iterable[Interval]) -> Timeline:
    """The timeline of ``intervals``, transfers dealt to engines in the order in which they started."""
    intervals = tuple(intervals)
    kernels = [interval for interval in intervals if interval.kind is not IntervalKind.COMM]
    copies = sorted(
        (i for i in intervals if i.kind is IntervalKind.COMM),
        key=lambda i: (i.rank, i.lane, i.start_ticks, i.end_ticks),
    )
    dealt = [lane for _, group in groupby(copies, key=lambda i: (i.rank, i.lane)) for lane in _dealt(list(group))]
    return Timeline(program.num_ranks, run.makespan_ticks, (*kernels, *dealt), program.ranks_simulated)


def _shown(lowered: LoweredPart) -> Iterable[StepOps]:
    """The steps; of those that one call of a library carries out the first, a transfer, stands for all."""
    if not lowered.schedule.engine.by_library:
        return lowered.steps
    first = {ops.done: ops for ops in reversed(lowered.steps)}
    return [
        replace(ops, step=replace(ops.step, name=shown_name(lowered.scenario, lowered.schedule, ops.step)))
        for ops in first.values()
    ]


def shown_name(scenario: OpCase, schedule: OpPlan, step: Step) -> str:
    """Name of the interval of ``step`` in a timeline; that of the operation where one call of a library moves it."""
    if schedule.engine.by_library and not isinstance(step, TileGroup):
        return library_operation(scenario).value
    return step.name


def work_starts(program: Program, run: Run) -> Int64Array:
    """Return the [O] begin of the work of each op; where one had to poll, the time at which the last flag was set."""
    set_at = np.full(program.num_ops, NEVER, np.int64)
    np.maximum.at(set_at, program.op_sets, np.repeat(run.op_done, np.diff(program.op_sets_ptr)))
    # With one round an op did not have to wait for its flags.
    return np.where(run.op_polls > 1, np.maximum(run.op_start, set_at), run.op_start)


def _interval(lowered: LoweredPart, ops: StepOps, run: Run, starts: Int64Array) -> Interval | None:
    """The step from the first start of its work to its end; None if it never finished."""
    done = int(run.op_done[ops.done])
    if done < 0:
        return None
    start = int(starts[ops.work.start : ops.work.stop].min())
    match ops.step:
        case Transfer():
            by = lowered.scenario.mover(lowered.schedule.engine, ops.step, ops.rank)
            engine = "copy" if by is EngineKind.SM else "dma" if by is lowered.schedule.engine.kind else "port"
            return Interval(ops.rank, engine, ops.step.name, IntervalKind.COMM, start, done)
        case TileGroup():
            return Interval(ops.rank, f"stream {ops.step.stream}", ops.step.name, IntervalKind.COMPUTE, start, done)
        case Reduction():
            return Interval(ops.rank, f"stream {ops.step.stream}", ops.step.name, IntervalKind.REDUCE, start, done)


def _dealt(copies: list[Interval]) -> list[Interval]:
    """Copies of one rank, each on the lowest lane that is free when it starts."""
    ends: list[int] = []
    placed = []
    for copy in copies:
        lane = next((i for i, end in enumerate(ends) if end <= copy.start_ticks), len(ends))
        ends[lane : lane + 1] = [copy.end_ticks]
        placed.append(
            Interval(copy.rank, f"{copy.lane} {lane}", copy.name, copy.kind, copy.start_ticks, copy.end_ticks)
        )
    return placed


def busy_ticks(timeline: Timeline) -> tuple[int, int, int]:
    """(kernels, transfers, both together) of one rank, the one that is busy longest."""
    per_rank = []
    for rank in sorted({interval.rank for interval in timeline.intervals} or {0}):
        own = [interval for interval in timeline.intervals if interval.rank == rank]
        kernels = [interval for interval in own if interval.kind is not IntervalKind.COMM]
        copies = [interval for interval in own if interval.kind is IntervalKind.COMM]
        per_rank.append((union_ticks(kernels), union_ticks(copies), union_ticks(own)))
    return max(per_rank, key=lambda busy: busy[2])


def kernel_ticks(lowered: Lowered, run: Run) -> int:
    """Sum of the durations of all kernels, side by side or not."""
    intervals = (interval for part in lowered.parts for interval in intervals_of(part, run))
    return sum(interval.ticks for interval in intervals if interval.kind is not IntervalKind.COMM)


def dil_of(lowered: LoweredPart) -> float | None:
    """Decomposition loss: the parts, each alone with the SMs the schedule leaves, over the whole kernel alone."""
    whole = whole_works(lowered.scenario)
    parts = [(ops.rank, ops.alone_ticks) for ops in lowered.steps if isinstance(ops.step, TileGroup)]
    if not whole or not parts:
        return None
    per_rank = [sum(ticks for at, ticks in parts if at == rank) for rank in {rank for rank, _ in parts}]
    return max(per_rank) / sum(work.alone_ticks for work in whole)


def server_loads(program: Program, run: Run) -> tuple[ServerLoad, ...]:
    """Every declared server that did anything, at the rank where it was busiest."""
    busy = run.server_busy_ticks.sum(axis=1).reshape(-1, program.ranks_simulated)  # [declared servers, ranks]
    units = run.server_busy_ticks.sum(axis=1) // program.service_ticks  # each takes as long
    waited = None
    if run.hop_wait_ticks is not None:
        waited = np.bincount(program.hop_server, run.hop_wait_ticks, minlength=program.num_servers)
    loads = []
    for number in np.flatnonzero(busy.max(axis=1, initial=0)).tolist():
        rank = int(busy[number].argmax())
        server = program.server_instance(number, rank)
        mean = None if waited is None else float(waited[server]) / max(1.0, float(units[server]))
        compute, comm, flags = run.server_busy_ticks[server].tolist()
        loads.append(ServerLoad(program.server_names[number], rank, compute, comm, flags, int(units[server]), mean))
    return tuple(loads)


def utilization_of(lowered: LoweredPart, run: Run) -> Utilization:
    """Busy share of each kind of resource, of the busiest instance or rank."""
    schedule = lowered.schedule
    kernel = schedule.engine.kernel
    engines = schedule.compute_sms if schedule.engine.mode is EngineMode.SHARED else schedule.engine.count
    engines = engines if kernel is None else kernel.chains
    return utilization(lowered.program, run, lowered.machine.link_servers, schedule.compute_sms, engines)


def utilization(program: Program, run: Run, links: Collection[int], sms: int, engines: int) -> Utilization:
    """Busy share of each kind of resource, of so many ``sms`` and ``engines`` of a rank and the servers ``links``."""
    busy = run.server_busy_ticks.sum(axis=1) / max(1, run.makespan_ticks)
    declared = np.arange(program.num_servers) // program.ranks_simulated
    names = np.array(program.server_names)[declared]

    def worst(prefixes: tuple[str, ...]) -> float:
        chosen = np.array([str(name).startswith(prefixes) for name in names])
        return float(busy[chosen].max()) if chosen.any() else 0.0

    return Utilization(
        sms=_pool_share(program, run, (OpKind.TILE, OpKind.REDUCE), sms),
        engines=_pool_share(program, run, (OpKind.TRANSFER,), engines),
        hbm=worst(("hbm",)),
        l2=worst(("l2",)),
        links=float(busy[np.isin(declared, list(links))].max(initial=0.0)),
        noc=worst(("noc",)),
    )


def _pool_share(program: Program, run: Run, kinds: tuple[OpKind, ...], slots: int) -> float:
    """Slot time in use over slot time there is, at the busiest rank."""
    of_kinds = np.any([program.op_kind == kind for kind in kinds], axis=0)
    chosen = of_kinds & (run.op_done >= 0) & (program.op_pool != NONE)
    held = np.bincount(program.op_rank[chosen], weights=(run.op_done - run.op_start)[chosen], minlength=1)
    return float(held.max()) / (max(1, run.makespan_ticks) * slots)


@dataclass(frozen=True, slots=True)
class DataFlow:
    """``waiter``, a step at ``rank``, waits until the ``transfer`` that ``issuer`` made has set ``signal`` there.

    Ranks are absolute; the intervals are those of the ranks that they repeat. ``path`` are the nodes of the network
    from the rank that had the data to ``rank``, both included; empty where a switch copies or sums, or a library moves.
    A get may also wait for a step of its peer: then that is the ``transfer``, a sum too, and what comes is word of it.
    """

    issuer: int
    rank: int
    signal: str
    transfer: Interval
    waiter: Interval
    path: tuple[int, ...]


def data_flows(scenario: OpCase, schedule: OpPlan, timeline: Timeline, rank: int) -> tuple[DataFlow, ...]:
    """What each step of an absolute ``rank`` waits for, in the order of the plan.

    One that never ran, or that never came, is left out. ``schedule`` is that of the Result with the ``timeline``.
    """
    intervals = {(each.rank, each.name): each for each in timeline.intervals}
    return StepFlows(scenario, schedule, intervals, timeline.period).of(rank)


@dataclass(frozen=True, slots=True)
class StepFlows:
    """What steps of ``schedule`` wait for, by their ``intervals``, which have names that begin with ``prefix``.

    They are by rank and name; those of the ranks of one ``period`` stand for all.
    """

    scenario: OpCase
    schedule: OpPlan
    intervals: Mapping[tuple[int, str], Interval]
    period: int
    prefix: str = ""

    def of(self, rank: int) -> tuple[DataFlow, ...]:
        """As ``data_flows``."""
        found = ((self._interval(rank, step), step) for step in self.schedule.steps_of(rank))
        waiting = [(waiter, step) for waiter, step in found if waiter is not None]
        own = self.to(rank, ((waiter, name) for waiter, step in waiting for name in step.after))
        gets = [(waiter, step) for waiter, step in waiting if isinstance(step, Transfer) and step.peer_after]
        return (*own, *chain.from_iterable(self._flags_of_peer(rank, waiter, get) for waiter, get in gets))

    def to(self, rank: int, waits: Iterable[tuple[Interval, str]]) -> tuple[DataFlow, ...]:
        """What intervals of ``rank`` wait for by names, of what steps of the schedule bring there."""
        arrivals = _by_awaited_name(arrivals_at(self.scenario, self.schedule, rank))
        found: dict[tuple[int, str, str], DataFlow] = {}  # a call of a library moves many pieces
        for waiter, arrival in ((waiter, each) for waiter, name in waits for each in arrivals.get(name, ())):
            transfer = self._interval(arrival.issuer, arrival.transfer)
            if transfer is not None and transfer is not waiter:
                path = self._path(arrival, rank)
                flow = DataFlow(arrival.issuer, rank, arrival.transfer.signal, transfer, waiter, path)
                found.setdefault((arrival.issuer, transfer.name, waiter.name), flow)
        return tuple(found.values())

    def _flags_of_peer(self, rank: int, waiter: Interval, get: Transfer) -> Iterator[DataFlow]:
        """What the peer of a ``get`` has received or done when it sends its flag."""
        peer = (rank + get.peer) % self.scenario.num_ranks
        arrivals = _by_awaited_name(arrivals_at(self.scenario, self.schedule, peer))
        for name in get.peer_after:
            made = [(each.issuer, self._interval(each.issuer, each.transfer)) for each in arrivals.get(name, ())]
            for issuer, interval in made or [(peer, self.intervals.get((peer % self.period, self.prefix + name)))]:
                if interval is not None:
                    yield DataFlow(issuer, rank, name, interval, waiter, self.scenario.network.path(peer, rank))

    def _interval(self, rank: int, step: Step) -> Interval | None:
        """That of a step of ``rank``, None where it never ran."""
        name = self.prefix + shown_name(self.scenario, self.schedule, step)
        return self.intervals.get((rank % self.period, name))

    def _path(self, arrival: Arrival, rank: int) -> tuple[int, ...]:
        if self.schedule.engine.by_library or arrival.transfer.reach is Reach.ALL:
            return ()
        return self.scenario.network.path((rank + arrival.source) % self.scenario.num_ranks, rank)


def _by_awaited_name(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    """What has arrived when a step need no longer wait for a name: that of a signal, or of a get."""
    awaited: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        names = {arrival.transfer.signal}
        if arrival.transfer.direction is Direction.GET:
            names.add(arrival.transfer.name)
        for name in names:
            awaited.setdefault(name, []).append(arrival)
    return awaited


TextArray = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class OpTable:
    """One entry for each op, in the order of its rank's program; times in ticks of 10 fs, -1 where it did not happen.

    Joins, which only gather and take no time, are left out.
    """

    label: TextArray
    kind: TextArray  # names of OpKind, in lower case
    rank: Int64Array
    pool: TextArray  # the pool whose slot the op held, empty without one
    ready_ticks: Int64Array
    start_ticks: Int64Array
    done_ticks: Int64Array
    polls: Int64Array

    def save(self, path: Path) -> None:
        """Write a compressed ``.npz``, one array a column; nothing in it is pickled."""
        np.savez_compressed(path, **{name: getattr(self, name) for name in self.__slots__})


def op_table(program: Program, run: Run) -> OpTable:
    """The ops of ``program`` as ``run`` found them."""
    ops = np.flatnonzero(program.op_kind != OpKind.JOIN)
    ops = ops[np.lexsort((program.op_local_id[ops], program.op_rank[ops]))]
    kinds = np.array([kind.name.lower() for kind in OpKind])
    pools = np.array([*map(program.pool_name, range(len(program.pool_slots))), ""])
    return OpTable(
        label=np.array(program.labels)[program.op_label_idx[ops]],
        kind=kinds[program.op_kind[ops]],
        rank=program.op_rank[ops],
        pool=pools[program.op_pool[ops]],  # NONE is -1, the last
        ready_ticks=run.op_ready[ops],
        start_ticks=run.op_start[ops],
        done_ticks=run.op_done[ops],
        polls=run.op_polls[ops],
    )
