"""Deadlocks in which ops poll for flags that nobody will set.

The number of such polls depends on when a core notices. So that all cores give the same integers, the run is repeated
with a time after which no poll begins again: the last time at which an op got ready, began or ended. Polls may hold
room that matters to stuck ops after that; then the time is put off by 1, 3, 7 ... ticks until the same ops are stuck.
"""

from collections.abc import Callable

import numpy as np

from ..program.outcome import NEVER, Run, RunOutcome
from ..program.program import Program


def polls_in_vain(program: Program, run: Run) -> bool:
    """Whether ``run`` ended in a deadlock with an op that polls for the flag of an op that is never done."""
    if run.outcome is not RunOutcome.DEADLOCK or not len(program.op_sets):
        return False
    stuck = run.op_done == NEVER
    setter = np.repeat(np.arange(program.num_ops), np.diff(program.op_sets_ptr))
    pollers = program.op_sets[stuck[setter]]
    return bool((stuck[pollers] & (run.op_polls[pollers] > 0)).any())


def at_rest(run: Run, again: Callable[[int], Run]) -> Run:
    """The run that stands for ``run``; ``again`` makes one in which no poll begins again after a time in ticks."""
    last, later = max(int(times.max()) for times in (run.op_ready, run.op_start, run.op_done)), 0
    while True:
        repeated = again(last + later)
        if repeated.outcome is not RunOutcome.DEADLOCK or _same_times(repeated, run):
            return repeated
        later = 2 * later + 1


def _same_times(one: Run, other: Run) -> bool:
    """Whether the same happened to all ops."""
    pairs = ((one.op_ready, other.op_ready), (one.op_start, other.op_start), (one.op_done, other.op_done))
    return all(np.array_equal(*pair) for pair in pairs)
