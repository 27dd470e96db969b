"""Ctrl-C is first a wish, then an interruption."""

import signal

import pytest

from magus.tui.interrupts import interruptible


def test_the_first_press_is_told_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
