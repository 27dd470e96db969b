"""Ctrl-C as a request to stop, so that a command can show what it has found so far."""

import _thread
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...compiler.ir import ShouldStop

PATIENCE_S = 0.8
"""Time after Ctrl-C within which a stage has to ask whether to stop; else it is interrupted."""


def watch_interrupts() -> "ShouldStop":
    """Return a function that says whether Ctrl-C was pressed since; the keys interrupt as usual.

    If another handler of SIGINT is installed, it stays and the function returns False.
    """
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, press)
    return lambda: pressed


@contextmanager
def interruptible() -> Iterator["ShouldStop"]:
    """Yield a callback that says whether Ctrl-C was pressed; pressed a second time, it interrupts as usual.

    If nobody calls it within ``PATIENCE_S`` after the first press, that counts as the second press: code that does not
    ask is interrupted. For the main thread only.
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
        if hasattr(signal, "pthread_kill"):  # also ends a blocking wait
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def requested() -> bool:
        nonlocal heard
        heard = pressed
        return pressed

    before = signal.signal(signal.SIGINT, press)
    try:
        yield requested
    finally:
        if timer is not None:
            timer.cancel()
        signal.signal(signal.SIGINT, before)
