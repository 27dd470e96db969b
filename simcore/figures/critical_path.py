"""The critical path of a run: the chain of ops that ends last, and what each of them waited for.

Read backwards from the op that was done last: it began when it got a slot, which another op gave back; or it was ready
when the last op that it waited for was done, or when it was released; a poll went on until a flag was set.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ..cores.endings import units_delivered
from ..program.arrays import NONE, Int64Array, starts
from ..program.limits import op_name
from ..program.program import NEVER, OpKind, Program, Run, RunOutcome


class Cause(Enum):
    """Last thing that an op on the critical path waited for; the value names it."""

    START = "the start of the run"
    RELEASE = "its release time"
    OP = "an op before it"
    SLOT = "a slot of its pool"
    FLAG = "a flag it polled for"


@dataclass(frozen=True, slots=True)
class CriticalOp:
    """One op on the critical path, from ``since``, when the op before it on the path was done, to ``done_ticks``.

    ``resource`` is the pool for ``SLOT``, else empty. ``queued_at`` is the server at which the units of one of the op's
    flows waited longest, for ``queued_ticks`` each on average; empty if they never did or the run did not observe it.
    """

    op: int
    label: str
    rank: int
    kind: OpKind
    cause: Cause
    resource: str
    since_ticks: int
    start_ticks: int
    done_ticks: int
    queued_at: str
    queued_ticks: int


def critical_path(program: Program, run: Run) -> tuple[CriticalOp, ...]:
    """The chain of ops that ends with the one that was done last, in order of time; empty if none was.

    Of several that fit equally the one with the least local id, then rank, is taken. Joins that take no time
    are left out.
    """
    return tuple(_Path(program, run).walk())


class _Path:
    """A program and its run, with the tables to go backwards."""

    def __init__(self, program: Program, run: Run) -> None:
        self._program, self._run = program, run
        self._waits = _Edges(program.op_next_ptr, program.op_next)
        self._flags = _Edges(program.op_sets_ptr, program.op_sets)
        self._units = units_delivered(program, run.flow_last, run.op_polls)
        self._preference = np.lexsort((np.arange(program.num_ops), program.op_rank, program.op_local_id)).argsort()
        done = np.flatnonzero((run.op_done != NEVER) & (program.op_pool != NONE))
        keys = (self._preference[done], run.op_start[done], run.op_done[done], program.op_pool[done])
        self._by_pool = done[np.lexsort(keys)]  # the last key counts first
        self._pool_ptr = starts(np.bincount(program.op_pool[done], minlength=len(program.pool_slots)))

    def walk(self) -> list[CriticalOp]:
        """Backwards from the last op to one that nothing held up."""
        done = self._run.op_done
        of_plan = np.where(self._program.op_kind == OpKind.TRAFFIC, NEVER, done)
        op = self._best(np.flatnonzero(of_plan == of_plan.max())) if (of_plan != NEVER).any() else NONE
        path: list[CriticalOp] = []
        while op != NONE:
            cause, before = self._cause(op)
            if self._program.op_kind[op] != OpKind.JOIN or self._run.op_start[op] < done[op]:
                path.append(self._critical(op, cause, 0 if before == NONE else int(done[before])))
            op = before
        return path[::-1]

    def _cause(self, op: int) -> tuple[Cause, int]:
        """The last thing that ``op`` waited for, and the op that provided it, NONE if none did."""
        program, run = self._program, self._run
        flags = self._flags.into(op)
        if len(flags) and run.op_polls[op] > 1:  # with one round it did not have to wait
            return Cause.FLAG, self._best(flags[run.op_done[flags] == run.op_done[flags].max()])
        if run.op_start[op] > run.op_ready[op]:
            return Cause.SLOT, self._who_gave_back(int(program.op_pool[op]), int(run.op_start[op]))
        waits = self._waits.into(op)
        if len(waits) and (last := int(run.op_done[waits].max())) == run.op_ready[op]:
            return Cause.OP, self._best(waits[run.op_done[waits] == last])
        return (Cause.RELEASE if run.op_ready[op] else Cause.START), NONE

    def _who_gave_back(self, pool: int, time: int) -> int:
        """The op that gave a slot of ``pool`` back at ``time``; of several the one that had it longest."""
        ops = self._by_pool[self._pool_ptr[pool] : self._pool_ptr[pool + 1]]
        return int(ops[bisect_left(range(len(ops)), time, key=lambda place: self._run.op_done[ops[place]])])

    def _best(self, ops: Int64Array) -> int:
        return int(ops[self._preference[ops].argmin()])

    def _critical(self, op: int, cause: Cause, since: int) -> CriticalOp:
        program, run = self._program, self._run
        server, queued = self._queued(op)
        return CriticalOp(
            op=op,
            label=program.labels[program.op_label_idx[op]],
            rank=int(program.op_rank[op]),
            kind=OpKind(int(program.op_kind[op])),
            cause=cause,
            resource=program.pool_name(int(program.op_pool[op])) if cause is Cause.SLOT else "",
            since_ticks=since,
            start_ticks=int(run.op_start[op]),
            done_ticks=int(run.op_done[op]),
            queued_at=program.server_name(server) if queued else "",
            queued_ticks=queued,
        )

    def _queued(self, op: int) -> tuple[int, int]:
        """The server at which units of the op waited longest, and for how long on average."""
        program, waited = self._program, self._run.hop_wait_ticks
        if waited is None:
            return NONE, 0
        worst = (NONE, 0)
        stages = program.op_stage_ptr[op], program.op_stage_ptr[op + 1]
        for flow in range(int(program.stage_flow_ptr[stages[0]]), int(program.stage_flow_ptr[stages[1]])):
            for hop in program.way(flow):
                mean = int(waited[hop]) // max(1, int(self._units[flow]))
                if mean > worst[1]:
                    worst = int(program.hop_server[hop]), mean
        return worst


class _Edges:
    """Edges by target, from pointers by source."""

    def __init__(self, pointers: Int64Array, targets: Int64Array) -> None:
        self._order = np.argsort(targets, kind="stable")
        self._targets = targets[self._order]
        self._sources = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))[self._order]

    def into(self, op: int) -> Int64Array:
        """Sources of the edges into ``op``."""
        first, end = np.searchsorted(self._targets, (op, op + 1))
        return self._sources[first:end]


_Waiting = tuple[Callable[[Program, Run, int], tuple[str, Any]], int]
"""What says what an op that is not done waits for, or a server whose first unit has no room; and its number."""


def circle_of_waits(program: Program, run: Run) -> tuple[str, ...]:
    """Sentences, each of which says what something waits for; the last waits for the first.

    ``run`` is one of ``program`` with the outcome DEADLOCK; otherwise there are none.
    """
    if run.outcome is not RunOutcome.DEADLOCK:
        return ()
    sentences: list[str] = []
    positions: dict[_Waiting, int] = {}  # in the sentences
    waiting: _Waiting | None = _of_op, run.stuck[0]
    while waiting is not None and waiting not in positions:
        positions[waiting] = len(sentences)
        said_by, number = waiting
        sentence, waiting = said_by(program, run, number)
        sentences.append(sentence)
    return tuple(sentences[0 if waiting is None else positions[waiting] :])


def _of_op(program: Program, run: Run, op: int) -> tuple[str, _Waiting | None]:
    """Say what an op that is not done waits for."""
    name, pool = op_name(program, op), int(program.op_pool[op])
    if run.op_ready[op] == NEVER:
        other = _not_done(run, _sources(program.op_next_ptr, program.op_next, op))
        return f"{name} waits for {op_name(program, other)}", (_of_op, other)
    if run.op_start[op] == NEVER:
        holders = np.flatnonzero((program.op_pool == pool) & (run.op_start != NEVER) & (run.op_done == NEVER))
        other = int(holders[0])
        slot = f"a slot of {program.pool_name(pool)}"
        return f"{name} waits for {slot}, held by {op_name(program, other)}", (_of_op, other)
    setters = _sources(program.op_sets_ptr, program.op_sets, op)
    if run.op_polls[op] and len(setters) and (run.op_done[setters] == NEVER).any():
        other = _not_done(run, setters)
        return f"{name} polls for the flag of {op_name(program, other)}", (_of_op, other)
    blocked = _blocked_on_the_way(program, run, op)
    if blocked is None:
        return f"{name} has begun and cannot end", None
    return f"{name} waits for units that are held up at {program.server_name(blocked)}", (_of_server, blocked)


def _of_server(program: Program, run: Run, server: int) -> tuple[str, _Waiting | None]:
    """Say what a blocked server waits for."""
    hop = int(run.server_blocked[server])
    target = int(program.hop_server[program.hop_next[hop]])
    room = int(program.buffer_units[program.hop_buffer[hop]])
    here, there = program.server_name(server), program.server_name(target)
    sentence = f"server {here} waits for room at {there}, which holds {room} units from {here}"
    return sentence, (_of_server, target) if run.server_blocked[target] != NONE else None


def _blocked_on_the_way(program: Program, run: Run, op: int) -> int | None:
    """A blocked server on the route of a flow of the stage under way that was not delivered, in its last round."""
    for stage in range(int(program.op_stage_ptr[op]), int(program.op_stage_ptr[op + 1])):
        flows = np.arange(program.stage_flow_ptr[stage], program.stage_flow_ptr[stage + 1])
        flows = flows[program.flow_units[flows] > 0]
        polls = bool(program.stage_polls[stage]) and run.op_polls[op] > 1
        for flow in flows[(run.flow_last[flows] == NEVER) | polls].tolist():
            for hop in program.way(flow):
                if run.server_blocked[program.hop_server[hop]] != NONE:
                    return int(program.hop_server[hop])
        if (run.flow_last[flows] == NEVER).any():
            return None  # later stages have not begun
    return None


def _sources(pointers: Int64Array, targets: Int64Array, op: int) -> Int64Array:
    """Ops with an edge into ``op``: for few ops faster than ``_Edges``, which sorts all."""
    return np.searchsorted(pointers, np.flatnonzero(targets == op), side="right") - 1


def _not_done(run: Run, ops: Int64Array) -> int:
    return int(ops[run.op_done[ops] == NEVER][0])
