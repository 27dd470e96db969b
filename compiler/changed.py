"""A file with other values: its scenarios, and the text that says the same for good."""

from dataclasses import dataclass
from pathlib import Path

from .codes import Code
from .ir import Settings
from .pipeline import Compiled, compile_text
from .text import syntax as ast
from .text.diagnostics import CompileError, Diagnostic, Report, Source, Span, raising_errors
from .text.load import read_source
from .text.parsing.parse import parse_file
from .text.rewriting import references_to, with_numbers, with_params, without


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the file: values of params by name, and of numbers of devices by path, as texts."""

    params: Settings = ()
    numbers: Settings = ()

    def __bool__(self) -> bool:
        return bool(self.params or self.numbers)


def compile_changed(source: Source, changes: Changes) -> Compiled:
    """Compile a text with other values; declared schedules that do not fit them are left out with a warning.

    Raises
    ------
    CompileError
        If the text has errors with these values, or does not itself declare or use a device that changes.
    """
    changed = _rewritten(source, Changes((), changes.numbers)) if changes.numbers else source
    return compile_text(changed.text, changed.path, changes.params, as_written=not changes)


def changed_source(path: Path, changes: Changes) -> Source:
    """Return the text of a file with other numbers of its devices; params are as they were.

    Raises
    ------
    CompileError
        As of ``compile_changed``.
    """
    return _rewritten(_read(path), Changes((), changes.numbers))


def compile_changed_file(path: Path, changes: Changes) -> Compiled:
    """Compile a file with other values, see ``compile_changed``."""
    return compile_changed(_read(path), changes)


def changed_file(path: Path, changes: Changes, target: Path) -> str:
    """Return the text for ``target`` that says what the file at ``path`` says with other values: ``changed_text``."""
    return changed_text(_read(path), changes, str(target))


def _read(path: Path) -> Source:
    with raising_errors() as report:
        return read_source(path, report)


def changed_text(source: Source, changes: Changes, path: str) -> str:
    """Return the text of a file at ``path`` whose scenarios are those of ``compile_changed``.

    Declared schedules that do not fit become comments, and so do expectations that name them.

    Raises
    ------
    CompileError
        As of ``compile_changed``; or if what changes, or no longer fits, stands in an included file.
    """
    wanted = compile_changed(source, changes)
    changed = _rewritten(source, changes)
    kept = {named.name for scenario in wanted.workloads for named in scenario.schedules}
    kept |= {named.name for step in wanted.steps for named in step.schedules}
    text = without(changed, _unfit(_parsed(changed, Report()), kept)).text
    if _questions_of(compile_text(text, path)) != _questions_of(wanted):
        message = "with these values the text would be read as something else"
        raise CompileError([Diagnostic(Code.MGS213, message, Span(Source(path, text), 0, 0))])
    return text


def _questions_of(compiled: Compiled) -> tuple[object, ...]:
    """What a text asks; a value that is set is not explored, and one that is written is."""
    return compiled.workloads, tuple((each.system, each.step, each.schedules) for each in compiled.steps)


def _rewritten(source: Source, changes: Changes) -> Source:
    with raising_errors() as report:
        changed = with_params(source, _parsed(source, report), changes.params, report)
        return with_numbers(changed, _parsed(changed, report), changes.numbers, report)


def _parsed(source: Source, report: Report) -> ast.File:
    file = parse_file(source, report)
    if report.has_errors:
        raise report.stop()
    return file


def _unfit(file: ast.File, kept: set[str]) -> list[ast.Declaration]:
    """Return the declared schedules that are not ``kept``, and the expectations that name them."""
    left_out = [
        each
        for each in file.declarations
        if isinstance(each, ast.TemplateNode | ast.PlanNode) and each.name not in kept
    ]
    names = {each.name for each in left_out}
    requested = (each for each in file.declarations if isinstance(each, ast.Expect))
    return [*left_out, *(each for each in requested if any(references_to(each, names)))]
