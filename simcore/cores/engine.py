"""Run a Program: pick the core that suits it and put its results into a ``Run``.

Both cores give the same integers, so the choice is one of speed alone. The windowed core works on arrays and pays some
fifty microseconds per window, however thin. The compiled core is many times as fast, but loading numba and its code
takes some tenths of a second, once a process. The choice depends on the program and on what is installed, never on what
ran before.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from ...compiler.ir import ShouldStop, StepsDone
from ..program.arrays import NONE
from ..program.limits import DEFAULT_BUDGET, RunBudget, check_budget
from ..program.program import NEVER, OpKind, Program, Run, RunOutcome, Served, WatchFn
from . import windows
from .endings import at_rest, busy_ticks, locked_servers, polls_in_vain
from .keys import KeyWidthError
from .op_scheduler import IDLE

__all__ = ["Core", "EngineUnavailable", "RunOutcome", "Run", "run", "suitable_core"]

ENVIRONMENT_VARIABLE = "MAGUS_ENGINE"
"""Name of the core for all runs that are not given one; worker processes inherit it."""

MIN_LINE_HOPS_COMPILED = 2_000
"""Below this many line-hops, a dozen runs in windows take less time than loading numba."""


class Core(Enum):
    """A way to simulate units."""

    WINDOWS = "windows"
    COMPILED = "compiled"


class EngineUnavailable(ValueError):
    """The core asked for does not exist or is not installed; the text says what to do."""


SimulateFn = Callable[[Program, WatchFn, bool, int], Served]
"""A core: takes the program, the watch, whether to observe, and the time after which no poll begins again."""


def run(
    program: Program,
    *,
    core: Core | None = None,
    observe: bool = False,
    should_stop: ShouldStop | None = None,
    progress: StepsDone | None = None,
    budget: RunBudget = DEFAULT_BUDGET,
) -> Run:
    """Simulate ``program`` to the end.

    Parameters
    ----------
    program
        What to run.
    core
        Which core to use; by default the one that should be faster.
    observe
        Whether to find out how long units waited at each flow-hop, which takes some more time.
    should_stop
        Asked now and then; the run is CANCELLED when it says yes.
    progress
        Told now and then how many line-hops have been simulated.
    budget
        What the run may take.

    Raises
    ------
    EngineUnavailable
        If ``core``, or the one named by the environment variable MAGUS_ENGINE, cannot be used here.
    RunTooLarge
        If it is known before that the run would take more than ``budget``, or does not fit the keys of the only core.
    """
    if core is not None and not isinstance(core, Core):
        raise EngineUnavailable(
            f"{core!r} is no core of the simulator: choose one of Core.{', Core.'.join(Core.__members__)}"
        )
    demanded = core or core_from_environment()
    core = demanded or suitable_core(program)
    check_budget(program, core.value, budget)
    watch = Watch(budget, should_stop, progress)
    try:
        return _simulate(program, core, watch, observe)
    except EngineUnavailable:
        if demanded is not None:
            raise
        core = Core.WINDOWS
    except KeyWidthError:
        if demanded is not None or not has_numba():
            raise
        core = Core.COMPILED
    check_budget(program, core.value, budget)
    return _simulate(program, core, watch, observe)


def _simulate(program: Program, core: Core, watch: "Watch", observe: bool) -> Run:
    """Run ``program``, again if ops go on polling for ever."""
    simulate: SimulateFn = _simulate_compiled if core is Core.COMPILED else windows.simulate

    def until(last_poll_ticks: int) -> Run:
        return _finished_run(program, core, simulate(program, watch, observe, last_poll_ticks), watch.verdict)

    result = until(IDLE)
    return at_rest(result, until) if polls_in_vain(program, result) else result


class Watch:
    """Progress and limits of a run under way; ``verdict`` is the reason why it was stopped."""

    def __init__(self, budget: RunBudget, should_stop: ShouldStop | None, progress: StepsDone | None) -> None:
        self._budget, self._should_stop, self._progress = budget, should_stop, progress
        self._begin = time.monotonic()
        self.verdict = RunOutcome.DONE

    def __call__(self, line_hops: int, held_bytes: int = 0, /) -> bool:
        if self._progress is not None:
            self._progress(line_hops)
        if self._should_stop is not None and self._should_stop():
            self.verdict = RunOutcome.CANCELLED
        elif held_bytes > self._budget.memory_bytes:
            self.verdict = RunOutcome.MEMORY
        elif self._budget.strict_seconds and time.monotonic() - self._begin > self._budget.seconds:
            self.verdict = RunOutcome.TIME
        return self.verdict is not RunOutcome.DONE


def suitable_core(program: Program) -> Core:
    """The core that should simulate ``program`` fastest, of those that are installed."""
    return Core.COMPILED if program.num_line_hops >= MIN_LINE_HOPS_COMPILED and has_numba() else Core.WINDOWS


def core_from_environment() -> Core | None:
    """The core that MAGUS_ENGINE names, None if it names none.

    Raises
    ------
    EngineUnavailable
        If there is no such core.
    """
    name = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not name:
        return None
    try:
        return Core(name.lower())
    except ValueError:
        names = ", ".join(core.value for core in Core)
        message = f"{ENVIRONMENT_VARIABLE} is {name!r}, which is no core of the simulator: choose one of {names}"
        raise EngineUnavailable(message) from None


def runs_compiled() -> bool:
    """Whether large programs run on the compiled core here.

    Raises
    ------
    EngineUnavailable
        If MAGUS_ENGINE names no core.
    """
    return core_from_environment() in (None, Core.COMPILED) and has_numba()


def load_core(line_hops: int) -> None:
    """Load what runs of so many line-hops take long to load, or make it: processes that are forked then have it."""
    if line_hops >= MIN_LINE_HOPS_COMPILED and runs_compiled():
        with suppress(ImportError):  # which a run tells
            import_module(".compiled", __package__).load_code()


@cache
def has_numba() -> bool:
    """Whether numba is installed, found out without loading it."""
    return find_spec("numba") is not None


def _simulate_compiled(program: Program, watch: WatchFn, observe: bool, last_poll_ticks: int) -> Served:
    """Load and run the compiled core."""
    try:
        from . import compiled
    except ImportError as error:
        raise EngineUnavailable(
            f"the compiled core of the simulator needs numba, which does not load here ({error}): "
            "pip install numba, or choose the core windows"
        ) from error
    return compiled.simulate(program, watch, observe, last_poll_ticks)


def _finished_run(program: Program, core: Core, served: Served, verdict: RunOutcome) -> Run:
    """The ``Run`` from the results of a core; ``verdict`` is why it was stopped, DONE if it was not."""
    done, blocked, stuck = served.op_done, served.server_blocked, list[int]()
    if verdict is RunOutcome.DONE and (done == NEVER).any():
        verdict, stuck = RunOutcome.DEADLOCK, np.flatnonzero(done == NEVER).tolist()
        # Others may be waiting for room only while polls are under way.
        blocked = np.where(locked_servers(program, blocked), blocked, NONE)
    return Run(
        outcome=verdict,
        makespan_ticks=max(0, int(done[program.op_kind != OpKind.TRAFFIC].max(initial=0))),
        op_ready=served.op_ready,
        op_start=served.op_start,
        op_done=done,
        op_polls=served.op_polls,
        flow_last=served.flow_last,
        server_free=served.server_free,
        server_blocked=blocked,
        server_busy_ticks=busy_ticks(program, served.flow_last, served.op_polls),
        line_hops=served.line_hops,
        windows=served.windows,
        core=core.value,
        stuck=tuple(stuck),
        hop_wait_ticks=served.hop_wait_ticks,
    )
