"""What follows from when flows were delivered, however they were simulated: units, line-hops and busy times."""

import numpy as np

from .layout import Int64Array
from .outcome import NEVER
from .program import Program, TrafficClass


def units_delivered(program: Program, flow_last: Int64Array, op_polls: Int64Array) -> Int64Array:
    """[F] units of flows that were delivered, those of polls as often as they were made."""
    rounds = np.where(program.stage_polls, op_polls[program.stage_op], 1)[program.flow_stage]
    return np.where(flow_last == NEVER, 0, program.flow_units * rounds)


def busy_ticks(program: Program, flow_last: Int64Array, op_polls: Int64Array) -> Int64Array:
    """[S, TrafficClass] service given to flows that were delivered: a sum over flow-hops, no matter when."""
    units = units_delivered(program, flow_last, op_polls)[program.hop_flow]  # [H]
    busy = np.zeros((program.num_servers, len(TrafficClass)), np.int64)
    traffic = program.flow_traffic[program.hop_flow]
    np.add.at(busy, (program.hop_server, traffic), units * program.service_ticks[program.hop_server])
    return busy
