"""The simulator: a Scenario under a Schedule, run exactly at the granularity of cache lines."""

from .cores.engine import EngineUnavailable, runs_compiled
from .figures.critical_path import Cause, CriticalOp
from .figures.result import Result, ServerLoad, Timeline
from .fold.run import DEFAULT_OPTIONS, RunOptions
from .lower.budget import affordable_unit
from .program.limits import RunTooLarge
from .program.outcome import RunOutcome
from .program.program import PACKET_BYTES
from .seeds import simulate_seeds
from .simulate import WhatIf, record_writes, simulate

__all__ = [
    "DEFAULT_OPTIONS",
    "PACKET_BYTES",
    "Cause",
    "CriticalOp",
    "EngineUnavailable",
    "Result",
    "RunOptions",
    "RunOutcome",
    "RunTooLarge",
    "ServerLoad",
    "Timeline",
    "WhatIf",
    "affordable_unit",
    "record_writes",
    "runs_compiled",
    "simulate",
    "simulate_seeds",
]
