"""Stages of advice: run one after the other, timed; a stage that fails leaves the answer to what came before it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

from ..compiler.ir import Cancelled, ShouldStop, heeding
from ..simcore import EngineUnavailable
from .failures import Failure, failed_stage
from .solver import NoFeasibleSchedule

Found = TypeVar("Found")
Default = TypeVar("Default")

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Seconds beyond the time limit that the least of an answer may take."""


def lateness(within_s: float | None) -> ShouldStop | None:
    """Return whether more than ``within_s`` have passed from now on, as a function; None without a limit."""
    if within_s is None:
        return None
    end = perf_counter() + within_s
    return lambda: perf_counter() > end


def either(one: ShouldStop, other: ShouldStop) -> ShouldStop:
    """Return whether either says to stop, as a function."""
    return lambda: one() or other()


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
