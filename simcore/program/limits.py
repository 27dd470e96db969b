"""Limits of time and memory of a run, and checks of its tables, its polls, its waits and the clock."""

from dataclasses import dataclass, fields

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND
from ...compiler.text.units import bytes_text
from .arrays import NONE, Int64Array, dependencies
from .program import MAX_HORIZON_TICKS, OpKind, Program, TrafficClass


def drain_ticks(program: Program) -> Int64Array:
    """[T] ticks in which the units of a stage are served and delivered, were they served one after the other.

    Units of other stages are in the way as well, but then those stages are under way too; units of polls come again and
    again, so of those the service of one round is counted at every hop. Not more than the clock holds.
    """
    service, units = program.service_ticks.astype(np.float64), program.flow_units.astype(np.float64)
    server, flow = program.hop_server, program.hop_flow
    polled = np.flatnonzero(program.stage_polls.take(program.flow_stage).take(flow))
    of_polls = units[flow[polled]] * service[server[polled]]
    at_server = service + program.latency_ticks + np.bincount(server[polled], of_polls, minlength=program.num_servers)
    hop_ticks = at_server.take(server)
    if len(program.buffer_units):
        hop_ticks += np.append(program.buffer_credit_ticks, 0).take(program.hop_buffer)  # NONE is -1, the last
    hop_ticks *= units.take(flow)
    flow_ticks = units * program.flow_gap_ticks + program.flow_offset_ticks
    flow_ticks += np.bincount(program.hop_flow, hop_ticks, minlength=program.num_flows)
    stage_ticks = program.stage_hold_ticks + np.bincount(program.flow_stage, flow_ticks, minlength=program.num_stages)
    whole: Int64Array = np.minimum(stage_ticks, MAX_HORIZON_TICKS).astype(np.int64)
    return whole


GIB = 1 << 30

SECONDS_PER_LINE_HOP = {"windows": 1 / 15e6, "compiled": 1 / 30e6}
"""Measured with ``benchmarks.simcore`` on one core of a server CPU, on the slow side: wide machines do better."""

BYTES_PER_UNIT = 24
"""Measured: peak memory over units under way at that time, of flows that inject far faster than is served."""

_COPIES = 4
"""Size of a core's own tables over that of the Program's arrays; measured 2 to 3."""


class RunTooLarge(ValueError):
    """The run would take longer, or more memory, than it is allowed; the text says how much and what lowers it."""


@dataclass(frozen=True, slots=True)
class RunBudget:
    """Limits of a run.

    ``seconds`` is held against the estimate only, unless ``strict_seconds``: what is stopped by a clock ends elsewhere
    on every machine. ``memory_bytes`` is what the run needs beyond the program it is given.
    """

    seconds: float = 240.0
    memory_bytes: int = 4 * GIB
    strict_seconds: bool = False

    def __post_init__(self) -> None:
        """Refuse limits that are not positive."""
        if not self.seconds > 0 or self.memory_bytes <= 0:
            raise ValueError(f"a budget is positive, not {self.seconds} s and {self.memory_bytes} bytes")


DEFAULT_BUDGET = RunBudget()


def estimated_seconds(program: Program, core: str) -> float:
    """Time on ``core``, estimated by line-hops alone."""
    return program.num_line_hops * SECONDS_PER_LINE_HOP[core]


def least_bytes(program: Program) -> int:
    """Least memory needed by a core: its tables, buffers, and units that are injected all at once.

    Those are the units of the largest stage, or of all ops with which the program begins.
    """
    tables = (getattr(program, field.name) for field in fields(program))
    num_bytes = sum(table.nbytes for table in tables if isinstance(table, np.ndarray))
    held_back = program.flow_window_units > 0
    at_once = np.where(held_back, np.minimum(program.flow_units, program.flow_window_units), program.flow_units)
    at_once[(program.flow_gap_ticks > 0) & ~held_back] = 1
    by_stage = np.bincount(program.flow_stage, at_once, minlength=program.num_stages)  # float, so that no sum wraps
    begins = (program.op_num_waits == 0) & (program.op_pool == NONE) & (np.diff(program.op_stage_ptr) > 0)
    burst = max(by_stage.max(initial=0), by_stage[program.op_stage_ptr[:-1][begins]].sum())
    return int(_COPIES * num_bytes + BYTES_PER_UNIT * (burst + program.buffer_units.sum()))


def check_budget(program: Program, core: str, budget: RunBudget) -> None:
    """Refuse a run of ``program`` that is over the budget before it begins.

    Raises
    ------
    RunTooLarge
        With the estimate and what lowers it.
    """
    seconds, num_bytes = estimated_seconds(program, core), least_bytes(program)
    if seconds > budget.seconds:
        raise RunTooLarge(
            f"about {program.num_line_hops:.1e} line-hops would take about {seconds:.3g} s on the core {core}, the "
            f"limit is {budget.seconds:.3g} s: simulate in packets, fold symmetric ranks, or allow more time"
        )
    if num_bytes > budget.memory_bytes:
        raise RunTooLarge(
            f"the run needs about {bytes_text(num_bytes)}, the limit is {bytes_text(budget.memory_bytes)}: "
            "simulate in packets, fold symmetric ranks, or allow more memory"
        )


_SHOWN_OPS = 6
"""Ops of a circle that are named; the rest are counted."""


class HorizonError(ValueError):
    """The program could outlast the simulated clock."""


def check_range(what: str, *values: int) -> None:
    """Check that ``values`` are whole numbers that the simulated clock can hold.

    Raises
    ------
    ValueError
        If one is not; a HorizonError if it is a whole number past the range.
    """
    for value in values:
        if not isinstance(value, (int, np.integer)):
            raise ValueError(f"{what} has {value!r} where a whole number of ticks or units is needed")
        if value > MAX_HORIZON_TICKS:
            raise HorizonError(f"{what} has {value}, past the range of the simulated clock ({MAX_HORIZON_TICKS} ticks)")


class CircularWaits(ValueError):
    """Ops wait for each other in a circle; the text names them."""


def check_tables(
    stages: Int64Array, flows: Int64Array, servers: Int64Array, hop_ptr: Int64Array, num_servers: int
) -> None:
    """Check stages [(hold, polls), .], flows [(units, gap, offset, traffic, window), .] and the servers of hops.

    Raises
    ------
    ValueError
        If a number is negative, a route is empty or names no server, or a poll takes no time.
    """
    if (stages < 0).any():
        raise ValueError("a stage has a negative hold time")
    if (stages[0, stages[1] > 0] < 1).any():
        raise ValueError("a polling stage needs a hold time of at least one tick: it is the time from poll to poll")
    if (flows[[0, 1, 2, 4]] < 0).any():
        raise ValueError("a flow has a negative number of units, gap, offset or window")
    if not np.isin(flows[3], list(TrafficClass)).all():
        raise ValueError("a flow carries a class of traffic that does not exist")
    if max(stages.max(initial=0), flows.max(initial=0)) > MAX_HORIZON_TICKS:
        raise HorizonError("a hold time, gap, offset or number of units is past the range of the simulated clock")
    if (np.diff(hop_ptr) == 0).any():
        raise ValueError("a flow has an empty route: it needs at least one server")
    if len(servers) and not 0 <= servers.min() <= servers.max() < num_servers:
        raise ValueError("a route names a server that is not declared")


def check_polling(program: Program) -> None:
    """Check that flags have an op that polls for them, once.

    Raises
    ------
    ValueError
        If an op has flags and no polling stage, or more than one.
    """
    polls = np.bincount(program.stage_op[program.stage_polls], minlength=program.num_ops)
    for op in np.flatnonzero((polls > 1) | ((program.op_num_flags > 0) & (polls == 0))).tolist():
        found = "more than one polling stage" if polls[op] else "flags to look for, but no polling stage"
        raise ValueError(f"{op_name(program, op)} has {found}")


def check_waits(program: Program) -> None:
    """Check that no ops wait for each other in a circle.

    Raises
    ------
    CircularWaits
        If some do.
    """
    sources = np.repeat(np.arange(program.num_ops), np.diff(program.op_next_ptr))  # [E]
    # A join has no place in the program of a rank, but stands between what it waits for and what waits for it.
    after, joins = program.op_local_id.copy(), program.op_kind == OpKind.JOIN
    into_join = joins[program.op_next]
    np.maximum.at(after, program.op_next[into_join], program.op_local_id[sources[into_join]])
    # Two joins that ranks describe may wait for each other: only one that was added between ops may tie with a join.
    ties = into_join & ~(joins[sources] & (program.op_local_id[program.op_next] != NONE))
    in_order = np.where(ties, after[sources] <= after[program.op_next], after[sources] < after[program.op_next])
    if in_order.all():
        return  # as ranks describe their ops nearly always: each waits for earlier ones, of its own or of another rank
    # What a circle goes forward it comes back, so all of it is where waits against the order lead over.
    back, last = ~in_order, int(after.max()) + 3
    over = np.bincount(after[program.op_next[back]] + 1, minlength=last)
    over -= np.bincount(after[sources[back]] + 2, minlength=last)
    among = np.cumsum(over)[after + 1] > 0  # [O]
    ops, number, inner = np.flatnonzero(among), np.cumsum(among) - 1, among[sources] & among[program.op_next]
    waits = dependencies(number[sources[inner]], number[program.op_next[inner]], len(ops))
    circle = ops[_circle(*(each.tolist() for each in waits))].tolist()
    if circle:
        names = [op_name(program, op) for op in circle[:_SHOWN_OPS]]
        if len(circle) > _SHOWN_OPS:
            names.append(f"{len(circle) - _SHOWN_OPS} more, the last of which")
        raise CircularWaits(f"ops wait for each other in a circle: {' waits for '.join([*names, names[0]])}")


def _circle(waits: list[int], pointers: list[int], followers: list[int]) -> list[int]:
    """Ops each of which waits for the next, and the last for the first; empty if there is no circle.

    Takes what ``dependencies`` returns, and changes ``waits``.
    """
    todo = [op for op, count in enumerate(waits) if not count]
    while todo:
        op = todo.pop()
        for follower in followers[pointers[op] : pointers[op + 1]]:
            waits[follower] -= 1
            if not waits[follower]:
                todo.append(follower)
    waits_for: dict[int, int] = {}  # of those left: one that is left too
    for op, count in enumerate(waits):
        if count:
            waits_for.update(dict.fromkeys([f for f in followers[pointers[op] : pointers[op + 1]] if waits[f]], op))
    if not waits_for:
        return []
    positions: dict[int, int] = {}  # on the path, of the ops met
    op = next(iter(waits_for))
    while op not in positions:
        positions[op] = len(positions)
        op = waits_for[op]
    return list(positions)[positions[op] :]


def check_horizon(program: Program) -> None:
    """Refuse a program whose ops and units, were they all served one after the other, could outlast the clock.

    Raises
    ------
    HorizonError
        If so.
    """
    horizon = (
        float(program.op_release_ticks.max(initial=0))
        + program.op_setup_ticks.sum(dtype=np.float64)
        + drain_ticks(program).sum(dtype=np.float64)
    )
    if horizon >= MAX_HORIZON_TICKS:
        seconds = MAX_HORIZON_TICKS / TICKS_PER_SECOND
        raise HorizonError(
            f"the program could run for more than {seconds:.0f} s, past the range of the simulated clock"
        )


def op_name(program: Program, op: int) -> str:
    """An op for reading."""
    label = program.labels[program.op_label_idx[op]]
    return f"op {label} of rank {program.op_rank[op]} (number {op})"
