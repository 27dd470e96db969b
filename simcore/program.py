"""The Program: a scenario under a schedule, as arrays the simulator runs, and the builder that makes one.

Axes, named once: ``S`` server instances, ``P`` pool instances, ``O`` ops, ``E`` dependency edges, ``T`` stages,
``F`` flows, ``H`` flow-hops. A server or pool is declared once and stands on every simulated rank; the instance of
declared number ``k`` on rank ``r`` is ``k * ranks_simulated + r``. All times are ticks of 10 fs.

The machine in a few lines:

- A *server* is FIFO. A unit (a cache line or a packet) that arrives at ``a`` leaves at
  ``max(a, previous departure) + service`` and reaches its next hop, or is delivered, ``latency`` later.
- An *op* waits for other ops and for its release time, queues for a slot of its pool, is set up, runs its stages one
  after the other and gives the slot back.
- A *stage* injects the units of its flows at a fixed gap and ends when all are delivered and its hold time is over.

Units that arrive at a server at the same time are served by (local id of the op, flow of the op, hop, rank, unit).
Rank comes last and the order of construction nowhere: this is what lets symmetric ranks be simulated as one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from .layout import NONE, Int64Array, dependencies, ints, take_rows, tie_order

TICKS_PER_SECOND = 10**14
MAX_HORIZON_TICKS = 1 << 61
"""No program may be able to run for longer: every sum of times then fits an int64."""


class HorizonError(ValueError):
    """The program could outlast the simulated clock."""


class TrafficClass(IntEnum):
    """What a flow carries."""

    COMPUTE = 0
    COMM = 1
    FLAGS = 2


class OpKind(IntEnum):
    """What an op stands for."""

    LAUNCH = 0
    TILE = 1
    TRANSFER = 2
    REDUCE = 3
    JOIN = 4


@dataclass(frozen=True, slots=True)
class Flow:
    """``units`` units over ``route``: unit ``i`` enters the first hop at ``offset + i * gap`` after the stage begins.

    ``route`` lists (server as ``ProgramBuilder.server`` returned it, rank); the rank is taken modulo the number of
    ranks.
    """

    route: tuple[tuple[int, int], ...]
    units: int
    gap_ticks: int = 0
    offset_ticks: int = 0
    traffic: TrafficClass = TrafficClass.COMPUTE


@dataclass(frozen=True, slots=True)
class Stage:
    """Lasts ``hold_ticks`` and until every unit of every flow is delivered, whichever is later."""

    hold_ticks: int
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True)
class Program:
    """What the simulator runs; made by ``ProgramBuilder.build``."""

    num_ranks: int  # ranks represented
    ranks_simulated: int  # 1 when folded, else num_ranks
    unit_bytes: int

    server_names: tuple[str, ...]  # by declared number
    service_ticks: Int64Array  # [S] per unit, >= 1
    latency_ticks: Int64Array  # [S]

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
    op_num_waits: Int64Array  # [O] edges into the op
    op_next_ptr: Int64Array  # [O + 1] into op_next
    op_next: Int64Array  # [E] ops that wait for the op
    op_stage_ptr: Int64Array  # [O + 1] stages of the op

    stage_op: Int64Array  # [T]
    stage_hold_ticks: Int64Array  # [T]
    stage_flow_ptr: Int64Array  # [T + 1] flows of the stage

    flow_stage: Int64Array  # [F]
    flow_units: Int64Array  # [F]
    flow_gap_ticks: Int64Array  # [F]
    flow_offset_ticks: Int64Array  # [F]
    flow_traffic: Int64Array  # [F] TrafficClass
    flow_first_hop: Int64Array  # [F]
    flow_num_hops: Int64Array  # [F]

    hop_server: Int64Array  # [H] server instance; hops are numbered in the order in which ties are served
    hop_flow: Int64Array  # [H]
    hop_index: Int64Array  # [H] position in the route
    hop_next: Int64Array  # [H] next hop of the flow or NONE

    @property
    def folded(self) -> bool:
        """Whether one rank stands for all."""
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
        """Units times servers they pass: the work of simulating every unit."""
        return int((self.flow_units * self.flow_num_hops).sum())

    def server_instance(self, server: int, rank: int) -> int:
        """Index into the [S] arrays of a declared server on a simulated rank."""
        return server * self.ranks_simulated + rank % self.ranks_simulated

    def server_name(self, instance: int) -> str:
        """Name and rank of a server instance, for reading."""
        server, rank = divmod(instance, self.ranks_simulated)
        return f"{self.server_names[server]}[{rank}]"


# An op call as described: kind, label, rank, first local id, pool, setup, release, count.
_Row = tuple[int, int, int, int, int, int, int, int]


class ProgramBuilder:
    """Collects servers, pools and ops, and lays them out as a ``Program``.

    When ``folded``, every rank does the same: only rank 0 is described and a route's rank always means rank 0. That
    is exact if each server and pool sees exactly one member of every class of flows and ops, as the caller sees to.
    """

    def __init__(self, num_ranks: int, *, folded: bool, unit_bytes: int) -> None:
        if num_ranks < 1 or unit_bytes < 1:
            raise ValueError(f"a program needs at least one rank and one byte a unit, not {num_ranks} and {unit_bytes}")
        self._num_ranks = num_ranks
        self._ranks_simulated = 1 if folded else num_ranks
        self._unit_bytes = unit_bytes
        self._servers: list[tuple[str, int, int]] = []  # name, service, latency
        self._pools: list[tuple[str, int]] = []  # name, slots
        self._label_idx: dict[str, int] = {}
        self._next_local_id = [0] * self._ranks_simulated
        self._num_ops = 0
        self._rows: list[_Row] = []
        self._stages: list[Sequence[Stage]] = []
        self._edge_from: list[int] = []
        self._edge_to: list[int] = []
        self._joins: list[tuple[list[int], list[int]]] = []  # ops, what all of them wait for

    def server(self, name: str, service_ticks: int, latency_ticks: int) -> int:
        """Declare a FIFO server that stands on every rank; returns its declared number."""
        if service_ticks < 1:
            raise ValueError(f"server {name!r} must serve a unit in at least one tick, not {service_ticks}")
        if latency_ticks < 0:
            raise ValueError(f"server {name!r} has a negative latency, {latency_ticks} ticks")
        self._servers.append((name, service_ticks, latency_ticks))
        return len(self._servers) - 1

    def pool(self, name: str, slots: int) -> int:
        """Declare a pool of slots that stands on every rank; returns its declared number."""
        if slots < 1:
            raise ValueError(f"pool {name!r} has no slots: an op that needs one would wait forever")
        self._pools.append((name, slots))
        return len(self._pools) - 1

    def op(
        self,
        rank: int,
        kind: OpKind,
        label: str,
        stages: Sequence[Stage] = (),
        *,
        pool: int | None = None,
        setup_ticks: int = 0,
        release_ticks: int = 0,
        count: int = 1,
    ) -> range:
        """Define ``count`` identical ops with consecutive local ids; returns their global ids."""
        if not 0 <= rank < self._ranks_simulated:
            raise ValueError(
                f"op {label!r} is on rank {rank}; ranks 0 to {self._ranks_simulated - 1} are described here"
            )
        if pool is not None and not 0 <= pool < len(self._pools):
            raise ValueError(f"op {label!r} queues for pool {pool}, which is not declared")
        if setup_ticks < 0 or release_ticks < 0 or count < 0:
            raise ValueError(f"op {label!r} has a negative setup, release or count")
        label_idx = self._label_idx.setdefault(label, len(self._label_idx))
        local_id = self._next_local_id[rank]
        instance = NONE if pool is None else pool * self._ranks_simulated + rank
        self._rows.append((int(kind), label_idx, rank, local_id, instance, setup_ticks, release_ticks, count))
        self._stages.append(stages)
        self._next_local_id[rank] += count
        self._num_ops += count
        return range(self._num_ops - count, self._num_ops)

    def after(self, ops: Iterable[int], wait_for: Iterable[int]) -> None:
        """Make every op of ``ops`` wait for every one of ``wait_for``.

        Where both sides are large the builder puts a JOIN op between them: n + m edges in place of n * m. Such joins
        come after all other ops in the arrays, and have no local id, pool or flows: nobody's order or times change.
        """
        waiters, sources = list(ops), list(wait_for)
        # The factor leaves small products as they are: a join is an op, dearer than a few edges.
        if len(waiters) * len(sources) > 4 * (len(waiters) + len(sources)):
            self._joins.append((waiters, sources))
        elif len(waiters) == 1:
            self._edge_from += sources
            self._edge_to += waiters * len(sources)
        else:
            for source in sources:
                self._edge_from += [source] * len(waiters)
                self._edge_to += waiters

    def build(self) -> Program:
        """Check what was collected and lay it out.

        Raises
        ------
        ValueError
            If an id names nothing, a time is negative, or the program could outlast an int64 clock.
        """
        return _Layout(self).program()


class _Layout:
    """Turns a builder's lists into the arrays of a Program, in whole-array steps."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        joins = len(builder._joins)
        join_label = builder._label_idx.setdefault("join", len(builder._label_idx)) if joins else 0
        join_row = (int(OpKind.JOIN), join_label, 0, NONE, NONE, 0, 0, 1)
        self._rows = ints([*builder._rows, *[join_row] * joins]).reshape(-1, 8)  # [described, columns above]
        self._num_ops = builder._num_ops + joins

    def program(self) -> Program:
        """Lay out everything; what is described once in an `op` call is copied for each of its ops."""
        builder, ranks = self._builder, self._builder._ranks_simulated
        holds, stage_ptr, flows, flow_ptr, hops, hop_ptr = self._described()
        described = np.repeat(np.arange(len(self._rows)), self._rows[:, 7])  # [O] row of each op
        op_stage_ptr, stages = take_rows(stage_ptr, described)
        stage_flow_ptr, flow_idx = take_rows(flow_ptr, stages)
        op_hop_ptr, hop_idx = take_rows(hop_ptr, flow_idx)
        kind, label, rank, first_local_id, pool, setup, release, _ = (self._rows[described, i] for i in range(8))
        first_of_row = np.cumsum(self._rows[:, 7]) - self._rows[:, 7]
        local_id = np.where(
            first_local_id == NONE, NONE, first_local_id + np.arange(self._num_ops) - first_of_row[described]
        )
        stage_op = np.repeat(np.arange(self._num_ops), np.diff(op_stage_ptr))
        flow_stage = np.repeat(np.arange(len(stages)), np.diff(stage_flow_ptr))
        flow_op = stage_op[flow_stage]
        flow_of_op = np.arange(len(flow_idx)) - stage_flow_ptr[op_stage_ptr[flow_op]]
        ties = tie_order(local_id[flow_op], flow_of_op, rank[flow_op], op_hop_ptr)
        first_hop, order, hop_flow, hop_index, hop_next = ties
        waits, next_ptr, next_ops = self._dependencies()
        program = Program(
            num_ranks=builder._num_ranks,
            ranks_simulated=ranks,
            unit_bytes=builder._unit_bytes,
            server_names=tuple(name for name, _, _ in builder._servers),
            service_ticks=np.repeat(ints([service for _, service, _ in builder._servers]), ranks),
            latency_ticks=np.repeat(ints([latency for _, _, latency in builder._servers]), ranks),
            pool_names=tuple(name for name, _ in builder._pools),
            pool_slots=np.repeat(ints([slots for _, slots in builder._pools]), ranks),
            labels=tuple(builder._label_idx),
            op_kind=kind,
            op_label_idx=label,
            op_rank=rank,
            op_local_id=local_id,
            op_pool=pool,
            op_setup_ticks=setup,
            op_release_ticks=release,
            op_num_waits=waits,
            op_next_ptr=next_ptr,
            op_next=next_ops,
            op_stage_ptr=op_stage_ptr,
            stage_op=stage_op,
            stage_hold_ticks=holds[stages],
            stage_flow_ptr=stage_flow_ptr,
            flow_stage=flow_stage,
            flow_units=flows[flow_idx, 0],
            flow_gap_ticks=flows[flow_idx, 1],
            flow_offset_ticks=flows[flow_idx, 2],
            flow_traffic=flows[flow_idx, 3],
            flow_first_hop=first_hop,
            flow_num_hops=np.diff(op_hop_ptr),
            hop_server=hops[hop_idx][order],
            hop_flow=hop_flow,
            hop_index=hop_index,
            hop_next=hop_next,
        )
        _check_horizon(program)
        return program

    def _described(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
        """Stages, flows and hops as described: holds, stages by row, flows, flows by stage, servers, hops by flow."""
        holds: list[int] = []
        stage_ptr, flow_ptr, hop_ptr = [0], [0], [0]
        flows: list[tuple[int, int, int, int]] = []
        hops: list[tuple[int, int]] = []
        for stages in self._builder._stages:
            for stage in stages:
                holds.append(stage.hold_ticks)
                for flow in stage.flows:
                    flows.append((flow.units, flow.gap_ticks, flow.offset_ticks, flow.traffic))
                    hops += flow.route
                    hop_ptr.append(len(hops))
                flow_ptr.append(len(flows))
            stage_ptr.append(len(holds))
        stage_ptr += [len(holds)] * (len(self._rows) - len(self._builder._stages))  # joins have no stages
        flow_table, hop_table = ints(flows).reshape(-1, 4), ints(hops).reshape(-1, 2)
        hold_array, hop_starts = ints(holds), ints(hop_ptr)
        self._check_described(hold_array, flow_table, hop_table[:, 0], hop_starts)
        ranks = self._builder._ranks_simulated
        servers = hop_table[:, 0] * ranks + hop_table[:, 1] % ranks
        return hold_array, ints(stage_ptr), flow_table, ints(flow_ptr), servers, hop_starts

    def _check_described(self, holds: Int64Array, flows: Int64Array, servers: Int64Array, hop_ptr: Int64Array) -> None:
        if (holds < 0).any():
            raise ValueError("a stage has a negative hold time")
        if (flows[:, :3] < 0).any():
            raise ValueError("a flow has a negative number of units, gap or offset")
        if (np.diff(hop_ptr) == 0).any():
            raise ValueError("a flow has an empty route: it needs at least one server")
        if len(servers) and not 0 <= servers.min() <= servers.max() < len(self._builder._servers):
            raise ValueError("a route names a server that is not declared")

    def _dependencies(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Declared edges and those of the joins, as counts of waits, pointers and waiters."""
        builder = self._builder
        sources, waiters = list(builder._edge_from), list(builder._edge_to)
        for join, (ops, wait_for) in enumerate(builder._joins, start=builder._num_ops):
            sources += [*wait_for, *[join] * len(ops)]
            waiters += [*[join] * len(wait_for), *ops]
        return dependencies(ints(sources), ints(waiters), self._num_ops)


def _check_horizon(program: Program) -> None:
    """Refuse a program whose ops and units, were they all served one after the other, could outlast the clock."""
    per_unit = (program.service_ticks + program.latency_ticks).astype(np.float64)[program.hop_server]
    units = program.flow_units.astype(np.float64)
    horizon = (
        float(program.op_release_ticks.max(initial=0))
        + program.op_setup_ticks.sum(dtype=np.float64)
        + program.stage_hold_ticks.sum(dtype=np.float64)
        + float((units * program.flow_gap_ticks + program.flow_offset_ticks).sum())
        + float((per_unit * units[program.hop_flow]).sum())
    )
    if horizon > MAX_HORIZON_TICKS:
        seconds = MAX_HORIZON_TICKS / TICKS_PER_SECOND
        raise HorizonError(
            f"the program could run for more than {seconds:.0f} s, past the range of the simulated clock"
        )
