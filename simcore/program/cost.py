"""Estimates of the length of a run: lower bounds that are quick to compute."""

import numpy as np

from .arrays import NONE, FloatArray, Int64Array
from .program import MAX_HORIZON_TICKS, Program


def least_ticks(program: Program) -> float:
    """The busiest server, the fullest pool or the longest chain of ops, each as if it were alone; at least 1."""
    alone = op_ticks_alone(program)
    service = (program.flow_units[program.hop_flow] * program.service_ticks[program.hop_server]).astype(np.float64)
    busy = np.bincount(program.hop_server, service, minlength=program.num_servers)
    pooled = program.op_pool != NONE
    held = np.bincount(program.op_pool[pooled], alone[pooled], minlength=len(program.pool_slots))
    fullest = (held / program.pool_slots).max(initial=0)
    return max(1.0, float(busy.max(initial=0)), float(fullest), _longest_chain(program, alone))


def op_ticks_alone(program: Program) -> FloatArray:
    """[O] from start to done if nothing else ran, no flow of the op disturbed another and no unit queued twice."""
    service = program.service_ticks[program.hop_server]
    slowest = program.flow_gap_ticks.copy()  # [F] between two units at the narrowest place
    np.maximum.at(slowest, program.hop_flow, service)
    passing = (service + program.latency_ticks[program.hop_server]).astype(np.float64)
    one_unit = np.bincount(program.hop_flow, passing, minlength=program.num_flows)
    flow_ticks = program.flow_offset_ticks + (program.flow_units - 1) * slowest.astype(np.float64) + one_unit
    stage_ticks = program.stage_hold_ticks.astype(np.float64)
    has_units = program.flow_units > 0
    np.maximum.at(stage_ticks, program.flow_stage[has_units], flow_ticks[has_units])
    op_ticks = program.op_setup_ticks.astype(np.float64)
    np.add.at(op_ticks, program.stage_op, stage_ticks)
    return op_ticks


def drain_ticks(program: Program) -> Int64Array:
    """[T] ticks in which the units of a stage are served and delivered, were they served one after the other.

    Units of other stages are in the way as well, but then those stages are under way too; units of polls come again and
    again, so of those the service of one round is counted at every hop. Not more than the clock holds.
    """
    service = program.service_ticks.astype(np.float64)[program.hop_server]
    per_unit = service + program.latency_ticks[program.hop_server]
    credit = np.append(program.buffer_credit_ticks, 0).astype(np.float64)[program.hop_buffer]  # NONE is -1, the last
    units = program.flow_units.astype(np.float64)
    polled = program.stage_polls[program.flow_stage][program.hop_flow]
    round_of_polls = np.bincount(
        program.hop_server[polled], (units[program.hop_flow] * service)[polled], minlength=program.num_servers
    )
    hop_ticks = (per_unit + credit + round_of_polls[program.hop_server]) * units[program.hop_flow]
    flow_ticks = units * program.flow_gap_ticks + program.flow_offset_ticks
    flow_ticks += np.bincount(program.hop_flow, hop_ticks, minlength=program.num_flows)
    stage_ticks = program.stage_hold_ticks + np.bincount(program.flow_stage, flow_ticks, minlength=program.num_stages)
    whole: Int64Array = np.minimum(stage_ticks, MAX_HORIZON_TICKS).astype(np.int64)
    return whole


def _longest_chain(program: Program, alone: FloatArray) -> float:
    """Time by which the last op that can run is done, were there slots for all."""
    ticks, ready, waits = alone.tolist(), program.op_release_ticks.tolist(), program.op_num_waits.tolist()
    pointers, followers = program.op_next_ptr.tolist(), program.op_next.tolist()
    todo = [op for op, count in enumerate(waits) if not count]
    longest = 0.0
    while todo:
        op = todo.pop()
        done = ready[op] + ticks[op]
        longest = max(longest, done)
        for follower in followers[pointers[op] : pointers[op + 1]]:
            ready[follower] = max(ready[follower], done)
            waits[follower] -= 1
            if not waits[follower]:
                todo.append(follower)
    return longest
