"""Printable text in lines that fit the terminal."""

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...compiler.text.printable import printable

MIN_COLUMNS = 40
MAX_COLUMNS = 200


_room: ContextVar[int | None] = ContextVar("_room", default=None)


@contextmanager
def wrapped_to(width: int) -> Iterator[None]:
    """Wrap at ``width`` columns within the block: text for a part of the screen."""
    token = _room.set(width)
    try:
        yield
    finally:
        _room.reset(token)


def columns() -> int:
    """Return the width to wrap at: that of the terminal or of COLUMNS, from ``MIN_COLUMNS`` to ``MAX_COLUMNS``."""
    room = _room.get()
    if room is not None:
        return max(MIN_COLUMNS, min(MAX_COLUMNS, room))
    return max(MIN_COLUMNS, min(MAX_COLUMNS, shutil.get_terminal_size((80, 24)).columns))


def wrapped(text: str) -> list[str]:
    """Wrap ``text``; long words, as schedule expressions are, stay whole."""
    return hanging(text, 0)


def bullet(sign: str, text: str) -> Iterator[str]:
    """Wrap ``text`` behind a sign; following lines are indented."""
    for index, line in enumerate(_lines(text, columns() - 4)):
        yield f"  {sign if index == 0 else ' '} {line}"


def hanging(text: str, indent: int, first: str = "") -> list[str]:
    """Wrap ``text``, the first line behind ``first``, the others indented by ``indent`` columns."""
    return _lines(text, columns(), first, " " * indent)


def _lines(text: str, width: int, first: str = "", following: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text, block=True),
        width,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )
