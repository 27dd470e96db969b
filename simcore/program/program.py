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

from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

NONE = -1
"""No pool, no next hop, no local id."""


def ints(values: Sequence[int] | Sequence[tuple[int, ...]]) -> Int64Array:
    """An int64 array, of zero length too.

    Raises
    ------
    ValueError
        If not all values are whole numbers, or the rows differ in length.
    OverflowError
        If one does not fit.
    """
    with suppress(TypeError):  # rows, and what is no whole number
        return np.array(array("q", cast("Sequence[int]", values)))
    found = np.array(values)
    if found.size and found.dtype.kind not in "iub":
        # Past 64 bits numpy keeps objects, and floats where numbers of 64 bits without a sign stand beside others.
        if all(isinstance(value, int) for value in np.array(values, object).flat):
            raise OverflowError
        raise ValueError(f"whole numbers are needed here, not {found.dtype} as in {found.flat[0]!r}")
    if found.dtype.kind == "u" and int(found.max()) > np.iinfo(np.int64).max:
        raise OverflowError
    return found.astype(np.int64, copy=False)


def starts(counts: Int64Array) -> Int64Array:
    """Pointers to the first entry of each row, and one past the last row."""
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def take_rows(pointers: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Take ``rows`` of a table held as pointers: new pointers, and for each new entry its index in the old table."""
    lengths = pointers[rows + 1] - pointers[rows]
    taken = starts(lengths)
    return taken, np.arange(taken[-1]) + np.repeat(pointers[rows] - taken[:-1], lengths)


def grouped(groups: Int64Array, num_groups: int) -> Int64Array:
    """Return the indices of ``groups`` by group, ascending in each; numbers of 16 bits are sorted in linear time."""
    few = num_groups <= np.iinfo(np.uint16).max
    return np.argsort(groups.astype(np.uint16) if few else groups, kind="stable")


def dependencies(sources: Int64Array, waiters: Int64Array, num_ops: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Edges as counts of waits [O], and as waiters by source: pointers [O + 1] and ops [E]."""
    check_named(num_ops, sources, waiters)
    by_source = np.argsort(sources, kind="stable")
    next_ptr = starts(np.bincount(sources, minlength=num_ops))
    return np.bincount(waiters, minlength=num_ops), next_ptr, waiters[by_source]


def check_named(num_ops: int, *ends: Int64Array) -> None:
    """Check that the ends of edges name ops that there are.

    Raises
    ------
    ValueError
        If one does not.
    """
    for each in ends:
        if len(each) and not 0 <= each.min() <= each.max() < num_ops:
            raise ValueError(f"a dependency names op {_outside(each, num_ops)}, but only {num_ops} ops are defined")


def _outside(ops: Int64Array, num_ops: int) -> int:
    return int(ops[(ops < 0) | (ops >= num_ops)][0])


def order_by(*keys: Int64Array) -> Int64Array:
    """Return the indices of ``keys`` in their order, the first of which counts first; of equals in that of indices.

    Where all of them and the index fit a number, as nearly always, those numbers are sorted: numpy does that several
    times as fast as it finds an order.
    """
    indices = np.arange(len(keys[0]))
    together, bits = np.zeros(len(indices), np.int64), 0
    for key in (*keys, indices):
        least = int(key.min(initial=0))
        width = (int(key.max(initial=0)) - least).bit_length()
        bits += width
        if bits > 63:
            return np.lexsort(keys[::-1])  # where the last key counts first
        together = (together << width) | (key - least)
    together.sort()
    return together & ((1 << width) - 1)


def tie_order(
    local_id: Int64Array, flow_of_op: Int64Array, hop_ptr: Int64Array, ranks_ahead: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Number the flow-hops in the order in which simultaneous units are served.

    Takes [F] local id and flow within the op, [F + 1] pointers to hops in route order, and [H] in that order how many
    ranks the op is ahead of the server, around. Returns [F] first hops, and [H] each: index in route order, flow,
    position in the route and next hop.
    """
    num_hops, lengths = int(hop_ptr[-1]), np.diff(hop_ptr)
    flow = np.repeat(np.arange(len(lengths)), lengths)
    index = np.arange(num_hops) - hop_ptr[flow]
    order = order_by(local_id[flow], flow_of_op[flow], index, ranks_ahead)
    number = np.empty(num_hops + 1, np.int64)
    number[order] = np.arange(num_hops)
    number[num_hops] = NONE
    following = np.where(index == lengths[flow] - 1, NONE, number[1:])
    return number[hop_ptr[:-1]], order, flow[order], index[order], following[order]


def previous_hops(hop_next: Int64Array) -> Int64Array:
    """[H] the hop a unit comes from, NONE where it is injected."""
    previous = np.full(len(hop_next), NONE, np.int64)
    inner = np.flatnonzero(hop_next != NONE)
    previous[hop_next[inner]] = inner
    return previous


def buffers_left(hop_buffer: Int64Array, hop_next: Int64Array) -> Int64Array:
    """[H] the buffer a unit comes through, which it leaves when it is served; NONE without one."""
    left: Int64Array = np.append(hop_buffer, NONE)[previous_hops(hop_next)]  # NONE is -1, the last
    return left


def buffer_feeders(num_buffers: int, hop_buffer: Int64Array, hop_server: Int64Array) -> Int64Array:
    """[B] the server that fills each buffer."""
    feeders = np.full(num_buffers, NONE, np.int64)
    buffered = hop_buffer != NONE
    feeders[hop_buffer[buffered]] = hop_server[buffered]
    return feeders


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


@dataclass(frozen=True, slots=True)
class OpSpec:
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
        return int((self.flow_units * self.flow_num_hops).sum())

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
    """Results of a core about units; those about ops are in its ``Control``."""

    flow_last: Int64Array  # [F] as in Run
    server_free: Int64Array  # [S] as in Run
    line_hops: int
    windows: int
    cancelled: bool  # stopped by the watch
    server_blocked: Int64Array | None = None  # [S] as in Run, None if no server is
    hop_wait_ticks: FloatArray | None = None  # [H] as in Run
