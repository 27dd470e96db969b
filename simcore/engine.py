"""Runs a Program: picks the core that suits it and puts what it found into a ``Run``.

Both cores give the same integers, so the choice is one of speed alone. The windowed core works on arrays and pays some
fifty microseconds a window whatever is in it; the heap core pays well under a microsecond for each unit.
"""

from collections.abc import Callable
from enum import Enum

import numpy as np

from . import heap, windows
from .control import Control
from .estimate import least_ticks
from .layout import Int64Array
from .outcome import NEVER, Outcome, Run, Served
from .program import Program, TrafficClass

__all__ = ["Core", "Outcome", "Run", "run", "suitable_core"]

MIN_LINE_HOPS = 3_000
"""Below this many line-hops in all, setting up arrays is not worth it."""

MIN_LINE_HOPS_A_WINDOW = 70
"""Below this many line-hops in a window, the fixed cost of one is higher than that of the heap for the same units."""


class Core(Enum):
    """A way to simulate units."""

    WINDOWS = "windows"
    HEAP = "heap"


def run(
    program: Program,
    *,
    core: Core | None = None,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    max_line_hops: int | None = None,
) -> Run:
    """Simulate ``program`` to the end.

    Parameters
    ----------
    program
        What to run.
    core
        Which core to use; by default the one that should be faster.
    should_stop
        Asked now and then; the run is CANCELLED when it says yes.
    progress
        Told now and then how many line-hops have been simulated.
    max_line_hops
        Refuse, with the outcome LIMIT, what has more line-hops than this.
    """
    if max_line_hops is not None and program.num_line_hops > max_line_hops:
        return _refused(program)

    def watch(line_hops: int) -> bool:
        if progress is not None:
            progress(line_hops)
        return should_stop is not None and should_stop()

    if core is None:
        core = suitable_core(program)
    if core is Core.WINDOWS:
        try:
            control, served = windows.simulate(program, watch)
        except windows.KeyWidthError:  # the heap's integers have no width
            core = Core.HEAP
    if core is Core.HEAP:
        control, served = heap.simulate(program, watch)
    return _run(program, core, control, served)


def suitable_core(program: Program) -> Core:
    """The core that should simulate ``program`` faster."""
    line_hops = program.num_line_hops
    if line_hops < MIN_LINE_HOPS:
        return Core.HEAP
    line_hops_a_window = line_hops * windows.window_ticks(program) / least_ticks(program)
    return Core.HEAP if line_hops_a_window < MIN_LINE_HOPS_A_WINDOW else Core.WINDOWS


def _run(program: Program, core: Core, control: Control, served: Served) -> Run:
    done = np.array(control.done, np.int64)
    unfinished = np.flatnonzero(done == NEVER)
    outcome = Outcome.DONE
    stuck: tuple[int, ...] = ()
    if served.cancelled:
        outcome = Outcome.CANCELLED
    elif len(unfinished):
        outcome, stuck = Outcome.DEADLOCK, tuple(unfinished.tolist())
    return Run(
        outcome=outcome,
        makespan_ticks=max(0, int(done.max(initial=0))),
        op_ready=np.array(control.ready, np.int64),
        op_start=np.array(control.start, np.int64),
        op_done=done,
        flow_last=served.flow_last,
        server_free=served.server_free,
        server_busy_ticks=_busy_ticks(program, served.flow_last),
        line_hops=served.line_hops,
        windows=served.windows,
        core=core.value,
        stuck=stuck,
    )


def _busy_ticks(program: Program, flow_last: Int64Array) -> Int64Array:
    """[S, TrafficClass] service given to flows that were delivered: a sum over flow-hops, no matter when."""
    delivered = np.where(flow_last == NEVER, 0, program.flow_units)[program.hop_flow]  # [H]
    busy = np.zeros((program.num_servers, len(TrafficClass)), np.int64)
    traffic = program.flow_traffic[program.hop_flow]
    np.add.at(busy, (program.hop_server, traffic), delivered * program.service_ticks[program.hop_server])
    return busy


def _refused(program: Program) -> Run:
    never = np.full(program.num_ops, NEVER, np.int64)
    nothing = Served(np.full(program.num_flows, NEVER, np.int64), np.zeros(program.num_servers, np.int64), 0, 0, False)
    return Run(
        outcome=Outcome.LIMIT,
        makespan_ticks=0,
        op_ready=never,
        op_start=never,
        op_done=never,
        flow_last=nothing.flow_last,
        server_free=nothing.server_free,
        server_busy_ticks=_busy_ticks(program, nothing.flow_last),
        line_hops=0,
        windows=0,
        core="none",
        stuck=(),
    )
