"""How every command talks: results to stdout, the rest to stderr, mistakes of the input as diagnostics."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..compiler.diagnostics import CompileError, Diagnostic, render_text
from ..compiler.plan import ScheduleError
from ..compiler.writing import write_whole
from .exits import Exit

Bindings = Sequence[tuple[str, str]]


def say(text: str) -> None:
    """Progress and diagnostics go to stderr, so that stdout stays the result."""
    print(text, file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Diagnostics on stderr, in colour where a terminal reads them."""
    if diagnostics:
        say(render_text(diagnostics, color=sys.stderr.isatty()))


def guarded(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; what is wrong with the text or with a schedule becomes diagnostics and an exit code."""
    try:
        return action()
    except CompileError as error:
        show(error.diagnostics)
    except ScheduleError as error:
        say(f"{error.code.name} error: {error}" + (f"\n  help: {error.hint}" if error.hint else ""))
    except BrokenPipeError:
        raise  # the reader of stdout went away, which is no fault of anything
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
