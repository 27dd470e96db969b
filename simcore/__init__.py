"""The simulator: a Scenario under a Schedule, run exactly at the granularity of cache lines."""

from .budget import RunTooLarge, affordable_unit
from .engine import EngineUnavailable
from .outcome import Outcome
from .result import PACKET_BYTES, Result, Timeline
from .simulate import simulate

__all__ = [
    "PACKET_BYTES",
    "EngineUnavailable",
    "Outcome",
    "Result",
    "RunTooLarge",
    "Timeline",
    "affordable_unit",
    "simulate",
]
