"""State shared by the parts of lowering: the ops of each step so far; sizes and shares."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from zlib import crc32

import numpy as np

from ...compiler.ir import (
    Direction,
    EngineKind,
    EngineMode,
    LaunchMode,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    Write,
)
from ..kernels.work import KernelWork
from ..program.builder import ProgramBuilder
from ..program.program import Flow, OpKind, OpSpec, Stage
from .cache_hits import Hits
from .machine import Hop, Idealization, Machine, Memory, is_one_kernel, looks_for_parts

Runs = Sequence[tuple[int, tuple[Stage, ...]]]
"""Work units in order, equal ones together: (how many, the stages of each), of alike ones the same stages."""


@dataclass(frozen=True, slots=True)
class StepOps:
    """The ops of one step at one rank: ``work`` does it (tiles, copies), ``done`` is what others wait for.

    ``kernel`` is the work model of a group or a reduction, None for a transfer; ``alone_ticks`` is how long it takes
    alone, for a group of a persistent kernel its share of the whole.
    """

    rank: int
    step: Step
    work: range
    done: int
    kernel: KernelWork | None = None
    alone_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Waiters:
    """The ops of a step that wait for others.

    ``on_kernels`` wait for kernels and for earlier steps of the same queue, ``on_transfers`` for transfers, and
    ``polling`` look for the flags of those. Groups of a persistent kernel are not ``queued``: its SMs go through them
    in order. Tile by tile a store waits for the kernel ``stored_by``, and not for the end of it.
    """

    on_kernels: Sequence[int]
    on_transfers: Sequence[int] = ()
    polling: Sequence[int] = ()
    queued: bool = True
    stored_by: str = ""


@dataclass(slots=True)
class Persistent:
    """The persistent kernel of one stream of one rank, while its groups are lowered.

    ``parts`` are the shares of its groups by name; ``units`` are all units so far in order, each as the op that begins
    it and its own.
    """

    whole: KernelWork
    launch: range
    parts: dict[str, KernelWork]
    units: list[tuple[int, int]]


@dataclass(slots=True)
class OneKernel:
    """Ops of plans that are one kernel at each rank: launches, and reads of flags.

    ``ready`` are the ops after which copies may begin, by rank and by the offset of a peer that must be ready for them.
    ``seen`` are done when a rank has seen that others are done, by rank and ops.
    """

    launches: dict[int, int] = field(default_factory=dict)
    ready: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    seen: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """The call of a library at one rank: ``work`` are its channels, and ``done`` is its end.

    ``begin`` calls it, until the first step has been lowered, which waits there for what comes before.
    """

    begin: range
    work: range
    done: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """What steps of one plan wait for in another of the same program: ``ops`` by rank.

    To wait for what ``runs_before``, kernels of the same stream, costs nothing; all else is waited for as for copies.
    """

    ops: tuple[tuple[int, ...], ...]
    runs_before: bool


@dataclass(slots=True)
class Lowering:
    """State while a plan is lowered: the ops of each step, and the streams of each rank.

    ``gates`` are ops at which a plan begins that are in no step: launches of kernels that many steps share, and flags
    by which a rank says that it has begun. ``foreign`` is what steps wait for in other plans, by the name for it.
    """

    scenario: OpCase
    schedule: OpPlan
    unit_bytes: int
    builder: ProgramBuilder
    machine: Machine
    ideal: Idealization
    period: int  # ranks that are lowered; the others repeat them
    hits: Hits
    step_ops: dict[tuple[int, str], StepOps] = field(default_factory=dict)
    waiters: dict[tuple[int, str], Waiters] = field(default_factory=dict)
    pairs: dict[tuple[int, str], Transfer] = field(default_factory=dict)  # the other copy of the same command
    streams: dict[tuple[int, int], Persistent] = field(default_factory=dict)  # by rank and stream
    shared: dict[int, Mapping[str, KernelWork]] = field(default_factory=dict)  # of groups that share SMs, by rank
    monitored: dict[int, int] = field(default_factory=dict)  # entries of the monitor that are taken, by rank
    writes: Mapping[tuple[int, str], Sequence[Write]] = field(default_factory=dict)  # transfers taken from a profile
    kernel_names: dict[int, frozenset[str]] = field(default_factory=dict)  # of groups and sums, by rank
    groups_busy: dict[int, int] = field(default_factory=dict)  # the work-group that takes the next part, by rank
    num_sharing: dict[int, int] = field(default_factory=dict)  # that have SMs side by side, by rank
    issues: dict[tuple[int, frozenset[str]], list[range]] = field(default_factory=dict)  # by rank and waits
    kernels: OneKernel = field(default_factory=OneKernel)
    calls: dict[int, LibraryCall] = field(default_factory=dict)  # of the library that moves the data, by rank
    sums: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # units of sums inside kernels, by rank
    stored_by: dict[int, Mapping[str, TileGroup | Reduction]] = field(
        default_factory=dict
    )  # transfers by tiles, by rank
    pulled_by: dict[int, Mapping[str, TileGroup]] = field(default_factory=dict)  # gets by tiles, by rank
    pulls: dict[int, list[int]] = field(default_factory=dict)  # for a unit, by the op of the unit
    sent_units: dict[int, int] = field(default_factory=dict)  # that a tile has stored or pulled so far, by its op
    stores: dict[int, list[int]] = field(default_factory=dict)  # from inside a unit, by the op of the unit
    counts: dict[int, int] = field(default_factory=dict)  # when the host knows what is to be copied, by rank
    num_issued: dict[int, int] = field(default_factory=dict)  # kernels and copies that the host issued, by rank
    gates: dict[int, list[int]] = field(default_factory=dict)  # by rank
    foreign: Mapping[str, Foreign] = field(default_factory=dict)
    alike: dict[tuple[object, ...], tuple[Stage, ...]] = field(default_factory=dict)  # stages by what decides them
    units_alike: dict[tuple[object, ...], Runs] = field(default_factory=dict)  # work units, of all parts of a plan
    sent: dict[tuple[int, str], int] = field(default_factory=dict)  # ends when the bytes of a channel's copy have left
    rates: dict[tuple[int, int], int] = field(default_factory=dict)  # bytes per s of a channel's copy, by its ends

    @property
    def alone(self) -> bool:
        """Whether there is a collective and nothing else, and all of it is simulated."""
        return self.scenario.shape.is_collective and not self.writes

    @property
    def one_kernel(self) -> bool:
        """Whether the whole plan is one kernel at each rank: a collective alone, by SMs."""
        return not self.writes and is_one_kernel(self.scenario, self.schedule)

    @property
    def looks_for_parts(self) -> bool:
        """Whether all sums of the plan are one kernel at each rank, and all of it is simulated."""
        return self.alone and looks_for_parts(self.scenario, self.schedule)

    @property
    def by_library(self) -> bool:
        """Whether a call of the library moves the data."""
        return self.schedule.engine.by_library

    @property
    def by_tiles(self) -> bool:
        """Whether units of kernels store what they have computed, or pull what they read."""
        return self.schedule.engine.by_tiles

    @property
    def by_sms(self) -> bool:
        """Whether SMs move the data."""
        return self.schedule.engine.kind is EngineKind.SM

    def sms_move(self, rank: int, step: Transfer) -> bool:
        """Whether SMs move ``step`` of ``rank``."""
        return self.scenario.mover(self.schedule.engine, step, rank) is EngineKind.SM

    def prepares(self, step: Transfer) -> bool:
        """Whether a copy in a channel is set up while an engine still moves the one before."""
        return not self.by_sms and self.schedule.engine.mode is EngineMode.CHANNELS and step.lane is not None

    def setup(self, ticks: int) -> int:
        """A fixed cost, unless it is idealised away."""
        return 0 if Idealization.FREE_LAUNCH in self.ideal else ticks

    def issued(self, rank: int) -> int:
        """Count one more kernel or copy that the host of ``rank`` issues; return when it has.

        A graph is issued once.
        """
        if self.schedule.tactics.launch is LaunchMode.GRAPH:
            return 0
        self.num_issued[rank] = self.num_issued.get(rank, 0) + 1
        return self.setup(self.num_issued[rank] * self.scenario.gpu.launch.host_ticks)

    def gate(self, rank: int, ops: Iterable[int]) -> None:
        """Take note that the plan begins at ``rank`` with ``ops`` too."""
        self.gates.setdefault(rank, []).extend(ops)

    def units(self, num_bytes: int) -> int:
        """Units of the simulation in ``num_bytes``."""
        return -(-num_bytes // self.unit_bytes)

    def register(self, rank: int, step: Step, work: range, waiters: Waiters) -> StepOps:
        """Register the ops of a step; several are joined so that waiting for them is one edge."""
        done = work.start if len(work) == 1 else self.join(rank, step.name, work)
        ops = StepOps(rank, step, work, done)
        self.step_ops[rank, step.name], self.waiters[rank, step.name] = ops, waiters
        return ops

    def register_kernel(
        self, rank: int, step: Step, work: range, waiters: Waiters, kernel: KernelWork, alone_ticks: int
    ) -> None:
        """Register a step that computes."""
        ops = self.register(rank, step, work, waiters)
        self.step_ops[rank, step.name] = replace(ops, kernel=kernel, alone_ticks=alone_ticks)

    def join(self, rank: int, name: str, ops: Iterable[int]) -> int:
        """An op that is done when ``ops`` are."""
        from_here = self.builder.op(rank, OpSpec(OpKind.JOIN, name))
        self.builder.after(from_here, ops)
        return from_here.start

    def flag_hop(self, memory: Memory, name: str, rank: int) -> Hop:
        """The channel of the memory of ``rank`` in which the flag ``name`` lies."""
        return memory.hbm + crc32(name.encode()) % memory.channels, rank

    def spread(self, flow: Flow) -> tuple[Flow, ...]:
        """``flow`` over the channels of the memories that it passes; as it is where memory is one server."""
        count = min(self.machine.memory[0].channels, flow.units)
        if count <= 1:
            return (flow,)
        memories = {memory.hbm for memory in self.machine.memory}
        return tuple(
            Flow(
                route=tuple((server + channel * (server in memories), rank) for server, rank in flow.route),
                units=flow.units // count + (channel < flow.units % count),
                gap_ticks=flow.gap_ticks * count,
                offset_ticks=flow.offset_ticks + channel * flow.gap_ticks,
                traffic=flow.traffic,
                window_units=-(-flow.window_units // count),
            )
            for channel in range(count)
        )


def moved_bytes(scenario: OpCase, region: Region) -> int:
    """Size of a region of the tensor that crosses the fabric."""
    moved = scenario.shape.moved
    assert moved is not None, "a checked plan moves only what its workload moves"
    return moved.dtype.bytes_of(region.elements)


def split_evenly(total: int, num_workers: int) -> list[tuple[int, int]]:
    """Split ``total`` evenly: (number of workers, share of each), without shares of zero unless all are zero."""
    share, extra = divmod(total, num_workers)
    shares = [(extra, share + 1), (num_workers - extra, share)]
    return [(count, units) for count, units in shares if count and units] or [(1, 0)]


def split_evenly_together(
    totals: Sequence[int], num_workers: int, *, waves: int = 1
) -> list[tuple[int, tuple[int, ...]]]:
    """Split several totals evenly among the same workers: runs of workers with equal shares.

    Remainders come first. Where workers come in ``waves``, a total of fewer than there are workers is spread over all
    of them: the first waves would else have all of the traffic to memory, and wait for it.
    """
    if waves > 1 and any(0 < total < num_workers for total in totals):
        bits, least = 1 << np.arange(len(totals)), np.array(totals) // num_workers
        up_to = np.array([totals]).T * np.arange(num_workers + 1) // num_workers  # [totals, workers + 1]
        more = bits @ (np.diff(up_to) - least[:, None])  # [workers] a bit for each total that gives one more
        first = np.flatnonzero(np.diff(more, prepend=-1))  # [runs] first worker of each
        counts = np.diff(first, append=num_workers)
        shares = {each: tuple((least + (each & bits > 0)).tolist()) for each in np.unique(more).tolist()}
        return list(zip(counts.tolist(), map(shares.__getitem__, more[first].tolist()), strict=True))
    edges = sorted({0, num_workers} | {total % num_workers for total in totals})
    runs = pairwise(edges)
    return [(high - low, tuple(t // num_workers + (low < t % num_workers) for t in totals)) for low, high in runs]


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
    if step.lane is not None or step.peer_after:
        return []
    return state.issues.setdefault((rank, frozenset(step.after)), [])


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
