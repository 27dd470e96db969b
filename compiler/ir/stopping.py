"""Cancellation by a callback, which long loops ask by ``checkpoint``; and why a request is infeasible.

The callback is a context variable, so that stages in several threads have callbacks of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import Any

from ..codes import Code

ShouldStop = Callable[[], bool]


class Cancelled(Exception):
    """The caller asked to stop; results so far are lost."""


def never() -> bool:
    """Return False: nobody asks to stop."""
    return False


_should_stop: ContextVar[ShouldStop] = ContextVar("should_stop", default=never)


@contextmanager
def heeding(should_stop: ShouldStop | None) -> Iterator[None]:
    """Make ``checkpoint`` ask ``should_stop`` within the block; None keeps the current callback."""
    if should_stop is None:
        yield
        return
    before = _should_stop.set(should_stop)
    try:
        yield
    finally:
        _should_stop.reset(before)


def checkpoint() -> None:
    """Stop if the caller asks to; for loops that may run for more than a fraction of a second.

    Raises
    ------
    Cancelled
        If the caller asks to stop.
    """
    if _should_stop.get()():
        raise Cancelled


Progress = Callable[[str, int, int], None]
"""Called with the stage, the steps done, and the number of steps."""


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


makes_code = Event()
"""Set while machine code of the simulator is loaded, which takes no time, or made, once for some ten seconds."""

Counted = Callable[[int, int], None]
"""Progress within one stage: called with the steps done and their number."""

StepsDone = Callable[[int], None]
"""Called with the steps done, where their number is not known."""

Settings = Sequence[tuple[str, str]]
"""Names of parameters and the text of their values, as ``--set`` gives them."""

JsonObject = dict[str, Any]
"""An object of a JSON document."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is infeasible: a diagnostic code, a sentence, and a hint, which may be empty."""

    code: Code
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.message


class RejectedError(ValueError):
    """What cannot be, and why."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection)
        self.rejection = rejection

    @classmethod
    def require(cls, rejection: Rejection | None) -> None:
        """Raise it if a check says why."""
        if rejection is not None:
            raise cls(rejection)
