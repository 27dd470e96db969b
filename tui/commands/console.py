"""Diagnostics, errors and written files: what every command says on stderr."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...compiler.ir import Rejection
from ...compiler.planning.build import ScheduleError
from ...compiler.request.request import RequestError
from ...compiler.text.diagnostics import CODE_COLUMNS, CompileError, Diagnostic, render_text
from ...compiler.text.writing import write_whole
from ..exit_codes import Exit
from ..text.door import columns, in_colour, is_terminal, put_text, say, say_raw


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics on stderr; on a terminal in colour, in lines that fit it."""
    if diagnostics:
        room = columns() - 2 if is_terminal(sys.stderr) else CODE_COLUMNS
        text = render_text(diagnostics, color=in_colour(sys.stderr), room=room)
        say_raw(text + "\n")  # render_text escapes text from outside


def report_errors(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; errors of the text, of a schedule or of a file become messages and an exit code."""
    try:
        return action()
    except CompileError as error:
        show(error.diagnostics)
    except ScheduleError as error:
        say_rejection(error.rejection)
    except OSError as error:
        say(f"magus: {error.filename or 'a file'}: {error.strerror or error}")
    return Exit.INPUT


def say_rejection(rejection: Rejection) -> None:
    """Print why a request is refused on stderr."""
    hint = f"\n  help: {rejection.hint}" if rejection.hint else ""
    say(f"{rejection.code.name} error: {rejection.message}{hint}")


def say_request_error(error: RequestError) -> None:
    """Print what is wrong with a request on stderr."""
    say_rejection(Rejection(error.code, f"{error.field}: {error.message}", error.hint))


def save(path: Path, content: str | bytes, message: str) -> Exit:
    """Write a file and say ``message``; an error is reported, so that the caller can still print its answer.

    Write files before printing to stdout: stdout may have no reader any more.
    """

    def write() -> Exit:
        write_whole(path, content)
        say(message)
        return Exit.DONE

    return report_errors(write)


def deliver(text: str, out: Path | None, content: str) -> Exit:
    """Write ``text`` to ``out``, and say what its ``content`` is, or to stdout."""
    if out is not None:
        return save(out, text, f"{out}: {content}")
    put_text(text)
    return Exit.DONE
