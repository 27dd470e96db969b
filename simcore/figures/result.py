"""The result of a simulation: times, traffic and losses, and the Timeline behind them."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, JsonObject, Network, OpPlan
from ...compiler.text.records import Tabular
from ..program.arrays import FloatArray, Int64Array
from ..program.program import RunOutcome
from .critical_path import CriticalOp


class LoadKind(Enum):
    """Kind of what carries a load; the value is the word for reading."""

    LINK = "link"
    HBM = "hbm"


@dataclass(frozen=True, slots=True)
class Load:
    """Busy time of one direction of a link, or of the HBM of one rank, in each bucket of time.

    ``source`` and ``target`` are nodes of the network: a rank, or a switch from ``num_ranks`` on; for HBM both are the
    rank. ``name`` is the name of the edge (``link+1``, ``up``), or ``hbm``. ``busy_ticks`` is the service time of each
    bucket in ticks, summed over ``num_servers`` channels that serve side by side; a channel serves a unit in
    ``service_ticks``.
    """

    kind: LoadKind
    name: str
    source: int
    target: int
    service_ticks: int
    num_servers: int
    busy_ticks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads in buckets of ``[0, span_ticks)`` that are equally long, to the tick.

    ``each`` has the links and memories of the first ``period`` ranks, which the others repeat; those that carried
    nothing are left out. Rows of arrays (``[L, B]``) are in its order. A unit is ``unit_bytes``.
    """

    span_ticks: int
    num_buckets: int
    unit_bytes: int
    period: int
    each: tuple[Load, ...]

    @property
    def edges_ticks(self) -> Int64Array:
        """[B + 1] begin of each bucket, and the end of the last."""
        return bucket_edges(self.span_ticks, self.num_buckets)

    @property
    def busy_ticks(self) -> Int64Array:
        """[L, B] service time, over all channels of a memory."""
        shape = len(self.each), self.num_buckets
        return np.array([load.busy_ticks for load in self.each], np.int64).reshape(shape)

    @property
    def num_bytes(self) -> FloatArray:
        """[L, B] bytes that passed; their sums over time are whole units."""
        return self.busy_ticks * (self.unit_bytes / self._column([load.service_ticks for load in self.each]))

    @property
    def capacity_bytes_per_s(self) -> FloatArray:
        """[L] bytes per second that can pass at most."""
        ticks = np.array([load.service_ticks / load.num_servers for load in self.each])
        return self.unit_bytes * TICKS_PER_SECOND / ticks

    @property
    def utilization(self) -> FloatArray:
        """[L, B] load over capacity, from 0 to 1; 0 in a bucket without length."""
        room = np.diff(self.edges_ticks) * self._column([load.num_servers for load in self.each])
        return self.busy_ticks / np.maximum(1, room)

    def memory(self, rank: int) -> int | None:
        """Row of the HBM of any rank; None if it was idle."""
        wanted = LoadKind.HBM, rank % self.period
        return next((row for row, load in enumerate(self.each) if (load.kind, load.source) == wanted), None)

    def links(self, network: Network) -> dict[tuple[int, int], int]:
        """Rows of the links of all ranks by their ends, idle ones left out.

        Links that a shift of ranks by ``period`` maps onto each other share a row.
        """
        shifts = range(0, network.num_ranks, self.period)
        rows = [(load, row) for row, load in enumerate(self.each) if load.kind is LoadKind.LINK]
        return {network.shifted_ends((load.source, load.target), by): row for load, row in rows for by in shifts}

    @staticmethod
    def _column(values: list[int]) -> Int64Array:
        return np.array(values, np.int64).reshape(-1, 1)


NO_LOADS = Loads(0, 0, 1, 1, ())


def bucket_edges(span_ticks: int, num_buckets: int) -> Int64Array:
    """[B + 1] begin of each bucket of ``[0, span_ticks)``, and the end of the last."""
    return np.array([span_ticks * place // max(1, num_buckets) for place in range(num_buckets + 1)], np.int64)


class IntervalKind(Enum):
    """Kind of work in an interval of the timeline."""

    COMPUTE = "compute"
    COMM = "comm"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Interval:
    """One step of the plan at one rank. ``lane`` is the stream or engine it ran on, for instance ``dma 3``."""

    rank: int
    lane: str
    name: str
    kind: IntervalKind
    start_ticks: int
    end_ticks: int

    @property
    def ticks(self) -> int:
        """Duration."""
        return self.end_ticks - self.start_ticks

    def document(self) -> JsonObject:
        """Return the step as JSON, times in us."""
        begin, end = self.start_ticks / TICKS_PER_US, self.end_ticks / TICKS_PER_US
        place = {"rank": self.rank, "lane": self.lane, "name": self.name, "kind": self.kind.value}
        return {**place, "start_us": begin, "end_us": end, "us": end - begin}


@dataclass(frozen=True, slots=True, repr=False)
class Timeline(Tabular):
    """Intervals of the first ``period`` ranks, which the others repeat; ``of_rank`` returns those of any rank."""

    num_ranks: int
    makespan_ticks: int
    intervals: tuple[Interval, ...]
    period: int

    ROWS: ClassVar[str] = "intervals"

    @property
    def summary(self) -> str:
        """The time, and the number of steps."""
        steps = f"{len(self.intervals):,} steps of {self.period} of {self.num_ranks} ranks"
        return f"{self.makespan_ticks / TICKS_PER_US:.1f} us, {steps}"

    def document(self) -> JsonObject:
        """Return the timeline as JSON, times in us."""
        return {
            "ranks": self.num_ranks,
            "makespan_us": self.makespan_ticks / TICKS_PER_US,
            "intervals": [each.document() for each in self.intervals],
        }

    def of_rank(self, rank: int) -> tuple[Interval, ...]:
        """Intervals of one rank, under the number of the one that it repeats."""
        if not 0 <= rank < self.num_ranks:
            raise ValueError(f"rank {rank} of {self.num_ranks}")
        return tuple(interval for interval in self.intervals if interval.rank == rank % self.period)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one rank, the busiest; ``link_bytes`` counts a byte once for each link that it passes."""

    hbm_read_bytes: int
    hbm_write_bytes: int
    l2_bytes: int
    link_bytes: int
    flag_reads: int
    flag_bytes: int


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Losses between the lower bound and the makespan; ``bound + losses = makespan`` exactly, losses may be negative.

    All runs behind it are at the granularity ``unit_bytes``, which may be coarser than that of the Result, and have
    ``layers`` layers. Times are ticks of 10 fs.
    """

    unit_bytes: int
    makespan_ticks: int
    launch_sync_ticks: int
    contention_ticks: int
    decomposition_ticks: int
    exposed_ticks: int
    bound_ticks: int
    layers: int = 1

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """The bound, each loss and the makespan, in ticks, with their names."""
        return (
            ("lower bound", self.bound_ticks),
            ("exposed communication, slack", self.exposed_ticks),
            ("decomposition", self.decomposition_ticks),
            ("contention", self.contention_ticks),
            ("launch and synchronization", self.launch_sync_ticks),
            ("makespan", self.makespan_ticks),
        )


@dataclass(frozen=True, slots=True)
class Utilization:
    """Share of the makespan that each resource is busy, worst rank; ``noc`` is 0 where the profile has none."""

    sms: float
    engines: float
    hbm: float
    l2: float
    links: float
    noc: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Busy time of one kind of server at the rank where it was busiest, by class of traffic.

    ``wait_ticks`` is how long a unit queued there on average; None if the run did not observe it.
    """

    name: str
    rank: int
    compute_ticks: int
    comm_ticks: int
    flags_ticks: int
    units: int
    wait_ticks: float | None

    @property
    def busy_ticks(self) -> int:
        """Time in service."""
        return self.compute_ticks + self.comm_ticks + self.flags_ticks


@dataclass(frozen=True, slots=True)
class OpResult:
    """One op at the rank that is busy longest with it.

    It lasts from the begin of its first step to the end of its last. ``exposed_ticks`` is how long in all its copies
    run beside no kernel of the workload.
    """

    name: str
    begin_ticks: int
    end_ticks: int
    compute_ticks: int
    comm_ticks: int
    exposed_ticks: int

    @property
    def makespan_ticks(self) -> int:
        """From its begin to its end."""
        return self.end_ticks - self.begin_ticks


@dataclass(frozen=True, slots=True, repr=False)
class Result(Tabular):
    """The simulation of one plan. Times are ticks of 10 fs, sizes bytes.

    ``schedule`` is the plan of one op; for several parts it has only the name, engines, SMs and memory, and no steps.
    ``compute_ticks`` and ``comm_ticks`` are busy times of kernels and of transfers (union of intervals, worst rank).
    ``dil``, the decomposition loss, is the time of the parts, each alone, over the time of the whole kernel. ``cil``,
    the contention loss, is the time of overlapped kernels over their time with servers of their own; None if there
    is nothing to compare. ``line_hops`` were simulated and stand for ``line_hops_represented``; ``not_alike`` says why
    more than one rank was simulated. ``deadlock`` is the circle of waits, sentence by sentence, if the outcome is
    DEADLOCK. ``loads`` are those of links and memories over time. ``ops`` are in the order in which they are issued.

    All figures are of the first ``num_simulated`` of all ``layers``. Each further layer takes ``period_ticks``, which
    is exact unless ``is_estimate``: it is then the average of the last simulated layers. If all layers were simulated,
    ``period_ticks`` is the time from one to the next, None if they do not repeat to the tick.
    """

    scenario: str
    schedule: OpPlan
    unit_bytes: int
    line_bytes: int
    clock_hz: int
    outcome: RunOutcome
    makespan_ticks: int
    compute_ticks: int
    comm_ticks: int
    union_ticks: int
    dil: float | None
    cil: float | None
    waterfall: Waterfall | None
    line_hops: int
    line_hops_represented: int
    traffic: Traffic
    utilization: Utilization
    num_ranks: int
    ranks_simulated: int
    not_alike: str | None
    core: str
    timeline: Timeline
    servers: tuple[ServerLoad, ...]
    critical_path: tuple[CriticalOp, ...]
    deadlock: tuple[str, ...]
    loads: Loads = NO_LOADS
    ops: tuple[OpResult, ...] = ()
    layers: int = 1
    num_simulated: int = 1
    period_ticks: int | None = None
    is_estimate: bool = False

    ROWS: ClassVar[str] = "times"

    @property
    def summary(self) -> str:
        """What was simulated, how long it takes, and how much communication is hidden."""
        hidden = self.overlap_efficiency
        said = "" if hidden is None else f", {hidden:.0%} of the communication hidden"
        time = f"{self.total_ticks / TICKS_PER_US:.1f} us"
        done = time if self.outcome is RunOutcome.DONE else f"{self.outcome.value} after {time}"
        return f"{self.scenario} by {self.schedule.expression}: {done}{said}"

    def document(self) -> JsonObject:
        """Return times, losses and the timeline as JSON, under the names of ``magus simulate --json``; times in us."""
        losses = () if self.waterfall is None else self.waterfall.rows
        named = (("kernels", self.compute_ticks), ("transfers", self.comm_ticks), ("exposed", self.exposed_ticks))
        rows = (*named, *((f"loss: {name}", ticks) for name, ticks in losses[1:-1]), ("makespan", self.makespan_ticks))
        return {
            "scenario": self.scenario,
            "schedule": self.schedule.expression,
            "granularity": self.granularity,
            "outcome": self.outcome.value,
            "makespan_us": self.makespan_us,
            "overlap_efficiency": self.overlap_efficiency,
            "times": [{"what": name, "us": ticks / TICKS_PER_US} for name, ticks in rows],
            "intervals": self.timeline.document()["intervals"],
        }

    def op(self, name: str) -> OpResult:
        """Return the result of the op of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {op.name: op for op in self.ops}[name]

    @property
    def total_ticks(self) -> int:
        """The time of all layers, simulated or repeated."""
        return self.makespan_ticks + (self.layers - self.num_simulated) * (self.period_ticks or 0)

    @property
    def granularity(self) -> str:
        """``line`` or ``packet``."""
        return "line" if self.unit_bytes == self.line_bytes else "packet"

    @property
    def makespan_us(self) -> float:
        """Makespan in us."""
        return self.makespan_ticks / TICKS_PER_US

    @property
    def makespan_cycles(self) -> int:
        """Makespan in cycles of the GPU's nominal clock, rounded up, for reading."""
        return -(-self.makespan_ticks * self.clock_hz // TICKS_PER_SECOND)

    @property
    def exposed_ticks(self) -> int:
        """Makespan without the busy time of kernels: communication, launch and waiting that nothing hides."""
        return self.makespan_ticks - self.compute_ticks

    @property
    def overlap_efficiency(self) -> float | None:
        """Hidden share of the communication, (compute + comm - union) / comm; None without communication."""
        if self.comm_ticks == 0:
            return None
        return (self.compute_ticks + self.comm_ticks - self.union_ticks) / self.comm_ticks
