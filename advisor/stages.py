"""Stages of advice: what one raises is remembered, and what was found before it stays the answer."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import TypeVar

from ..compiler.ir import Cancelled, ShouldStop, heeding
from ..compiler.planning.build import ScheduleError
from ..simcore import EngineUnavailable, RunTooLarge
from .solver import NoFeasibleSchedule
from .workers import Failure, FailureKind

T = TypeVar("T")
Other = TypeVar("Other")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stages:
    """Runs stages one after the other.

    ``interrupted`` is whether the caller asked to stop, so that stages were left out; ``notes`` are what failed, and
    ``seconds`` the wall time by the name of the stage.
    """

    should_stop: ShouldStop = lambda: False
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, stage: Callable[[], T], otherwise: Other) -> T | Other:
        """Return what ``stage`` finds; ``otherwise`` if it fails, or if the answer is wanted now.

        Raises
        ------
        NoFeasibleSchedule, EngineUnavailable
            If the stage does: those are answers, not failures.
        KeyboardInterrupt
            Unless ``should_stop`` knows of it.
        """
        if self._stops():
            return otherwise
        with self._timed(name), heeding(self.should_stop):
            try:
                found = stage()
            except (NoFeasibleSchedule, EngineUnavailable):
                raise
            except (KeyboardInterrupt, Cancelled):
                if not self._stops():
                    raise
                return otherwise
            except Exception as error:
                log.debug("%s failed", name, exc_info=True)
                self.notes.append(f"{name} failed and was left out: {told(error)}")
                return otherwise
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


def told(error: Exception) -> str:
    """What went wrong, with the code of a diagnostic, or whose fault it is."""
    if isinstance(error, ScheduleError):
        return f"{error.rejection.code.name}: {error}"
    if isinstance(error, RunTooLarge):
        return f"MGS406: {error}"
    return f"{type(error).__name__}: {error} (a fault of Magus, not of your file)"


def told_failures(failures: Sequence[Failure]) -> Iterator[str]:
    """A sentence for each way in which simulations failed, with the first schedule as the example."""
    kinds = list(FailureKind)
    for kind, group in groupby(sorted(failures, key=lambda each: kinds.index(each.kind)), key=lambda each: each.kind):
        first, *others = dict.fromkeys(group)
        more = f", and {len(others)} more" if others else ""
        yield f"{kind.value}: {first.schedule}{more}: {first.reason}"
