"""Servers that wait for room for ever, and the ops whose units they hold."""

import numpy as np

from ..program.arrays import NONE, BoolArray, Int64Array
from ..program.program import Program


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
