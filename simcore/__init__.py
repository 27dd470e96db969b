"""The simulator: a plan on a system, run exactly at the granularity of cache lines."""

from .cores.engine import EngineUnavailable, load_core, runs_compiled
from .figures.critical_path import Cause, CriticalOp
from .figures.load_buckets import exposed_spans
from .figures.metrics import DataFlow, data_flows
from .figures.result import Load, LoadKind, Loads, OpResult, Result, ServerLoad, Timeline
from .fold.run import DEFAULT_OPTIONS, RunOptions
from .lower.budget import affordable_unit, check_unlike, line_hops
from .lower.plan import plan_of
from .program.limits import RunTooLarge
from .program.program import PACKET_BYTES, RunOutcome
from .shown_run import ShownRun, run_of
from .simulate import WhatIf, record_writes, simulate, simulate_op, simulate_seeds

__all__ = [
    "DEFAULT_OPTIONS",
    "Load",
    "LoadKind",
    "Loads",
    "PACKET_BYTES",
    "Cause",
    "CriticalOp",
    "DataFlow",
    "EngineUnavailable",
    "OpResult",
    "Result",
    "RunOptions",
    "RunOutcome",
    "RunTooLarge",
    "ServerLoad",
    "ShownRun",
    "Timeline",
    "WhatIf",
    "affordable_unit",
    "check_unlike",
    "data_flows",
    "exposed_spans",
    "line_hops",
    "load_core",
    "plan_of",
    "record_writes",
    "run_of",
    "runs_compiled",
    "simulate",
    "simulate_op",
    "simulate_seeds",
]
