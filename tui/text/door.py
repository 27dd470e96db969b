"""How commands meet the shell: exit codes; output, escaped by ``printable``; what terminals can do; tables; Ctrl-C.

Ctrl-C is a request to stop, so that a command can show what it has found so far.
"""

import _thread
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from threading import Timer, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from ...compiler.codes import Code
from ...compiler.text.diagnostics import columns_of, printable

if TYPE_CHECKING:
    from ...compiler.ir import ShouldStop


class Exit(IntEnum):
    """Exit code.

    0: done. 1: the input is wrong, or an expectation or a search of a corpus failed. 2: usage. 3: no schedule is
    feasible or, with ``--strict``, the profile is not validated. 130: stopped by Ctrl-C; an answer that was printed is
    the best found until then.
    """

    DONE = 0
    INPUT = 1
    USAGE = 2
    NOT_FEASIBLE = 3
    INTERRUPTED = 130


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
    """Print progress or diagnostics on stderr, so that stdout is the result alone; on a terminal in lines that fit."""
    lines = printable(text, block=True).split("\n")
    if is_terminal(sys.stderr):
        lines = [part for line in lines for part in _fitted(line)]
    say_raw("\n".join(lines) + "\n")


def missing(error: ImportError, extra: str) -> Exit:
    """Say which package is not installed, and the ``extra`` of Magus that brings it."""
    say(f"{Code.MGS432.name} error: {error.name or error} is not installed\n  help: pip install 'magus-gpu[{extra}]'")
    return Exit.USAGE


def _fitted(line: str) -> list[str]:
    """The parts of a line that is too wide for the terminal, indented as it is and more; long words, as paths, stay."""
    if columns_of(line) <= columns():
        return [line]
    indent = len(line) - len(line.lstrip())
    return hanging(line[indent:], indent + 2, line[:indent])


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


def put_answer(text: str, document: dict[str, Any], *, as_json: bool) -> None:
    """Print an answer for a reader, or as one JSON document."""
    if as_json:
        print_json(document)
    else:
        put(text)


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


def bullet(sign: str, text: str, following: str = " ") -> Iterator[str]:
    """Wrap ``text`` behind a sign; other lines are behind ``following``, a space or the sign again."""
    for index, line in enumerate(_lines(text, columns() - 4)):
        yield f"  {sign if index == 0 else following} {line}"


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


VERDICTS = {
    "overlap": "OVERLAP",
    "worth_trying": "worth trying",
    "serial": "serial",
    "library": "library",
    "use": "USE",
}


def table_lines(rows: Sequence[tuple[Sequence[str], str]], words: Container[int]) -> Iterator[str]:
    """Yield a line for each row of cells with what stands behind them; cells ``words`` are words.

    Words stand to the left and numbers to the right. Where the cells of a row do not fit the terminal, they follow
    their first one on lines of their own, as what stands behind them does.
    """
    widths = [max(len(cells[idx]) for cells, _ in rows) for idx in range(len(rows[0][0]))]
    fits = sum(widths) + 2 * (len(widths) - 1) <= columns()
    for cells, behind in rows:
        padded = [
            cell.ljust(width) if idx in words else cell.rjust(width)
            for idx, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        line = "  ".join(padded)
        if fits and len(line) + 2 + len(behind) <= columns():
            yield f"{line}  {behind}".rstrip()
            continue
        if fits:
            yield line.rstrip()
        else:
            yield from hanging(cells[0], 2)
            yield from hanging("    " + "  ".join(filter(None, cells[1:])), 4)
        yield from hanging(f"    {behind}", 6) if behind else ()


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, the first two to the left, numbers to the right.

    A name that leaves no room for its numbers gets a line of its own above them.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[1] = min(widths[1], columns() - sum(widths) + widths[1] - len(widths) + 1)

    def line(row: Sequence[str]) -> str:
        cells = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        cells += [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        return " ".join(cells).rstrip()

    lines = []
    for mark, name, *numbers in rows:
        if len(name) > widths[1]:
            lines += [*hanging(name, widths[0] + 3, f"{mark.ljust(widths[0])} "), line(("", "", *numbers))]
        else:
            lines.append(line((mark, name, *numbers)))
    return lines


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
