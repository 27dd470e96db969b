"""The simulator: a Scenario under a Schedule, run exactly at the granularity of cache lines."""

from .budget import affordable_unit
from .critical import Cause, CriticalOp
from .engine import EngineUnavailable
from .limits import RunTooLarge
from .outcome import RunOutcome
from .result import PACKET_BYTES, Result, ServerLoad, Timeline
from .seeds import simulate_seeds
from .simulate import record_writes, simulate

__all__ = [
    "PACKET_BYTES",
    "Cause",
    "CriticalOp",
    "EngineUnavailable",
    "RunOutcome",
    "Result",
    "RunTooLarge",
    "ServerLoad",
    "Timeline",
    "affordable_unit",
    "record_writes",
    "simulate",
    "simulate_seeds",
]
