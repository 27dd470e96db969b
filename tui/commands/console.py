"""Diagnostics, errors and written files: what every command says on stderr."""

import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ...advisor import ModelError, NoFeasibleSchedule
from ...advisor.work.processes import forking
from ...compiler.ir import Cancelled, Rejection, Scenario
from ...compiler.planning.build import ScheduleError
from ...compiler.request.request import RequestError
from ...compiler.text.diagnostics import CODE_COLUMNS, CompileError, Diagnostic, render_text
from ...compiler.text.writing import write_whole
from ...simcore import EngineUnavailable, RunTooLarge
from ..exit_codes import Exit
from ..text.door import columns, in_colour, is_terminal, put_text, say, say_raw, turn_off


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


def run_command(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; errors of the compiler, the simulator and the advisor become messages and an exit code.

    Its workers are forked: the one thread beside it prints how far it is, and sleeps.
    """
    try:
        with forking():
            return report_errors(action)
    except EngineUnavailable as error:
        say(f"magus: {error}")
        return Exit.USAGE
    except RunTooLarge as error:
        say(f"MGS406 error: {error}")
        return Exit.INPUT
    except Cancelled:
        say("magus: stopped before anything was found")
        return Exit.INTERRUPTED
    except ModelError as error:
        say(f"magus: {error}")
        return Exit.INPUT
    except NoFeasibleSchedule as error:
        say("MGS510 error: no schedule is feasible; these constraints together leave none:")
        for reason in error.reasons:
            say(f"  - {reason}")
        return Exit.NOT_FEASIBLE


def exit_code_if_strict(scenario: Scenario, strict: bool, outside: Sequence[str] = ()) -> Exit:
    """NOT_FEASIBLE under ``--strict`` if the GEMM profile is not validated or the question is ``outside`` its fit."""
    if not strict:
        return Exit.DONE
    reasons = [f"outside what was fitted: {sentence}" for sentence in outside]
    if any(case.shape.gemm for case in scenario.cases) and not scenario.gpu.gemm.validated:
        reasons.append(f"the GEMM profile of {scenario.gpu.name} is not validated against measurements")
    for reason in reasons:
        say(f"magus: --strict: {reason}")
    return Exit.NOT_FEASIBLE if reasons else Exit.DONE


def keep_results(context: typer.Context, no_cache: bool) -> None:
    """Look up results on disk, and keep new ones, while the command of ``context`` runs; not under ``no_cache``."""
    if no_cache or context.resilient_parsing:
        return
    # Imported here: the command line imports this before it knows the command.
    from ...simcore.memo.memo import memoizing
    from ...simcore.memo.store import user_store

    context.with_resource(memoizing(user_store()))


class Commands(TyperGroup):
    """The commands of Magus; usage errors are escaped before printing, since they repeat what was typed."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that ``args`` name and, unless ``standalone_mode`` is False, end the program."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            sys.exit(run() or Exit.DONE)
        except typer.Abort:
            sys.exit(Exit.INTERRUPTED)
        except OSError as error:  # commands report their own: here the output could not be printed
            turn_off(sys.stdout)
            say(f"magus: {error.filename or 'stdout'}: {error.strerror or error}")
            sys.exit(Exit.INPUT)
        except Exception as error:
            if not hasattr(error, "show") or not hasattr(error, "exit_code"):
                raise
            text = io.StringIO()
            error.show(text)
            say(text.getvalue().removesuffix("\n"))
            sys.exit(error.exit_code)
