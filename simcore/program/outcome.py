"""Outcome of a run, and the integers it found."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .arrays import FloatArray, Int64Array

NEVER = -1
"""Time of something that did not happen."""


class WatchFn(Protocol):
    """Called now and then with the line-hops simulated and the bytes held so far; the run stops where it says so."""

    def __call__(self, line_hops: int, held_bytes: int = 0, /) -> bool:
        """Whether to stop."""


class RunOutcome(Enum):
    """End of a run; the value is a sentence, with the remedy."""

    DONE = "every op finished"
    DEADLOCK = (
        "some ops can never finish: look for polls whose flag waits for them, and for servers that wait for room in "
        "each other's buffers"
    )
    CANCELLED = "stopped on request before the end: the times found so far are exact, the rest is missing"
    TIME = (
        "stopped at the time limit: the times found so far are exact, the rest is missing; use the packet granularity, "
        "fold symmetric ranks or allow more time"
    )
    MEMORY = (
        "stopped at the memory limit: the times found so far are exact, the rest is missing; use the packet "
        "granularity, give flows a window or allow more memory"
    )


@dataclass(frozen=True)
class Run:
    """Result of a core. Axes as in ``Program``; times in ticks, NEVER where it did not happen."""

    outcome: RunOutcome
    makespan_ticks: int  # the last op to finish; 0 if none did
    op_ready: Int64Array  # [O] nothing left to wait for
    op_start: Int64Array  # [O] slot acquired
    op_done: Int64Array  # [O] last stage over, slot given back
    op_polls: Int64Array  # [O] times the op's polling stage began; 0 without one
    flow_last: Int64Array  # [F] delivery of the flow's last unit, of one that is polled in the last round delivered
    server_free: Int64Array  # [S] departure of the last unit served; 0 if none was
    server_blocked: Int64Array  # [S] hop of the unit that waits for room where it goes; NONE at the end of most runs
    server_busy_ticks: Int64Array  # [S, TrafficClass] spent serving flows that were delivered
    line_hops: int  # units served, summed over servers
    windows: int  # array passes made; 0 for cores that make none
    core: str  # which core ran; all give the same integers
    stuck: tuple[int, ...]  # ops that never finished, when the outcome is DEADLOCK
    hop_wait_ticks: FloatArray | None = None  # [H] from arrival to service, summed over units; None if not observed


@dataclass(frozen=True, slots=True)
class Served:
    """Results of a core about units; those about ops are in its ``Control``."""

    flow_last: Int64Array  # [F] as in Run
    server_free: Int64Array  # [S] as in Run
    line_hops: int
    windows: int
    cancelled: bool  # stopped by the watch
    server_blocked: Int64Array | None = None  # [S] as in Run, None if no server is
    hop_wait_ticks: FloatArray | None = None  # [H] as in Run
