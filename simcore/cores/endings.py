"""What follows from the times that a core finds: traffic and waits, servers that wait for room for ever, polls in vain.

In some deadlocks ops poll for flags that nobody will set. The number of such polls depends on when a core notices. So
that both cores give the same integers, the run is repeated with a time after which no poll begins again: the last time
at which an op got ready, began or ended. Polls may hold room that matters to stuck ops after that; then the time is put
off by 1, 3, 7 ... ticks until the same ops are stuck.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..program.arrays import NONE, BoolArray, FloatArray, Int64Array
from ..program.limits import drain_ticks
from ..program.program import NEVER, OpKind, Program, Run, RunOutcome, TrafficClass


def units_delivered(program: Program, flow_last: Int64Array, op_polls: Int64Array) -> Int64Array:
    """[F] units of the flows that were delivered; polls count once per round."""
    units = np.where(flow_last == NEVER, 0, program.flow_units)
    if program.stage_polls.any():
        units *= np.where(program.stage_polls, op_polls[program.stage_op], 1).take(program.flow_stage)
    return units


def wait_shift(program: Program) -> int:
    """Bits to drop from each wait of a unit, so that no sum of waits overflows an int64; 0 for all but huge runs."""
    units = float(np.bincount(program.hop_flow, program.flow_units[program.hop_flow]).max(initial=0)) + 1
    most = units * (float(drain_ticks(program).sum(dtype=np.float64)) + float(program.op_release_ticks.max(initial=0)))
    polls = 20 if program.stage_polls.any() else 0  # a million rounds
    return max(0, int(most).bit_length() + polls - 62)


def wait_ticks(sums: Int64Array, shift: int) -> FloatArray:
    """[H] sums of waits in ticks; ``sums`` has ``shift`` bits dropped from each wait."""
    return sums.astype(np.float64) * 2.0**shift


def busy_ticks(program: Program, flow_last: Int64Array, op_polls: Int64Array) -> Int64Array:
    """[S, TrafficClass] service time of the flows that were delivered, summed over flow-hops."""
    units = units_delivered(program, flow_last, op_polls).take(program.hop_flow)  # [H]
    kinds = len(TrafficClass)
    place = program.hop_server * kinds + program.flow_traffic.take(program.hop_flow)
    served = np.bincount(place, units, program.num_servers * kinds)  # floats, exact: nobody serves 2^53 units
    return served.astype(np.int64).reshape(-1, kinds) * program.service_ticks[:, None]


def without_later_traffic(program: Program, run: Run) -> Run:
    """Return ``run`` as if it had ended with the plan: writes that begin later did not happen."""
    later = (program.op_kind == OpKind.TRAFFIC) & (program.op_release_ticks >= run.makespan_ticks)  # [O]
    ready, start, done = (np.where(later, NEVER, each) for each in (run.op_ready, run.op_start, run.op_done))
    flow_last = np.where(later[program.stage_op[program.flow_stage]], NEVER, run.flow_last)  # [F]
    busy = busy_ticks(program, flow_last, run.op_polls)
    return replace(run, op_ready=ready, op_start=start, op_done=done, flow_last=flow_last, server_busy_ticks=busy)


def locked_servers(program: Program, head_hop: Int64Array) -> BoolArray:
    """[S] whether a server waits for room at one that waits for room at another, and so on in a circle.

    ``head_hop`` [S] is the hop of the unit for which the server has no room where it goes, NONE where it has.
    """
    locked: BoolArray = head_hop != NONE
    target = np.arange(len(locked))
    target[locked] = program.hop_server[program.hop_next[head_hop[locked]]]
    while (locked & ~locked[target]).any():
        locked = locked & locked[target]
    return locked


def stuck_ops(program: Program, held_hops: Int64Array, flows_left: Int64Array) -> set[int]:
    """Ops that can never end, since each flow of their stage that is not delivered has units in a locked line.

    ``held_hops`` are the hops of units in the lines of locked servers; ``flows_left`` [T] are to be delivered.
    """
    flows = np.unique(program.hop_flow[held_hops])
    stages, num_flows = np.unique(program.flow_stage[flows], return_counts=True)
    return set(program.stage_op[stages[num_flows == flows_left[stages]]].tolist())


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
