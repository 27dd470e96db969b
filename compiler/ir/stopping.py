"""A wish to stop, heard by whatever takes long: whoever begins a stage says how it is asked, loops in it ask.

It holds for one thread at a time, so that stages in several threads have wishes of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ShouldStop = Callable[[], bool]


class Cancelled(Exception):
    """The caller asked to stop; what was found before is lost with it."""


def never() -> bool:
    """Nobody wants to stop."""
    return False


_asked: ContextVar[ShouldStop] = ContextVar("should_stop", default=never)


@contextmanager
def heeding(should_stop: ShouldStop | None) -> Iterator[None]:
    """Within the block ``checkpoint`` asks ``should_stop``; None leaves whom it asks as it is."""
    if should_stop is None:
        yield
        return
    before = _asked.set(should_stop)
    try:
        yield
    finally:
        _asked.reset(before)


def checkpoint() -> None:
    """Ask whether to stop; for loops that may go on for more than a fraction of a second.

    Raises
    ------
    Cancelled
        If so.
    """
    if _asked.get()():
        raise Cancelled
