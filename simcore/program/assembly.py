"""From what was described to the arrays of a Program, in whole-array steps.

What is described once in an ``op`` call is copied for each of its ops.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import NONE, BoolArray, Int64Array, dependencies, ints, take_rows, tie_order
from .checks import HorizonError, check_horizon, check_polling, check_tables, check_waits
from .program import OpKind, Program, Stage


class DescribedServer(NamedTuple):
    """A server as it is declared; ``buffer_units`` is 0 where there is room without limit."""

    name: str
    service_ticks: int
    latency_ticks: int
    buffer_units: int
    credit_ticks: int


@dataclass(slots=True)
class Described:
    """What a ``ProgramBuilder`` has collected."""

    num_ranks: int
    ranks_simulated: int
    unit_bytes: int
    servers: list[DescribedServer] = field(default_factory=list)
    pools: list[tuple[str, int]] = field(default_factory=list)  # name, slots
    label_idx: dict[str, int] = field(default_factory=dict)
    num_ops: int = 0
    # An op call: kind, label, rank, first local id, pool, setup, release, count.
    rows: list[tuple[int, int, int, int, int, int, int, int]] = field(default_factory=list)
    stages: list[tuple[Stage, ...]] = field(default_factory=list)  # by op call; the same tuple is laid out once
    edge_from: list[int] = field(default_factory=list)
    edge_to: list[int] = field(default_factory=list)
    flag_from: list[int] = field(default_factory=list)
    flag_to: list[int] = field(default_factory=list)
    joins: list[tuple[list[int], list[int]]] = field(default_factory=list)  # ops, what all of them wait for


def assemble(described: Described) -> Program:
    """Check what was described and lay it out.

    Raises
    ------
    ValueError
        As ``ProgramBuilder.build``.
    """
    try:
        program = _Assembly(described).program()
    except OverflowError:
        raise HorizonError("a time or a number of units is past what 64 bits can hold") from None
    check_polling(program)
    check_waits(program)
    check_horizon(program)
    return program


@dataclass(frozen=True, slots=True)
class _Tables:
    """Stages, flows and hops as described; pointers lead from descriptions to stages, to flows, to hops."""

    of_call: Int64Array  # [calls and joins] description
    stage_ptr: Int64Array
    stages: Int64Array  # [stages, (hold, polls)]
    flow_ptr: Int64Array
    flows: Int64Array  # [flows, (units, gap, offset, traffic, window)]
    hop_ptr: Int64Array
    hops: Int64Array  # [hops, (server, rank)]


class _Assembly:
    """Lays out one description."""

    def __init__(self, described: Described) -> None:
        self._described = described
        joins = len(described.joins)
        join_label = described.label_idx.setdefault("join", len(described.label_idx)) if joins else 0
        join_row = (int(OpKind.JOIN), join_label, 0, NONE, NONE, 0, 0, 1)
        self._rows = ints([*described.rows, *[join_row] * joins]).reshape(-1, 8)  # [calls and joins, columns]
        self._num_ops = described.num_ops + joins

    def program(self) -> Program:
        """Lay out everything."""
        described, ranks, tables = self._described, self._described.ranks_simulated, self._tables()
        row = np.repeat(np.arange(len(self._rows)), self._rows[:, 7])  # [O] op call
        op_stage_ptr, stage_idx = take_rows(tables.stage_ptr, tables.of_call[row])
        stage_flow_ptr, flow_idx = take_rows(tables.flow_ptr, stage_idx)
        op_hop_ptr, hop_idx = take_rows(tables.hop_ptr, flow_idx)
        kind, label, rank, local_id, pool, setup, release, _ = (self._rows[row, column] for column in range(8))
        local_id = np.where(local_id == NONE, NONE, local_id + self._place_in_call(row))
        stage_op = np.repeat(np.arange(self._num_ops), np.diff(op_stage_ptr))
        flow_stage = np.repeat(np.arange(len(stage_idx)), np.diff(stage_flow_ptr))
        flow_op = stage_op[flow_stage]
        flow_of_op = np.arange(len(flow_idx)) - stage_flow_ptr[op_stage_ptr[flow_op]]
        ties = tie_order(local_id[flow_op], flow_of_op, rank[flow_op], op_hop_ptr)
        first_hop, order, hop_flow, hop_index, hop_next = ties
        waits, next_ptr, next_ops = self._dependencies()
        self._check_named()
        num_flags, sets_ptr, sets = dependencies(ints(described.flag_from), ints(described.flag_to), self._num_ops)
        hop_server, hop_buffer, buffer_units, buffer_credit = self._servers_of(tables)
        service = ints([server.service_ticks for server in described.servers])
        latency = ints([server.latency_ticks for server in described.servers])
        return Program(
            num_ranks=described.num_ranks,
            ranks_simulated=ranks,
            unit_bytes=described.unit_bytes,
            server_names=tuple(server.name for server in described.servers),
            service_ticks=np.repeat(service, ranks),
            latency_ticks=np.repeat(latency, ranks),
            buffer_units=buffer_units,
            buffer_credit_ticks=buffer_credit,
            pool_names=tuple(name for name, _ in described.pools),
            pool_slots=np.repeat(ints([slots for _, slots in described.pools]), ranks),
            labels=tuple(described.label_idx),
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
            op_num_flags=num_flags,
            op_sets_ptr=sets_ptr,
            op_sets=sets,
            op_stage_ptr=op_stage_ptr,
            stage_op=stage_op,
            stage_hold_ticks=tables.stages[stage_idx, 0],
            stage_polls=tables.stages[stage_idx, 1] > 0,
            stage_flow_ptr=stage_flow_ptr,
            flow_stage=flow_stage,
            flow_units=tables.flows[flow_idx, 0],
            flow_gap_ticks=tables.flows[flow_idx, 1],
            flow_offset_ticks=tables.flows[flow_idx, 2],
            flow_traffic=tables.flows[flow_idx, 3],
            flow_window_units=tables.flows[flow_idx, 4],
            flow_first_hop=first_hop,
            flow_num_hops=np.diff(op_hop_ptr),
            hop_server=hop_server[hop_idx][order],
            hop_flow=hop_flow,
            hop_index=hop_index,
            hop_next=hop_next,
            hop_buffer=hop_buffer[hop_idx][order],
        )

    def _place_in_call(self, row: Int64Array) -> Int64Array:
        """[O] position of each op among those of its call."""
        first = np.cumsum(self._rows[:, 7]) - self._rows[:, 7]
        place: Int64Array = np.arange(self._num_ops) - first[row]
        return place

    def _tables(self) -> _Tables:
        """What the op calls describe, checked."""
        of_call, descriptions = _once([*self._described.stages, *[()] * len(self._described.joins)])
        stage_ptr, flow_ptr, hop_ptr = [0], [0], [0]
        stages: list[tuple[int, int]] = []
        flows: list[tuple[int, int, int, int, int]] = []
        hops: list[tuple[int, int]] = []
        for called in descriptions:
            for stage in called:
                stages.append((stage.hold_ticks, stage.polls))
                for flow in stage.flows:
                    shape = (flow.units, flow.gap_ticks, flow.offset_ticks, flow.traffic, flow.window_units)
                    flows.append(shape)
                    hops += flow.route
                    hop_ptr.append(len(hops))
                flow_ptr.append(len(flows))
            stage_ptr.append(len(stages))
        tables = _Tables(
            of_call=of_call,
            stage_ptr=ints(stage_ptr),
            stages=ints(stages).reshape(-1, 2),
            flow_ptr=ints(flow_ptr),
            flows=ints(flows).reshape(-1, 5),
            hop_ptr=ints(hop_ptr),
            hops=_pairs(hops),
        )
        check_tables(tables.stages, tables.flows, tables.hops[:, 0], tables.hop_ptr, len(self._described.servers))
        return tables

    def _servers_of(self, tables: _Tables) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """[hops] server instance and the buffer they go into, and [B] its room and credit time.

        A buffer belongs to a server instance and the server, so many ranks further, that its units go to. That is a
        pair of instances; and it stays one for each peer where one rank stands for all.
        """
        described, ranks = self._described, self._described.ranks_simulated
        server, rank = tables.hops[:, 0], tables.hops[:, 1]
        instance = server * ranks + rank % ranks
        room = ints([server.buffer_units for server in described.servers])
        credit = ints([server.credit_ticks for server in described.servers])
        buffered: BoolArray = np.ones(len(server), np.bool_)
        buffered[tables.hop_ptr[1:] - 1] = False  # the last hop of each flow
        hops = np.flatnonzero(buffered)
        hops = hops[room[server[hops + 1]] > 0]
        further = (rank[hops + 1] - rank[hops]) % described.num_ranks
        keys = (instance[hops] * len(described.servers) + server[hops + 1]) * described.num_ranks + further
        _, first, buffer = np.unique(keys, return_index=True, return_inverse=True)
        target = server[hops[first] + 1]
        hop_buffer = np.full(len(server), NONE, np.int64)
        hop_buffer[hops] = buffer
        # Room for more than could ever come is room without limit, and costs memory.
        units_at = self._units_at(tables)[hops] * self._rounds_at(tables, hops, credit[server[hops + 1]])
        most = np.bincount(buffer, units_at, minlength=len(target))
        units = np.minimum(room[target], np.maximum(1, most)).astype(np.int64)
        return instance, hop_buffer, units, credit[target]

    def _units_at(self, tables: _Tables) -> npt.NDArray[np.float64]:
        """[hops] units that pass, all ops of the description together, in one round of those that poll."""
        flow = np.repeat(np.arange(len(tables.flows)), np.diff(tables.hop_ptr))
        stage = np.repeat(np.arange(len(tables.stages)), np.diff(tables.flow_ptr))
        description = np.repeat(np.arange(len(tables.stage_ptr) - 1), np.diff(tables.stage_ptr))
        ops = np.bincount(tables.of_call, self._rows[:, 7], minlength=len(tables.stage_ptr) - 1)
        units: npt.NDArray[np.float64] = tables.flows[flow, 0] * ops[description[stage[flow]]]
        return units

    def _rounds_at(self, tables: _Tables, hops: Int64Array, credit: Int64Array) -> Int64Array:
        """[of ``hops``] rounds whose units may have room at one time, of stages that poll more than one.

        A round is over before the next, but its room comes back ``credit`` later: as many are not back as begin within
        that time, of which each takes as long as its hold, and as the way of one unit.
        """
        flow = np.repeat(np.arange(len(tables.flows)), np.diff(tables.hop_ptr))
        stage = np.repeat(np.arange(len(tables.stages)), np.diff(tables.flow_ptr))
        ticks = ints([server.service_ticks + server.latency_ticks for server in self._described.servers])
        way = np.add.reduceat(ticks[tables.hops[:, 0]], tables.hop_ptr[:-1]) if len(flow) else ints([])
        hold, polls = tables.stages[stage].T
        rounds = 1 + np.where(polls > 0, 1, 0)[flow[hops]] * -(-credit // np.maximum(hold, way)[flow[hops]])
        found: Int64Array = rounds.astype(np.int64)
        return found

    def _check_named(self) -> None:
        """Check that what waits and what is waited for was described: the joins come after it and are nobody's."""
        described = self._described
        for ops, others in ((described.edge_from, described.edge_to), (described.flag_from, described.flag_to)):
            dependencies(ints(ops), ints(others), described.num_ops)
        for waiters, sources in described.joins:
            dependencies(ints(waiters[:1] * len(sources)), ints(sources), described.num_ops)
            dependencies(ints(waiters), ints(waiters), described.num_ops)

    def _dependencies(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Declared edges and those of the joins, as counts of waits, pointers and waiters."""
        described = self._described
        sources, waiters = list(described.edge_from), list(described.edge_to)
        for join, (ops, wait_for) in enumerate(described.joins, start=described.num_ops):
            sources += [*wait_for, *[join] * len(ops)]
            waiters += [*[join] * len(wait_for), *ops]
        return dependencies(ints(sources), ints(waiters), self._num_ops)


def _once(described: Sequence[tuple[Stage, ...]]) -> tuple[Int64Array, list[tuple[Stage, ...]]]:
    """Each tuple once, and for each of ``described`` which of them it is; told apart by identity, which is quick."""
    numbers: dict[int, int] = {}
    unique: list[tuple[Stage, ...]] = []
    of_call = []
    for stages in described:
        number = numbers.setdefault(id(stages), len(unique))
        if number == len(unique):
            unique.append(stages)
        of_call.append(number)
    return ints(of_call), unique


def _pairs(hops: Sequence[tuple[int, int]]) -> Int64Array:
    """[hops, 2] server and rank."""
    if any(len(hop) != 2 for hop in hops):
        raise ValueError("a route lists (server, rank), two numbers for each hop")
    return ints(hops).reshape(-1, 2)
