"""Lines that fit a terminal."""

import shutil
import textwrap
from collections.abc import Iterator

MIN_COLUMNS = 60
MAX_COLUMNS = 100


def columns() -> int:
    """Width to wrap at: the terminal's, within what is pleasant to read."""
    return max(MIN_COLUMNS, min(MAX_COLUMNS, shutil.get_terminal_size((80, 24)).columns))


def wrapped(text: str) -> Iterator[str]:
    """``text`` in lines; words, not schedule expressions, are broken."""
    yield from textwrap.wrap(text, columns(), break_long_words=False, break_on_hyphens=False)


def bullet(sign: str, text: str) -> Iterator[str]:
    """``text`` after a sign, following lines indented."""
    lines = textwrap.wrap(text, columns() - 4, break_long_words=False, break_on_hyphens=False)
    for index, line in enumerate(lines):
        yield f"  {sign if index == 0 else ' '} {line}"


def hanging(text: str, indent: int) -> Iterator[str]:
    """``text`` in lines, those after the first indented by ``indent`` columns."""
    following = " " * indent
    yield from textwrap.wrap(
        text, columns(), subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )
