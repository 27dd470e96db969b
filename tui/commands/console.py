"""How every command talks: results to stdout, the rest to stderr, mistakes of the input as diagnostics."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...compiler.ir import Settings
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CODE_COLUMNS, CompileError, Diagnostic, render_text
from ...compiler.text.writing import write_whole
from ..exit_codes import Exit
from ..text.door import in_colour, is_terminal, print_json, put, put_text, say, say_raw
from ..text.wrap import columns

__all__ = ["Settings", "guarded", "print_json", "put", "put_text", "saved", "say", "show"]


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Diagnostics on stderr; where a terminal reads them, in colour and with lines that fit it."""
    if diagnostics:
        room = columns() - 2 if is_terminal(sys.stderr) else CODE_COLUMNS
        text = render_text(diagnostics, color=in_colour(sys.stderr), room=room)
        say_raw(text + "\n")  # its text is printable but for the colours


def guarded(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; what is wrong with the text or with a schedule becomes diagnostics and an exit code."""
    try:
        return action()
    except CompileError as error:
        show(error.diagnostics)
    except ScheduleError as error:
        unfit = error.rejection
        say(f"{unfit.code.name} error: {unfit.message}" + (f"\n  help: {unfit.hint}" if unfit.hint else ""))
    except OSError as error:
        say(f"magus: {error.filename or 'a file'}: {error.strerror or error}")
    return Exit.INPUT


def saved(path: Path, text: str, said: str) -> Exit:
    """Write a file and say so; what is in the way is said too, so that the answer can be printed all the same.

    Files are written before anything is printed: stdout may have no reader any more.
    """

    def write() -> Exit:
        write_whole(path, text)
        say(said)
        return Exit.DONE

    return guarded(write)
