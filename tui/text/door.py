"""Output of the command line to stdout and stderr; text from outside is escaped by ``printable``."""

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from ...compiler.text.printable import printable
from ..exit_codes import Exit


def put(text: str) -> None:
    """Print a result on stdout. If its reader has gone, as with ``| head``, the command ends.

    Raises
    ------
    OSError
        If stdout cannot be written, for instance on a full disk.
    """
    _put(printable(text, block=True) + "\n")


def put_text(text: str) -> None:
    """Print a result that is a file: unchanged to a file or a program, escaped to a terminal."""
    _put(printable(text, block=True) if is_terminal(sys.stdout) else text)


def _put(text: str) -> None:
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        turn_off(sys.stdout)
        raise SystemExit(Exit.DONE) from None
    except OSError as error:
        turn_off(sys.stdout)
        error.filename = "stdout"
        raise


def say(text: str) -> None:
    """Print progress or diagnostics on stderr, so that stdout is the result alone."""
    say_raw(printable(text, block=True) + "\n")


def say_raw(text: str) -> None:
    """Print text with Magus's own colours and cursor moves on stderr; not for text from outside.

    A stderr that cannot be written does not stop the command.
    """
    try:
        _write(sys.stderr, text)
    except OSError:
        turn_off(sys.stderr)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed before Magus began
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the terminal's encoding lacks a character
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def turn_off(stream: TextIO | None) -> None:
    """Discard what is still buffered, so that the flush at the end of the program does not fail."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout, in ASCII."""
    import json  # not for help

    text = json.dumps(document, indent=2, allow_nan=False)
    put(text.replace("\x7f", "\\u007f"))  # the one control character that json.dumps does not escape


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a terminal reads the stream."""
    return stream is not None and stream.isatty()


def is_rich(stream: TextIO | None) -> bool:
    """Whether a terminal that can move its cursor reads the stream."""
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def in_colour(stream: TextIO | None) -> bool:
    """Whether to write colours to the stream; not if NO_COLOR is set and not empty (no-color.org)."""
    return is_rich(stream) and not os.environ.get("NO_COLOR")


def has_screen() -> bool:
    """Whether stdin is a terminal and stderr one that can be drawn on, as the screen of ``magus tui`` needs."""
    return is_terminal(sys.stdin) and is_rich(sys.stderr)
