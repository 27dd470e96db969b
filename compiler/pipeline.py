"""The compiler from end to end: text in, scenarios out. Read this file first.

    text -> tokens -> lark tree -> syntax tree -> names -> scenarios -> legal schedules
            text/...                                       resolve/...
            tokens    parse        build          load     file         schedules/check_schedules

Every stage is a function from one frozen form to the next. Mistakes are collected on the way in a Report; at the end
there is either a result or a CompileError that holds all of them. A later stage goes on with what an earlier one left
standing (``soundness.py``), and what follows from a mistake alone is not told.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .codes import Code
from .ir import Scenario, Settings
from .resolve.expect.expectation import Expectation
from .resolve.file import Resolved, resolve
from .resolve.schedules.check_schedules import check_schedules
from .resolve.values.params import Param, bind
from .text.diagnostics import CompileError, Diagnostic, GaveUp, Report, Severity, did_you_mean
from .text.load import load, read_source
from .text.names import Scope
from .text.source import Source, Span

MAX_CHECKED_BINDINGS = 32


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a file says: a scenario per workload, and what it expects of them."""

    path: str
    scenarios: tuple[Scenario, ...]
    expectations: tuple[Expectation, ...]
    warnings: tuple[Diagnostic, ...]
    params: tuple[Param, ...]

    def scenario(self, workload: str | None = None) -> Scenario:
        """Return the scenario of a workload, without a name that of the first one.

        Raises
        ------
        CompileError
            If there is no workload, or none of that name.
        """
        by_name = {scenario.name: scenario for scenario in self.scenarios}
        if workload is None and self.scenarios:
            return self.scenarios[0]
        if workload in by_name:
            return by_name[workload]
        span = Span(Source(self.path, ""), 0, 0)
        if workload is None:
            raise CompileError([Diagnostic(Code.MGS122, "the file declares no workload", span)])
        hint = did_you_mean(workload, by_name) or f"workloads are: {', '.join(by_name) or 'none'}"
        raise CompileError([Diagnostic(Code.MGS203, f"unknown workload '{workload}'", span, hint)])


def compile_file(path: str | Path, settings: Settings = ()) -> Compiled:
    """Compile a file; ``settings`` are parameters and the texts of their values, as ``--set`` takes them.

    Raises
    ------
    CompileError
        If the file cannot be read, or anything in it is wrong; it holds all diagnostics.
    """
    report = Report()
    with suppress(GaveUp), report.attempt():
        return _compile(read_source(Path(path), report), settings, report)
    raise CompileError(report.diagnostics)


def compile_text(text: str, path: str = "<text>", settings: Settings = ()) -> Compiled:
    """Compile a text as if it stood in ``path``; see ``compile_file``."""
    report = Report()
    with suppress(GaveUp):
        return _compile(Source(path, text), settings, report)
    raise CompileError(report.diagnostics)


def _compile(source: Source, settings: Settings, report: Report) -> Compiled:
    scope = load(source, report)
    resolved = resolve(scope, bind(scope, settings, report), report)
    if scope.is_empty and not report.has_errors:
        hint = "begin with: workload NAME on SYSTEM { ... }"
        report.error(Code.MGS122, "nothing is declared", Span(source, 0, 0), hint)
    scenarios = check_schedules(scope, resolved.scenarios, report, as_written=not settings)
    _check_questions(scope, resolved, settings, report)
    if report.has_errors:
        raise CompileError(report.diagnostics)
    return Compiled(source.path, scenarios, resolved.expectations, report.diagnostics, resolved.params)


def _check_questions(scope: Scope, resolved: Resolved, settings: Settings, report: Report) -> None:
    """Resolve the hardware and workloads again for each ``expect ... with`` and each point of a sweep: what
    cannot work is told now."""
    all_bindings = dict.fromkeys(given for each in resolved.expectations for given in each.settings if given)
    known = {(found.code, found.span) for found in report.diagnostics}
    for bindings in islice(all_bindings, MAX_CHECKED_BINDINGS):
        under = report.beside()
        with suppress(GaveUp):
            resolve(scope, bind(scope, (*settings, *bindings), under), under, with_questions=False)
        said = ", ".join(f"{name} = {text}" for name, text in bindings)
        for found in under.diagnostics:
            if found.severity is Severity.ERROR and (found.code, found.span) not in known:
                report.error(found.code, f"with {said}: {found.message}", found.span, found.hint)
