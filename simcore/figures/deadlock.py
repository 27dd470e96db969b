"""The circle of waits of a run that ended in a deadlock, in words."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..program.arrays import NONE, Int64Array
from ..program.checks import op_name
from ..program.outcome import NEVER, Run, RunOutcome
from ..program.program import Program


class _Kind(Enum):
    OP = 1
    SERVER = 2


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An op that is not done, or a server whose first unit has no room where it goes."""

    kind: _Kind
    number: int


def circle_of_waits(program: Program, run: Run) -> tuple[str, ...]:
    """Sentences, each of which says what something waits for; the last waits for the first.

    ``run`` is one of ``program`` with the outcome DEADLOCK; otherwise there are none.
    """
    if run.outcome is not RunOutcome.DEADLOCK:
        return ()
    sentences: list[str] = []
    positions: dict[_Waiting, int] = {}  # in the sentences
    waiting: _Waiting | None = _Waiting(_Kind.OP, run.stuck[0])
    while waiting is not None and waiting not in positions:
        positions[waiting] = len(sentences)
        if waiting.kind is _Kind.OP:
            sentence, waiting = _of_op(program, run, waiting.number)
        else:
            sentence, waiting = _of_server(program, run, waiting.number)
        sentences.append(sentence)
    return tuple(sentences[0 if waiting is None else positions[waiting] :])


def _of_op(program: Program, run: Run, op: int) -> tuple[str, _Waiting | None]:
    """Say what an op that is not done waits for."""
    name, pool = op_name(program, op), int(program.op_pool[op])
    if run.op_ready[op] == NEVER:
        other = _not_done(run, _sources(program.op_next_ptr, program.op_next, op))
        return f"{name} waits for {op_name(program, other)}", _Waiting(_Kind.OP, other)
    if run.op_start[op] == NEVER:
        holders = np.flatnonzero((program.op_pool == pool) & (run.op_start != NEVER) & (run.op_done == NEVER))
        other = int(holders[0])
        slot = f"a slot of {program.pool_name(pool)}"
        return f"{name} waits for {slot}, held by {op_name(program, other)}", _Waiting(_Kind.OP, other)
    setters = _sources(program.op_sets_ptr, program.op_sets, op)
    if run.op_polls[op] and len(setters) and (run.op_done[setters] == NEVER).any():
        other = _not_done(run, setters)
        return f"{name} polls for the flag of {op_name(program, other)}", _Waiting(_Kind.OP, other)
    blocked = _blocked_on_the_way(program, run, op)
    if blocked is None:
        return f"{name} has begun and cannot end", None
    held_up = f"{name} waits for units that are held up at {program.server_name(blocked)}"
    return held_up, _Waiting(_Kind.SERVER, blocked)


def _of_server(program: Program, run: Run, server: int) -> tuple[str, _Waiting | None]:
    """Say what a blocked server waits for."""
    hop = int(run.server_blocked[server])
    target = int(program.hop_server[program.hop_next[hop]])
    room = int(program.buffer_units[program.hop_buffer[hop]])
    here, there = program.server_name(server), program.server_name(target)
    sentence = f"server {here} waits for room at {there}, which holds {room} units from {here}"
    return sentence, _Waiting(_Kind.SERVER, target) if run.server_blocked[target] != NONE else None


def _blocked_on_the_way(program: Program, run: Run, op: int) -> int | None:
    """A blocked server on the route of a flow of the stage under way that was not delivered, in its last round."""
    stages = range(int(program.op_stage_ptr[op]), int(program.op_stage_ptr[op + 1]))
    for stage in stages:
        flows = np.arange(program.stage_flow_ptr[stage], program.stage_flow_ptr[stage + 1])
        flows = flows[program.flow_units[flows] > 0]
        polls = bool(program.stage_polls[stage]) and run.op_polls[op] > 1
        for flow in flows[(run.flow_last[flows] == NEVER) | polls].tolist():
            hop = int(program.flow_first_hop[flow])
            while hop != NONE:
                if run.server_blocked[program.hop_server[hop]] != NONE:
                    return int(program.hop_server[hop])
                hop = int(program.hop_next[hop])
        if (run.flow_last[flows] == NEVER).any():
            return None  # later stages have not begun
    return None


def _sources(pointers: Int64Array, targets: Int64Array, op: int) -> Int64Array:
    """Ops with an edge into ``op``."""
    return np.searchsorted(pointers, np.flatnonzero(targets == op), side="right") - 1


def _not_done(run: Run, ops: Int64Array) -> int:
    return int(ops[run.op_done[ops] == NEVER][0])
