"""Figures that follow from the delivery times of flows on any core: units, line-hops and busy times."""

import numpy as np

from ..program.arrays import FloatArray, Int64Array
from ..program.limits import drain_ticks
from ..program.outcome import NEVER
from ..program.program import Program, TrafficClass


def units_delivered(program: Program, flow_last: Int64Array, op_polls: Int64Array) -> Int64Array:
    """[F] units of the flows that were delivered; polls count once per round."""
    rounds = np.where(program.stage_polls, op_polls[program.stage_op], 1)[program.flow_stage]
    return np.where(flow_last == NEVER, 0, program.flow_units * rounds)


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
    units = units_delivered(program, flow_last, op_polls)[program.hop_flow]  # [H]
    busy = np.zeros((program.num_servers, len(TrafficClass)), np.int64)
    traffic = program.flow_traffic[program.hop_flow]
    np.add.at(busy, (program.hop_server, traffic), units * program.service_ticks[program.hop_server])
    return busy
