"""Limits of time and memory of a run, estimated before it begins and watched while it goes on."""

from dataclasses import dataclass, fields

import numpy as np

from ...compiler.text.quantities import bytes_text
from .arrays import NONE, Int64Array
from .program import MAX_HORIZON_TICKS, Program


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


GIB = 1 << 30

SECONDS_PER_LINE_HOP = {"windows": 1 / 15e6, "compiled": 1 / 30e6}
"""Measured with ``benchmarks.simcore`` on one core of a server CPU, on the slow side: wide machines do better."""

BYTES_PER_UNIT = 24
"""Measured: peak memory over units under way at that time, of flows that inject far faster than is served."""

_COPIES = 4
"""Size of a core's own tables over that of the Program's arrays; measured 2 to 3."""


class RunTooLarge(ValueError):
    """The run would take longer, or more memory, than it is allowed; the text says how much and what lowers it."""


@dataclass(frozen=True, slots=True)
class RunBudget:
    """Limits of a run.

    ``seconds`` is held against the estimate only, unless ``strict_seconds``: what is stopped by a clock ends elsewhere
    on every machine. ``memory_bytes`` is what the run needs beyond the program it is given.
    """

    seconds: float = 240.0
    memory_bytes: int = 4 * GIB
    strict_seconds: bool = False

    def __post_init__(self) -> None:
        """Refuse limits that are not positive."""
        if not self.seconds > 0 or self.memory_bytes <= 0:
            raise ValueError(f"a budget is positive, not {self.seconds} s and {self.memory_bytes} bytes")


DEFAULT_BUDGET = RunBudget()


def estimated_seconds(program: Program, core: str) -> float:
    """Time on ``core``, estimated by line-hops alone."""
    return program.num_line_hops * SECONDS_PER_LINE_HOP[core]


def least_bytes(program: Program) -> int:
    """Least memory needed by a core: its tables, buffers, and units that are injected all at once.

    Those are the units of the largest stage, or of all ops with which the program begins.
    """
    tables = (getattr(program, field.name) for field in fields(program))
    num_bytes = sum(table.nbytes for table in tables if isinstance(table, np.ndarray))
    held_back = program.flow_window_units > 0
    at_once = np.where(held_back, np.minimum(program.flow_units, program.flow_window_units), program.flow_units)
    at_once[(program.flow_gap_ticks > 0) & ~held_back] = 1
    by_stage = np.bincount(program.flow_stage, at_once, minlength=program.num_stages)  # float, so that no sum wraps
    begins = (program.op_num_waits == 0) & (program.op_pool == NONE) & (np.diff(program.op_stage_ptr) > 0)
    burst = max(by_stage.max(initial=0), by_stage[program.op_stage_ptr[:-1][begins]].sum())
    return int(_COPIES * num_bytes + BYTES_PER_UNIT * (burst + program.buffer_units.sum()))


def check_budget(program: Program, core: str, budget: RunBudget) -> None:
    """Refuse a run of ``program`` that is over the budget before it begins.

    Raises
    ------
    RunTooLarge
        With the estimate and what lowers it.
    """
    seconds, num_bytes = estimated_seconds(program, core), least_bytes(program)
    if seconds > budget.seconds:
        raise RunTooLarge(
            f"about {program.num_line_hops:.1e} line-hops would take about {seconds:.3g} s on the core {core}, the "
            f"limit is {budget.seconds:.3g} s: simulate in packets, fold symmetric ranks, or allow more time"
        )
    if num_bytes > budget.memory_bytes:
        raise RunTooLarge(
            f"the run needs about {bytes_text(num_bytes)}, the limit is {bytes_text(budget.memory_bytes)}: "
            "simulate in packets, fold symmetric ranks, or allow more memory"
        )
