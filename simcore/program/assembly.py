"""From a description to the arrays of a Program, in whole-array steps.

Stages described once for a run of ops are copied for each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import NONE, BoolArray, Int64Array, check_named, dependencies, ints, take_rows, tie_order
from .limits import HorizonError, check_horizon, check_polling, check_tables, check_waits
from .program import OpKind, Program, Stage


class DescribedServer(NamedTuple):
    """A server as it is declared; ``buffer_units`` is 0 where there is room without limit."""

    name: str
    service_ticks: int
    latency_ticks: int
    buffer_units: int
    credit_ticks: int


class OpCall(NamedTuple):
    """A call of the builder: ``num_ops`` ops, of which the first has ``local_id``; ``pool`` is an instance."""

    kind: int
    label_idx: int
    rank: int
    local_id: int
    pool: int
    setup_ticks: int
    release_ticks: int
    priority: int
    num_ops: int


@dataclass(slots=True)
class Described:
    """Everything a ``ProgramBuilder`` has collected."""

    num_ranks: int
    ranks_simulated: int
    unit_bytes: int
    servers: list[DescribedServer] = field(default_factory=list)
    pools: list[tuple[str, int]] = field(default_factory=list)  # name, slots
    label_idx: dict[str, int] = field(default_factory=dict)
    num_ops: int = 0
    calls: list[OpCall] = field(default_factory=list)
    run_ops: list[int] = field(default_factory=list)  # by run of ops with the same stages, one or more of each call
    stages: list[tuple[Stage, ...]] = field(default_factory=list)  # by run; the same tuple is laid out once
    edge_from: list[int] = field(default_factory=list)
    edge_to: list[int] = field(default_factory=list)
    flag_from: list[int] = field(default_factory=list)
    flag_to: list[int] = field(default_factory=list)
    joins: list[tuple[list[int], list[int]]] = field(default_factory=list)  # ops that wait, ops they wait for


def assemble(described: Described) -> Program:
    """Check a description and lay it out.

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
    """Stages, flows and hops as described, by column; pointers lead from descriptions to stages, to flows, to hops."""

    description: Int64Array  # [runs and joins]
    stage_ptr: Int64Array
    stages: Int64Array  # [(hold, polls), stages]
    flow_ptr: Int64Array
    flows: Int64Array  # [_FLOW_COLUMNS, flows]
    hop_ptr: Int64Array
    hops: Int64Array  # [(server, rank), hops]


_FLOW_COLUMNS = ("flow_units", "flow_gap_ticks", "flow_offset_ticks", "flow_traffic", "flow_window_units")


class _Assembly:
    """Lays out one description."""

    def __init__(self, described: Described) -> None:
        self._described = described
        joins = len(described.joins)
        join_label = described.label_idx.setdefault("join", len(described.label_idx)) if joins else 0
        join = OpCall(OpKind.JOIN, join_label, 0, NONE, NONE, 0, 0, 0, 1)
        calls = list(chain.from_iterable([*described.calls, *[join] * joins]))
        self._calls = ints(calls).reshape(-1, len(OpCall._fields)).T  # [fields, calls]
        self._counts = ints([*described.run_ops, *[1] * joins])  # [runs]
        self._num_ops = described.num_ops + joins

    def program(self) -> Program:
        """Lay out everything."""
        described, tables = self._described, self._tables()
        of_run = np.repeat(tables.description, self._counts)  # [O]
        op_stage_ptr, stages = take_rows(tables.stage_ptr, of_run)
        stage_flow_ptr, flows = take_rows(tables.flow_ptr, stages)
        hop_ptr, hops = take_rows(tables.hop_ptr, flows)
        stage_op = np.repeat(np.arange(self._num_ops), np.diff(op_stage_ptr))
        flow_stage = np.repeat(np.arange(len(stages)), np.diff(stage_flow_ptr))
        ops = self._op_arrays()
        flow_op = stage_op.take(flow_stage)
        flow_of_op = np.arange(len(flows)) - stage_flow_ptr.take(op_stage_ptr.take(flow_op))
        ahead = np.repeat(ops["op_rank"].take(flow_op), np.diff(hop_ptr))
        ahead += (-tables.hops[1] % described.num_ranks).take(hops)
        np.subtract(ahead, described.num_ranks, out=ahead, where=ahead >= described.num_ranks)
        ties = tie_order(ops["op_local_id"].take(flow_op), flow_of_op, hop_ptr, ahead)
        first_hop, order, hop_flow, hop_index, hop_next = ties
        hop_server, hop_buffer, buffer_units, buffer_credit = self._servers_of(tables)
        return Program(
            num_ranks=described.num_ranks,
            ranks_simulated=described.ranks_simulated,
            unit_bytes=described.unit_bytes,
            **self._servers_and_pools(),
            buffer_units=buffer_units,
            buffer_credit_ticks=buffer_credit,
            labels=tuple(described.label_idx),
            **ops,
            **self._edge_arrays(),
            op_stage_ptr=op_stage_ptr,
            stage_op=stage_op,
            stage_hold_ticks=tables.stages[0].take(stages),
            stage_polls=tables.stages[1].take(stages) > 0,
            stage_flow_ptr=stage_flow_ptr,
            flow_stage=flow_stage,
            **dict(zip(_FLOW_COLUMNS, tables.flows.take(flows, axis=1), strict=True)),
            flow_first_hop=first_hop,
            flow_num_hops=np.diff(hop_ptr),
            hop_server=hop_server.take(hops).take(order),
            hop_flow=hop_flow,
            hop_index=hop_index,
            hop_next=hop_next,
            hop_buffer=hop_buffer.take(hops).take(order),
        )

    def _servers_and_pools(self) -> dict[str, Any]:
        """Names by declared number, and the arrays of their instances on all ranks."""
        servers, pools, ranks = self._described.servers, self._described.pools, self._described.ranks_simulated
        return {
            "server_names": tuple(server.name for server in servers),
            "service_ticks": np.repeat(ints([server.service_ticks for server in servers]), ranks),
            "latency_ticks": np.repeat(ints([server.latency_ticks for server in servers]), ranks),
            "pool_names": tuple(name for name, _ in pools),
            "pool_slots": np.repeat(ints([slots for _, slots in pools]), ranks),
        }

    def _op_arrays(self) -> dict[str, Any]:
        """[O] the fields of each op's call, which ops of a call share but for their local ids."""
        counts = self._calls[-1]
        first, call = np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts)
        names = [f"op_{name}" for name in OpCall._fields[:-1]]
        arrays = dict(zip(names, self._calls[:-1].take(call, axis=1), strict=True))
        arrays["op_local_id"] += np.where(arrays["op_local_id"] == NONE, 0, np.arange(self._num_ops) - first.take(call))
        return arrays

    def _edge_arrays(self) -> dict[str, Any]:
        """Waits, those of joins included, and flags."""
        described = self._described
        edges, flags = (
            (ints(ends[0]), ints(ends[1]))
            for ends in ((described.edge_from, described.edge_to), (described.flag_from, described.flag_to))
        )
        check_named(described.num_ops, *edges)
        check_named(described.num_ops, *flags)
        sources, waiters = [edges[0]], [edges[1]]
        for join, ends in enumerate(described.joins, start=described.num_ops):  # these are no names
            ops, wait_for = map(ints, ends)
            check_named(described.num_ops, ops, wait_for)
            sources += [wait_for, np.full(len(ops), join)]
            waiters += [np.full(len(wait_for), join), ops]
        waits = dependencies(np.concatenate(sources), np.concatenate(waiters), self._num_ops)
        names = ("op_num_waits", "op_next_ptr", "op_next", "op_num_flags", "op_sets_ptr", "op_sets")
        return dict(zip(names, (*waits, *dependencies(*flags, self._num_ops)), strict=True))

    def _tables(self) -> _Tables:
        """The stages, flows and hops of the runs, checked."""
        description, descriptions = _once([*self._described.stages, *[()] * len(self._described.joins)])
        stage_ptr, flow_ptr, hop_ptr = [0], [0], [0]
        stages: list[int] = []  # these two row by row: a tuple of each would cost more than what is in it
        flows: list[int] = []
        hops: list[tuple[int, int]] = []
        for described in descriptions:
            for stage in described:
                stages += (stage.hold_ticks, stage.polls)
                for flow in stage.flows:
                    flows += (flow.units, flow.gap_ticks, flow.offset_ticks, flow.traffic, flow.window_units)
                    hops += flow.route
                    hop_ptr.append(len(hops))
                flow_ptr.append(len(hop_ptr) - 1)
            stage_ptr.append(len(flow_ptr) - 1)
        if {*map(len, hops)} - {2}:
            raise ValueError("a route lists (server, rank), two numbers for each hop")
        tables = _Tables(
            description=description,
            stage_ptr=ints(stage_ptr),
            stages=ints(stages).reshape(-1, 2).T,
            flow_ptr=ints(flow_ptr),
            flows=np.ascontiguousarray(ints(flows).reshape(-1, len(_FLOW_COLUMNS)).T),
            hop_ptr=ints(hop_ptr),
            hops=ints(list(chain.from_iterable(hops))).reshape(-1, 2).T,
        )
        check_tables(tables.stages, tables.flows, tables.hops[0], tables.hop_ptr, len(self._described.servers))
        return tables

    def _servers_of(self, tables: _Tables) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """[hops] server instance and the buffer they go into, and [B] its room and credit time.

        A buffer belongs to a server instance and the server, so many ranks further, that its units go to. That is a
        pair of instances; and it stays one for each peer where one rank stands for all.
        """
        described, ranks = self._described, self._described.ranks_simulated
        server, rank = tables.hops
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
        flow = np.repeat(np.arange(tables.flows.shape[1]), np.diff(tables.hop_ptr))
        stage = np.repeat(np.arange(tables.stages.shape[1]), np.diff(tables.flow_ptr))
        description = np.repeat(np.arange(len(tables.stage_ptr) - 1), np.diff(tables.stage_ptr))
        ops = np.bincount(tables.description, self._counts, minlength=len(tables.stage_ptr) - 1)
        units: npt.NDArray[np.float64] = tables.flows[0, flow] * ops[description[stage[flow]]]
        return units

    def _rounds_at(self, tables: _Tables, hops: Int64Array, credit: Int64Array) -> Int64Array:
        """[of ``hops``] rounds whose units may have room at one time, of stages that poll more than one.

        A round is over before the next, but its room comes back ``credit`` later: as many are not back as begin within
        that time, of which each takes as long as its hold, and as the way of one unit.
        """
        flow = np.repeat(np.arange(tables.flows.shape[1]), np.diff(tables.hop_ptr))
        stage = np.repeat(np.arange(tables.stages.shape[1]), np.diff(tables.flow_ptr))
        ticks = ints([server.service_ticks + server.latency_ticks for server in self._described.servers])
        way = np.add.reduceat(ticks[tables.hops[0]], tables.hop_ptr[:-1]) if len(flow) else ints([])
        hold, polls = tables.stages[:, stage]
        rounds = 1 + np.where(polls > 0, 1, 0)[flow[hops]] * -(-credit // np.maximum(hold, way)[flow[hops]])
        found: Int64Array = rounds.astype(np.int64)
        return found


def _once(described: Sequence[tuple[Stage, ...]]) -> tuple[Int64Array, list[tuple[Stage, ...]]]:
    """Each tuple once, and for each of ``described`` which of them it is; told apart by identity, which is quick."""
    unique = {id(stages): stages for stages in described}
    numbers = dict(zip(unique, count()))
    return ints([numbers[id(stages)] for stages in described]), list(unique.values())
