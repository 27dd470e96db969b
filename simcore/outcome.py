"""How a run of the simulator ended, and the integers it found."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .layout import Int64Array

NEVER = -1
"""Time of something that did not happen."""

WatchFn = Callable[[int], bool]
"""Called now and then with the line-hops simulated so far; the run stops where it returns True."""


class Outcome(Enum):
    """How a run ended; the value says it in a sentence, with the remedy."""

    DONE = "every op finished"
    DEADLOCK = (
        "some ops can never start: look for ops that wait for each other, "
        "or that hold all slots of a pool while they wait for one"
    )
    CANCELLED = "stopped on request before the end: the times found so far are exact, the rest is missing"
    LIMIT = (
        "not simulated, it has more line-hops than allowed: use the packet granularity, fold symmetric ranks "
        "or raise the limit"
    )


@dataclass(frozen=True)
class Run:
    """What the simulator found. Axes as in ``Program``; times in ticks, NEVER where it did not happen."""

    outcome: Outcome
    makespan_ticks: int  # the last op to finish; 0 if none did
    op_ready: Int64Array  # [O] nothing left to wait for
    op_start: Int64Array  # [O] slot acquired
    op_done: Int64Array  # [O] last stage over, slot given back
    flow_last: Int64Array  # [F] delivery of the flow's last unit
    server_free: Int64Array  # [S] departure of the last unit served; 0 if none was
    server_busy_ticks: Int64Array  # [S, TrafficClass] spent serving flows that were delivered
    line_hops: int  # units served, summed over servers
    windows: int  # array passes made; 0 for the heap core
    core: str  # which core ran; both give the same integers
    stuck: tuple[int, ...]  # ops that never finished, when the outcome is DEADLOCK


@dataclass(frozen=True, slots=True)
class Served:
    """What a core hands back about units; the ops are in its ``Control``."""

    flow_last: Int64Array  # [F] as in Run
    server_free: Int64Array  # [S] as in Run
    line_hops: int
    windows: int
    cancelled: bool
