"""What is wrong on purpose, to see that comparisons notice."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from magus.simcore.program.arrays import NONE
from magus.simcore.program.program import Program

WindowFn = Callable[[Program], int]


def half_as_long_again(exact: WindowFn) -> WindowFn:
    """Windows in which a unit can meet what it has brought about."""
    return lambda program: -(-3 * exact(program) // 2)


def with_ties_backwards(program: Program) -> Program:
    """The same program, its flow-hops numbered from the last to the first."""
    top = program.num_hops - 1
    following = np.where(program.hop_next == NONE, NONE, top - program.hop_next)
    return replace(
        program,
        hop_server=program.hop_server[::-1].copy(),
        hop_flow=program.hop_flow[::-1].copy(),
        hop_index=program.hop_index[::-1].copy(),
        hop_next=following[::-1].copy(),
        hop_buffer=program.hop_buffer[::-1].copy(),
        flow_first_hop=top - program.flow_first_hop,
    )


def with_wider_windows(program: Program) -> Program:
    """One unit more under way."""
    return replace(program, flow_window_units=program.flow_window_units + (program.flow_window_units > 0))


def with_larger_buffers(program: Program) -> Program:
    """Room for one unit more."""
    return replace(program, buffer_units=program.buffer_units + 1)


def with_later_credits(program: Program) -> Program:
    """Room can be used one tick later."""
    return replace(program, buffer_credit_ticks=program.buffer_credit_ticks + 1)


def with_slower_polls(program: Program) -> Program:
    """One tick more from poll to poll."""
    return replace(program, stage_hold_ticks=program.stage_hold_ticks + program.stage_polls)


def with_no_priorities(program: Program) -> Program:
    """Whoever was ready first is served first."""
    return replace(program, op_priority=np.zeros_like(program.op_priority))
