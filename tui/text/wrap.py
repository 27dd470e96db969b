"""Printable text in lines that fit the terminal."""

import shutil
import textwrap
from collections.abc import Iterator

from ...compiler.text.printable import printable

MIN_COLUMNS = 40
MAX_COLUMNS = 200


def columns() -> int:
    """Return the width to wrap at: that of the terminal or of COLUMNS, from ``MIN_COLUMNS`` to ``MAX_COLUMNS``."""
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
