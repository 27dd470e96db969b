"""Runs a Program: picks the core that suits it and puts what it found into a ``Run``.

All cores give the same integers, so the choice is one of speed alone. The windowed core works on arrays and pays some
fifty microseconds a window whatever is in it; the heap core pays well under a microsecond for each unit. The compiled
core is faster than either, but needs numba, and loading numba and its code takes about as long as a million line-hops
on the others. The choice depends on the program and on what is installed, never on what ran before.
"""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from . import heap, windows
from .estimate import least_ticks
from .layout import Int64Array
from .outcome import NEVER, Outcome, Run, Served, WatchFn
from .program import Program, TrafficClass

__all__ = ["Core", "EngineUnavailable", "Outcome", "Run", "pure_core", "run", "suitable_core"]

ENVIRONMENT_VARIABLE = "MAGUS_ENGINE"
"""Names the core for all runs that are not given one; processes inherit it."""

MIN_LINE_HOPS = 3_000
"""Below this many line-hops in all, setting up arrays is not worth it."""

MIN_LINE_HOPS_A_WINDOW = 70
"""Below this many line-hops in a window, the fixed cost of one is higher than that of the heap for the same units."""


MIN_LINE_HOPS_COMPILED = 1_000_000
"""Below this many line-hops, loading numba costs more than one run could save; it is loaded once a process."""


class Core(Enum):
    """A way to simulate units."""

    WINDOWS = "windows"
    HEAP = "heap"
    COMPILED = "compiled"


class EngineUnavailable(ValueError):
    """The core asked for does not exist or is not installed; the text says what to do."""


class _OpTimes(Protocol):
    """Times of ops in ticks, [O] each."""

    @property
    def ready(self) -> Sequence[int] | Int64Array: ...

    @property
    def start(self) -> Sequence[int] | Int64Array: ...

    @property
    def done(self) -> Sequence[int] | Int64Array: ...


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

    Raises
    ------
    EngineUnavailable
        If ``core``, or the one named by the environment variable MAGUS_ENGINE, cannot be used here.
    """
    if max_line_hops is not None and program.num_line_hops > max_line_hops:
        return _refused(program)

    def watch(line_hops: int) -> bool:
        if progress is not None:
            progress(line_hops)
        return should_stop is not None and should_stop()

    demanded = core or _core_from_environment()
    core = demanded or suitable_core(program)
    ops: _OpTimes
    if core is Core.COMPILED:
        try:
            ops, served = _simulate_compiled(program, watch)
        except EngineUnavailable:
            if demanded:
                raise
            core = pure_core(program)
    if core is Core.WINDOWS:
        try:
            ops, served = windows.simulate(program, watch)
        except windows.KeyWidthError:  # the heap's integers have no width
            core = Core.HEAP
    if core is Core.HEAP:
        ops, served = heap.simulate(program, watch)
    return _run(program, core, ops, served)


def suitable_core(program: Program) -> Core:
    """The core that should simulate ``program`` fastest, of those that are installed."""
    if program.num_line_hops >= MIN_LINE_HOPS_COMPILED and _has_numba():
        return Core.COMPILED
    return pure_core(program)


def pure_core(program: Program) -> Core:
    """The core that should simulate ``program`` fastest, of those that are always there."""
    line_hops = program.num_line_hops
    if line_hops < MIN_LINE_HOPS:
        return Core.HEAP
    line_hops_a_window = line_hops * windows.window_ticks(program) / least_ticks(program)
    return Core.HEAP if line_hops_a_window < MIN_LINE_HOPS_A_WINDOW else Core.WINDOWS


def _core_from_environment() -> Core | None:
    name = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not name:
        return None
    try:
        return Core(name)
    except ValueError:
        names = ", ".join(core.value for core in Core)
        message = f"{ENVIRONMENT_VARIABLE} is {name!r}, which is no core of the simulator: choose one of {names}"
        raise EngineUnavailable(message) from None


@cache
def _has_numba() -> bool:
    """Whether numba is installed, found out without loading it."""
    return find_spec("numba") is not None


def _simulate_compiled(program: Program, watch: WatchFn) -> tuple[_OpTimes, Served]:
    """Run the compiled core, loaded by now."""
    try:
        from . import compiled
    except ImportError as error:
        raise EngineUnavailable(
            f"the compiled core of the simulator needs numba, which does not load here ({error}): "
            "pip install 'magus-gpu[fast]', or choose the core windows or heap"
        ) from error
    return compiled.simulate(program, watch)


def _run(program: Program, core: Core, ops: _OpTimes, served: Served) -> Run:
    done = np.array(ops.done, np.int64)
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
        op_ready=np.array(ops.ready, np.int64),
        op_start=np.array(ops.start, np.int64),
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
