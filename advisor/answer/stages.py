"""Stages of advice, run in turn and timed, one of which may fail; how much work to spend, and who waits."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

from ...compiler.codes import Code
from ...compiler.ir import Cancelled, Progress, ShouldStop, heeding, never, silent
from ...compiler.request.request import RequestError
from ...simcore import EngineUnavailable
from ..bespoke.stage import DEFAULT_EVALUATIONS
from ..candidates.advice import Advice
from ..solver import NoFeasibleSchedule
from ..work.workers import Failure, failed_stage

Found = TypeVar("Found")
Default = TypeVar("Default")

log = logging.getLogger(__name__)

PROPOSE, ENUMERATE, RANK, BOUND = "the proposals", "the enumeration", "the ranking", "the lower bound"
IMPLEMENTATIONS = "the implementations"
SHORTLIST, BESPOKE, CONFIRM = "the shortlist", "the bespoke search", "the confirmation"
THRESHOLD, SENSITIVITY = "the threshold", "the sensitivity"

PATIENCE_S = 1.0
"""Seconds that the least of an answer may take beyond the time limit, if it begins no earlier."""


def lateness(within_s: float | None, more_s: float = 0.0) -> ShouldStop:
    """Return whether more than ``within_s`` and ``more_s`` have passed from now on, as a function; never for None."""
    if within_s is None:
        return never
    end = perf_counter() + within_s + more_s
    return lambda: perf_counter() > end


def either(one: ShouldStop, other: ShouldStop) -> ShouldStop:
    """Return whether either says to stop, as a function."""
    return lambda: one() or other()


Answered = Callable[[Advice], None]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks of those who have waited ``waited_s`` for an answer: its progress, and the best answer so far."""

    progress: Progress = silent
    should_stop: ShouldStop = never
    answered: Answered | None = None
    waited_s: float = 0.0

    def late(self, within_s: float | None, more_s: float = 0.0) -> ShouldStop:
        """Return ``lateness`` since they asked."""
        return lateness(within_s, more_s - self.waited_s)


UNWATCHED = Watcher()


@dataclass(slots=True)
class Stages:
    """Runs stages one after the other.

    ``interrupted`` is whether the caller asked to stop, so that stages were left out; ``failures`` are the stages that
    failed, and ``seconds`` the wall time by the name of the stage.
    """

    should_stop: ShouldStop = lambda: False
    interrupted: bool = False
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, stage: Callable[[], Found], default: Default) -> Found | Default:
        """Return the result of ``stage``, or ``default`` if the stage fails or the caller asked to stop.

        Raises
        ------
        NoFeasibleSchedule, EngineUnavailable
            If the stage does: those are answers, not failures.
        KeyboardInterrupt
            Unless ``should_stop`` returns true.
        """
        if self._stops():
            return default
        with self._timed(name), heeding(self.should_stop):
            try:
                found = stage()
            except (NoFeasibleSchedule, EngineUnavailable):
                raise
            except (KeyboardInterrupt, Cancelled):
                if not self._stops():
                    raise
                return default
            except Exception as error:
                log.debug("%s failed", name, exc_info=True)
                self.failures.append(failed_stage(name, error))
                return default
        self._stops()
        return found

    def _stops(self) -> bool:
        self.interrupted = self.interrupted or self.should_stop()
        return self.interrupted

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        since = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - since


DEFAULT_TOP = 8


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """How much work to spend on advice.

    Parameters
    ----------
    top
        How many of the schedules with the least estimated times to simulate, in addition to the serial baseline and the
        declared ones. Up to six fewer are simulated if their estimates are far behind proposals that were simulated.
    verify
        Whether to simulate at all. Without it times are predictions: if schedules can be proposed, the answer takes
        tenths of a second, schedules are not enumerated, and there is no bound. A layer is simulated all the same, but
        without trying small changes of its schedules.
    bespoke
        How many plans with chunks of any size to estimate, if templates can overlap; 0 for none.
    workers
        How many threads or processes simulate. Processes are used if there is no compiled core, or if ranks see
        different fabrics; they need a ``__main__`` that may be imported again.
    within_s
        Seconds after which the advice is the best that was found until then, so it may differ from run to run. At least
        the baseline is ranked. None is no limit.
    threshold
        Whether to find, for one op, the number of rows at which the answer changes. It takes about as long as the rest.
    sensitivity
        Whether to find the hardware numbers that change the answer if they are 10 % lower or higher. It takes less time
        than the rest. For several ops only the numbers that matter most to them are changed.

    Raises
    ------
    RequestError
        If a number cannot be.
    """

    top: int = DEFAULT_TOP
    verify: bool = True
    bespoke: int = DEFAULT_EVALUATIONS
    workers: int = 1
    within_s: float | None = None
    threshold: bool = False
    sensitivity: bool = False

    def __post_init__(self) -> None:
        for name, least in (("top", 0), ("bespoke", 0), ("workers", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise RequestError(Code.MGS307, name, f"{value!r:.40} is no whole number from {least} on")
        if self.within_s is not None and not (isinstance(self.within_s, int | float) and self.within_s >= 0):
            raise RequestError(Code.MGS307, "within_s", f"{self.within_s!r:.40} is no time in seconds")


DEFAULT = AdviceOptions()
