"""Cooperative cancellation: the caller of a stage sets a callback, long loops call ``checkpoint``, which asks it.

The callback is a context variable, so that stages in several threads have callbacks of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
