"""The Program: a scenario under a schedule, as arrays the simulator runs; ``builder`` makes one.

Axes, named once: ``S`` server instances, ``B`` buffers, ``P`` pool instances, ``O`` ops, ``E`` dependency edges, ``G``
flag edges, ``T`` stages, ``F`` flows, ``H`` flow-hops. A server or pool is declared once and stands on every simulated
rank; the instance of declared number ``k`` on rank ``r`` is ``k * ranks_simulated + r``. All times are ticks of 10 fs.

The machine in a few lines:

- A *server* is FIFO. A unit (a cache line or a packet) that arrives at ``a`` leaves at
  ``max(a, previous departure) + service`` and reaches its next hop, or is delivered, ``latency`` later.
- An *op* waits for other ops and for its release time, queues for a slot of its pool, is set up, runs its stages one
  after the other and gives the slot back. A pool serves those of the least *priority* first, and of these whoever was
  ready first.
- A *stage* injects the units of its flows at a fixed gap and ends when all are delivered and its hold time is over.
- A *polling* stage then begins again, unless all flags of its op were set before; an op sets its flags when it is done.
- A flow with a *window* has at most so many units under way: the next is injected when one is delivered.
- A *buffer* has room for so many units that come from one server to another. A server begins to serve a unit when there
  is room for it where it goes, and meanwhile serves nothing else; there is room again ``credit`` after it left there.

Units that arrive at a server at the same time are served by (local id of the op, flow of the op, hop, rank, unit),
where ranks count from that of the server on, around. So a shift of all ranks changes no order, and neither does the
order of construction: this is what lets one rank be simulated for all that are alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from .arrays import NONE, BoolArray, FloatArray, Int64Array

PACKET_BYTES = 1024
"""The unit of a simulation in packets."""

MAX_HORIZON_TICKS = 1 << 61
"""No program may be able to run for longer: every sum of times then fits an int64."""

PRIORITIES = range(-4, 4)
"""Of ops in the queue of their pool, the least first; as so many horizons, with a time added, they fit an int64."""


class TrafficClass(IntEnum):
    """Class of traffic of a flow."""

    COMPUTE = 0
    COMM = 1
    FLAGS = 2


class OpKind(IntEnum):
    """Kind of work of an op; TRAFFIC is that of other programs, and no plan ends with it."""

    LAUNCH = 0
    TILE = 1
    TRANSFER = 2
    REDUCE = 3
    JOIN = 4
    TRAFFIC = 5


class Flow(NamedTuple):
    """``units`` units over ``route``: unit ``i`` enters the first hop at ``offset + i * gap`` after the stage begins.

    ``route`` lists (server as ``ProgramBuilder.server`` returned it, rank); the rank is taken modulo the number of
    ranks. With a window of ``w`` units, unit ``i`` follows the one before by ``gap`` at least, and waits until unit
    ``i - w`` is delivered; 0 is no limit.
    """

    route: tuple[tuple[int, int], ...]
    units: int
    gap_ticks: int = 0
    offset_ticks: int = 0
    traffic: TrafficClass = TrafficClass.COMPUTE
    window_units: int = 0


class Stage(NamedTuple):
    """Lasts ``hold_ticks`` and until every unit of every flow is delivered, whichever is later.

    One that ``polls`` is repeated until it ends later than the last flag of its op was set.
    """

    hold_ticks: int
    flows: tuple[Flow, ...] = ()
    polls: bool = False


class OpSpec(NamedTuple):
    """Waits for a slot of ``pool`` (declared number, None without one), is set up, and runs ``stages`` in order.

    ``priority`` is one of ``PRIORITIES``; whoever queues for a slot with a lower number is served before.
    """

    kind: OpKind
    label: str
    stages: Sequence[Stage] = ()
    pool: int | None = None
    setup_ticks: int = 0
    release_ticks: int = 0
    priority: int = 0


@dataclass(frozen=True)
class Program:
    """The arrays that the simulator runs; made by ``ProgramBuilder.build``."""

    num_ranks: int  # ranks represented
    ranks_simulated: int  # those described; the others repeat them
    unit_bytes: int

    server_names: tuple[str, ...]  # by declared number
    service_ticks: Int64Array  # [S] per unit, >= 1
    latency_ticks: Int64Array  # [S]

    buffer_units: Int64Array  # [B] room
    buffer_credit_ticks: Int64Array  # [B] from the departure of a unit until its room can be used

    pool_names: tuple[str, ...]  # by declared number
    pool_slots: Int64Array  # [P]

    labels: tuple[str, ...]
    op_kind: Int64Array  # [O] OpKind
    op_label_idx: Int64Array  # [O] into labels
    op_rank: Int64Array  # [O]
    op_local_id: Int64Array  # [O] position in the rank's program; NONE for a join put in by the builder
    op_pool: Int64Array  # [O] pool instance or NONE
    op_setup_ticks: Int64Array  # [O] from start to the first stage
    op_release_ticks: Int64Array  # [O] not ready before
    op_priority: Int64Array  # [O] in the queue of the pool, the least first
    op_num_waits: Int64Array  # [O] edges into the op
    op_next_ptr: Int64Array  # [O + 1] into op_next
    op_next: Int64Array  # [E] ops that wait for the op
    op_num_flags: Int64Array  # [O] flags its polling stage looks for
    op_sets_ptr: Int64Array  # [O + 1] into op_sets
    op_sets: Int64Array  # [G] ops that poll for the flag the op sets when it is done
    op_stage_ptr: Int64Array  # [O + 1] stages of the op

    stage_op: Int64Array  # [T]
    stage_hold_ticks: Int64Array  # [T]
    stage_polls: BoolArray  # [T] whether it is repeated until the flags are set
    stage_flow_ptr: Int64Array  # [T + 1] flows of the stage

    flow_stage: Int64Array  # [F]
    flow_units: Int64Array  # [F]
    flow_gap_ticks: Int64Array  # [F]
    flow_offset_ticks: Int64Array  # [F]
    flow_window_units: Int64Array  # [F] most units under way, 0 for no limit
    flow_traffic: Int64Array  # [F] TrafficClass
    flow_first_hop: Int64Array  # [F]
    flow_num_hops: Int64Array  # [F]

    hop_server: Int64Array  # [H] server instance; hops are numbered in the order in which ties are served
    hop_flow: Int64Array  # [H]
    hop_index: Int64Array  # [H] position in the route
    hop_next: Int64Array  # [H] next hop of the flow or NONE
    hop_buffer: Int64Array  # [H] buffer of the next hop's server, NONE without one

    @property
    def folded(self) -> bool:
        """Whether the ranks described stand for others too."""
        return self.ranks_simulated < self.num_ranks

    @property
    def num_servers(self) -> int:
        """Server instances, S."""
        return len(self.service_ticks)

    @property
    def num_ops(self) -> int:
        """Ops, O, joins included."""
        return len(self.op_kind)

    @property
    def num_stages(self) -> int:
        """Stages, T."""
        return len(self.stage_op)

    @property
    def num_flows(self) -> int:
        """Flows, F."""
        return len(self.flow_units)

    @property
    def num_hops(self) -> int:
        """Flow-hops, H."""
        return len(self.hop_server)

    @property
    def num_line_hops(self) -> int:
        """Units times servers they pass: the work of simulating every unit, each poll made once."""
        return int(self.flow_units @ self.flow_num_hops)

    def way(self, flow: int) -> Iterator[int]:
        """Yield the flow-hops of a flow in the order of its route."""
        hop = int(self.flow_first_hop[flow])
        while hop != NONE:
            yield hop
            hop = int(self.hop_next[hop])

    def server_instance(self, server: int, rank: int) -> int:
        """Index into the [S] arrays of a declared server on a simulated rank."""
        return server * self.ranks_simulated + rank % self.ranks_simulated

    def server_name(self, instance: int) -> str:
        """Name and rank of a server instance, for reading."""
        server, rank = divmod(instance, self.ranks_simulated)
        return f"{self.server_names[server]}[{rank}]"

    def pool_name(self, instance: int) -> str:
        """Name and rank of a pool instance, for reading."""
        pool, rank = divmod(instance, self.ranks_simulated)
        return f"{self.pool_names[pool]}[{rank}]"


NEVER = -1
"""Time of something that did not happen."""


class WatchFn(Protocol):
    """Called now and then with the line-hops simulated and the bytes held so far; the run stops where it says so."""

    def __call__(self, line_hops: int, held_bytes: int = 0, /) -> bool:
        """Whether to stop."""


class RunOutcome(Enum):
    """End of a run; the value is a sentence, with the remedy."""

    DONE = "every op finished"
    DEADLOCK = (
        "some ops can never finish: look for polls whose flag waits for them, and for servers that wait for room in "
        "each other's buffers"
    )
    CANCELLED = "stopped on request before the end: the times found so far are exact, the rest is missing"
    TIME = (
        "stopped at the time limit: the times found so far are exact, the rest is missing; use the packet granularity, "
        "fold symmetric ranks or allow more time"
    )
    MEMORY = (
        "stopped at the memory limit: the times found so far are exact, the rest is missing; use the packet "
        "granularity, give flows a window or allow more memory"
    )


@dataclass(frozen=True)
class Run:
    """Result of a core. Axes as in ``Program``; times in ticks, NEVER where it did not happen."""

    outcome: RunOutcome
    makespan_ticks: int  # the last op of the plan to finish; 0 if none did
    op_ready: Int64Array  # [O] nothing left to wait for
    op_start: Int64Array  # [O] slot acquired
    op_done: Int64Array  # [O] last stage over, slot given back
    op_polls: Int64Array  # [O] times the op's polling stage began; 0 without one
    flow_last: Int64Array  # [F] delivery of the flow's last unit, of one that is polled in the last round delivered
    server_free: Int64Array  # [S] departure of the last unit served; 0 if none was
    server_blocked: Int64Array  # [S] hop of the unit that waits for room where it goes; NONE at the end of most runs
    server_busy_ticks: Int64Array  # [S, TrafficClass] spent serving flows that were delivered
    line_hops: int  # units served, summed over servers
    windows: int  # array passes made; 0 for cores that make none
    core: str  # which core ran; all give the same integers
    stuck: tuple[int, ...]  # ops that never finished, when the outcome is DEADLOCK
    hop_wait_ticks: FloatArray | None = None  # [H] from arrival to service, summed over units; None if not observed


@dataclass(frozen=True, slots=True)
class Served:
    """What a core has found when it ends, or is stopped; all as in ``Run``."""

    op_ready: Int64Array  # [O]
    op_start: Int64Array  # [O]
    op_done: Int64Array  # [O]
    op_polls: Int64Array  # [O]
    flow_last: Int64Array  # [F]
    server_free: Int64Array  # [S]
    server_blocked: Int64Array  # [S], those that wait for room for a while included
    line_hops: int
    windows: int
    hop_wait_ticks: FloatArray | None  # [H]
