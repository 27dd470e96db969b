"""A first sign of life on the whole screen, while the program that will draw on it is being loaded."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from ...compiler.text.printable import printable
from .door import say_raw

# Enter the alternate screen and clear it, and leave it again: what was on the terminal comes back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[?25h\x1b[?1049l"
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def splash(text: str) -> Iterator[None]:
    """Show a line on an empty screen; at the end, and after a signal that ends the program, the terminal is as before.

    Only for the main thread, where stderr is a terminal.
    """
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        say_raw(f"{_ENTER} {printable(text)}\r\n")
        yield
    finally:
        say_raw(_LEAVE)
        for number, handler in before.items():
            with suppress(TypeError, ValueError):  # a handler that is not Python's
                signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
