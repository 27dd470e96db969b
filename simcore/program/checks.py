"""Checks before anything runs: numbers out of range, circles of waits, polls that cannot end."""

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND
from .arrays import NONE, Int64Array
from .limits import drain_ticks
from .program import MAX_HORIZON_TICKS, OpKind, Program, TrafficClass

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
    circle = _circle(program)
    if circle:
        names = [op_name(program, op) for op in circle[:_SHOWN_OPS]]
        if len(circle) > _SHOWN_OPS:
            names.append(f"{len(circle) - _SHOWN_OPS} more, the last of which")
        raise CircularWaits(f"ops wait for each other in a circle: {' waits for '.join([*names, names[0]])}")


def _circle(program: Program) -> list[int]:
    """Ops each of which waits for the next, and the last for the first; empty if there is no circle."""
    waits, pointers, followers = program.op_num_waits.tolist(), program.op_next_ptr.tolist(), program.op_next.tolist()
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
