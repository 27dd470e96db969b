"""Ctrl-C as a wish to stop, so that what was found so far can be shown."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(*, at_once: bool = False) -> Iterator[Callable[[], bool]]:
    """A callback that says whether Ctrl-C was pressed; pressed again, it interrupts as ever.

    ``at_once`` interrupts the first time too, after the callback knows of it: for work that keeps what it found when it
    is interrupted anywhere. Only the main thread may use it.
    """
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        again, pressed = pressed, True
        if again or at_once:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
