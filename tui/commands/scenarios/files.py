"""``magus check``, ``magus fmt`` and ``magus lsp``: errors of files, their canonical form, the language server."""

import logging
from collections.abc import Sequence
from pathlib import Path

from ....compiler import Compiled, CompileError
from ....compiler.ir import Settings
from ....compiler.ir.step import StepScenario
from ....compiler.planning.build import ScheduleError
from ....compiler.text.diagnostics import Diagnostic, Source, Span
from ....compiler.text.diagnostics import as_json as json_object
from ....compiler.text.writing import write_whole
from ...text.door import Exit, missing, print_json, put_text, say
from ..inputs import compiled, is_stdin, name_of, reporting, show, source_of


def check_files(files: Sequence[Path], settings: Settings, *, as_json: bool) -> Exit:
    """Compile each file and show what is wrong with it; exit 1 if a file has an error."""
    diagnostics: list[Diagnostic] = []
    num_wrong = 0
    for file in files:
        try:
            found = compiled(file, settings)
            diagnostics.extend(found.warnings)
            _check_steps(file, found.steps)
            _check_replicas(found)
        except CompileError as error:
            diagnostics.extend(error.diagnostics)
            num_wrong += 1
    if as_json:
        print_json({"schema": "magus-diagnostics/1", "diagnostics": list(map(json_object, diagnostics))})
    else:
        show(diagnostics)
        say(_summary(len(files), num_wrong))
    return Exit.INPUT if num_wrong else Exit.DONE


def _check_steps(file: Path, steps: Sequence[StepScenario]) -> None:
    if any(step.schedules for step in steps):
        from ....advisor.steps.answer import check_schedules  # which other files need nothing of

        for step in steps:
            check_schedules(source_of(file), step, step.schedules)


def _check_replicas(found: Compiled) -> None:
    """Refuse replicas of experts that take a workload beyond the memory of a rank."""
    layers = {part.forward.name for step in found.steps for block in step.step.blocks for part in block.parts}
    for scenario in found.workloads:
        routings = [case.shape.routing for case in scenario.moving]
        if scenario.name not in layers and any(each is not None and each.replicas for each in routings):
            from ....advisor.solver.memory import check_workload_memory  # as above

            try:
                check_workload_memory(scenario)
            except ScheduleError as error:
                span = found.span_of(scenario.name) or Span(Source(found.path, ""), 0, 0)
                unfit = error.rejection
                raise CompileError([Diagnostic(unfit.code, unfit.message, span, unfit.hint)]) from None


def _summary(num_files: int, num_wrong: int) -> str:
    checked = f"{num_files} file{'s' if num_files > 1 else ''} checked"
    if not num_wrong:
        return f"{checked}, no errors"
    return f"{checked}, {num_wrong} with errors"


def format_files(files: Sequence[Path], *, check_only: bool) -> Exit:
    """Rewrite files in the canonical form, stdin to stdout; or only say which files are not in it, and exit 1."""
    return max(_format(file, check_only) for file in files)


def print_derived(files: Sequence[Path]) -> Exit:
    """Print files in the canonical form, with what they derive written out."""
    return max(map(_print_derived, files))


@reporting
def _print_derived(file: Path) -> Exit:
    from ....compiler.pipeline import written_out

    source = source_of(file)
    put_text(written_out(source.text, source.path))
    return Exit.DONE


@reporting
def _format(file: Path, check_only: bool) -> Exit:
    from ....compiler import format_text  # which a check does without

    source = source_of(file)
    text = format_text(source.text, source.path)
    if is_stdin(file) and not check_only:
        put_text(text)
        return Exit.DONE
    if text == source.text:
        return Exit.DONE
    if check_only:
        say(f"{name_of(file)} is not in the canonical form")
        return Exit.INPUT
    write_whole(file, text)
    say(f"{file} rewritten")
    return Exit.DONE


def serve_editor() -> Exit:
    """Serve an editor until it says goodbye or closes stdin."""
    try:
        from ...lsp import make_server
    except ImportError as error:
        return missing(error, "lsp")
    if not logging.getLogger("magus").isEnabledFor(logging.DEBUG):
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    make_server().start_io()
    return Exit.DONE
