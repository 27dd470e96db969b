"""Ctrl-C is first a wish, then an interruption."""

import signal
import time

import pytest

from magus.tui import cli
from magus.tui.text import door
from magus.tui.text.door import interruptible


def test_the_first_press_is_reported_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interruption_that_a_library_makes_its_own_fault_of_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(cli, "app", loads)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130


def test_what_does_not_ask_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PATIENCE_S", 0.01)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)
        time.sleep(30)


def test_what_asks_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PATIENCE_S", 0.5)  # a busy machine may take a while to ask
    with interruptible() as pressed:
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        time.sleep(0.6)
