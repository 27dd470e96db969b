"""Ctrl-C as a request to stop, so that a command can show what it has found so far."""

import _thread
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer, main_thread
from types import FrameType

from ...compiler.ir import Cancelled, ShouldStop
from ...simcore import Result, RunOutcome
from ..exit_codes import Exit
from ..text.door import say
from .out.pictures import NO_PICTURES, Pictures

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


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of ``magus simulate``.

    ``schedule`` None is the first that the file declares, else serial. ``at_line`` simulates cache lines, else packets;
    ``fold`` simulates one rank for all that are alike. ``num_seeds`` adds percentiles over so many seeds from ``seed``
    on, in packets. ``record`` is the file for the writes to rank 0, and ``pictures`` those that show the run.
    """

    schedule: str | None = None
    at_line: bool = True
    fold: bool = True
    seed: int | None = None
    num_seeds: int = 0
    record: Path | None = None
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False

    @property
    def seeds(self) -> range:
        """The seeds to take percentiles over."""
        first = self.seed or 0
        return range(first, first + self.num_seeds)


@contextmanager
def stoppable() -> Iterator[ShouldStop]:
    """Ctrl-C asks the run to stop; before there is anything to show it interrupts as usual."""
    try:
        with interruptible() as pressed:
            yield pressed
    except Cancelled:
        raise KeyboardInterrupt from None


def explain_outcome(result: Result) -> Exit:
    """Say why a run did not end."""
    say(f"magus: {result.outcome.value}")
    for sentence in result.deadlock:
        say(f"  {sentence}")
    if result.outcome is RunOutcome.CANCELLED:
        raise KeyboardInterrupt
    return Exit.INPUT
