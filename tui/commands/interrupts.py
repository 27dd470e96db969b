"""Ctrl-C as a wish to stop, so that what was found so far can be shown."""

import _thread
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from types import FrameType

PATIENCE_S = 0.8


def remembered() -> Callable[[], bool]:
    """Whether Ctrl-C was pressed from now on, which interrupts as ever; unless somebody else looks after it."""
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, press)
    return lambda: pressed


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """A callback that says whether Ctrl-C was pressed; pressed again, it interrupts as ever.

    If nobody asks for a while after it was pressed, that counts as pressed again: what does not look up is interrupted.
    Only the main thread may use it.
    """
    pressed = heard = False
    timer: Timer | None = None

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed, timer
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        timer = Timer(PATIENCE_S, press_again)
        timer.daemon = True
        timer.start()

    def press_again() -> None:
        if heard:
            return
        if hasattr(signal, "pthread_kill"):  # which ends a wait too
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def asked() -> bool:
        nonlocal heard
        heard = pressed
        return pressed

    before = signal.signal(signal.SIGINT, press)
    try:
        yield asked
    finally:
        if timer is not None:
            timer.cancel()
        signal.signal(signal.SIGINT, before)
