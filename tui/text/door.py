"""The one door to the terminal of the command line: text from outside passes it only as ``printable`` text."""

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from ...compiler.text.printable import printable
from ..exit_codes import Exit


def put(text: str) -> None:
    """A result, on stdout. Where its reader went away, as with ``| head``, the command ends.

    Raises
    ------
    OSError
        If stdout takes no more, on a full disk for instance.
    """
    _put(printable(text, block=True) + "\n")


def put_text(text: str) -> None:
    """A result that is a file: another program, or a file, gets it to the letter."""
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
    """Progress and diagnostics go to stderr, so that stdout stays the result."""
    say_raw(printable(text, block=True) + "\n")


def say_raw(text: str) -> None:
    """The same with the colours and the moves of the cursor that Magus makes; not for text from outside.

    That nobody can read it is no reason to stop.
    """
    try:
        _write(sys.stderr, text)
    except OSError:
        turn_off(sys.stderr)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # it was closed before Magus began
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:  # not every terminal knows every letter
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def turn_off(stream: TextIO | None) -> None:
    """Let what is still buffered go nowhere, so that the end of the program does not fail on it."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def print_json(document: dict[str, Any]) -> None:
    """One document on stdout, in ASCII."""
    text = json.dumps(document, indent=2, allow_nan=False)
    put(text.replace("\x7f", "\\u007f"))  # the one control character that JSON leaves as it is


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a terminal reads the stream."""
    return stream is not None and stream.isatty()


def is_rich(stream: TextIO | None) -> bool:
    """Whether it is one that obeys moves of the cursor."""
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def in_colour(stream: TextIO | None) -> bool:
    """Whether to paint what goes to the stream: NO_COLOR, if it is not empty, says no (see no-color.org)."""
    return is_rich(stream) and not os.environ.get("NO_COLOR")


def has_screen() -> bool:
    """Whether a person sits at a terminal that can be drawn on; the screen is drawn through stderr."""
    return is_terminal(sys.stdin) and is_rich(sys.stderr)
