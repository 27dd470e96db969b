"""The compiler from end to end: text in, scenarios out. Read this file first.

    text -> tokens -> lark tree -> syntax tree -> names -> scenarios -> legal schedules
            text/...                                       resolve/...
            tokens    parse        build          load     file         schedules/check

Every stage is a function from one frozen form to the next. A Report collects errors on the way; the result is either a
value or a CompileError with all of them. A later stage goes on with the declarations that have no errors
(``text/names.py``); consequences of an error are not reported (``text/load.py``).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from .codes import Code
from .ir import Partition, Scenario, Settings
from .ir.step import StepScenario
from .resolve.expect.expectation import Expectation
from .resolve.file import Resolved, resolve
from .resolve.schedules.check import check_schedules
from .resolve.values.device_numbers import StatedNumber
from .resolve.values.params import Param, bind
from .text.diagnostics import (
    CompileError,
    Diagnostic,
    GaveUp,
    Report,
    Severity,
    Source,
    Span,
    did_you_mean,
    raising_errors,
)
from .text.load import load, read_source
from .text.names import Kind, Scope

MAX_CHECKED_BINDINGS = 32
NUM_KEPT = 64
"""Texts whose names are kept, as far as they are compiled with many settings."""


@dataclass(frozen=True)
class Compiled:
    """A compiled file: a scenario per workload, in the order of the file, and the expectations about them.

    The scenarios depend on ``params``, values that the file leaves open, and on ``numbers`` of its devices. ``steps``
    are training steps, ``partitions`` workloads on several groups of ranks. ``spans`` are where workloads are declared.
    """

    path: str
    workloads: tuple[Scenario, ...]
    expectations: tuple[Expectation, ...]
    warnings: tuple[Diagnostic, ...]
    params: tuple[Param, ...]
    numbers: tuple[StatedNumber, ...] = ()
    steps: tuple[StepScenario, ...] = ()
    partitions: tuple[Partition, ...] = ()
    spans: tuple[tuple[str, Span], ...] = ()

    def span_of(self, workload: str) -> Span | None:
        """Return where a workload, or the workload that it is a part of, is declared; None if it is in no text."""
        whole = next((each.name for each in self.partitions if workload in each.parts), workload)
        return dict(self.spans).get(whole)

    def step(self, name: str | None = None) -> StepScenario | None:
        """Return the step of that name, by default the first of the file; None if there is none."""
        found = [step for step in self.steps if name is None or step.name == name]
        return found[0] if found else None

    def partition(self, name: str | None = None) -> Partition | None:
        """Return the workload of that name, by default the first, if it runs on several groups; else None."""
        first = self.workloads[0].name if self.workloads else ""
        return next(
            (each for each in self.partitions if name == each.name or (name is None and first in each.parts)), None
        )

    def scenario(self, workload: str | None = None) -> Scenario:
        """Return the scenario of a workload, by default of the first one.

        Raises
        ------
        CompileError
            If there is no workload of that name; if it is a training step (see ``step``) or runs on several groups (see
            ``partition``), which are no scenarios; or if it is a layer whose keys and values a step exchanges.
        """
        step = self.step(workload)
        if step is not None:
            raise self._of_step(step)
        partition = self.partition(workload)
        if partition is not None:
            message = f"{partition.name} is on several groups, and this is about a part of it"
            hint = f"its parts: --workload {' or '.join(partition.parts)}; magus advise answers about all of it"
            raise self._error(Code.MGS574, message, hint, about=partition.name)
        by_name = {scenario.name: scenario for scenario in self.workloads}
        found = self.workloads[0] if workload is None and self.workloads else by_name.get(workload or "")
        if found is not None:
            return self._whole(found)
        if workload is None:
            raise self._error(Code.MGS122, "the file declares no workload")
        known = (*by_name, *(each.name for each in self.steps), *(each.name for each in self.partitions))
        hint = did_you_mean(workload, known) or f"workloads are: {', '.join(known) or 'none'}"
        raise self._error(Code.MGS203, f"unknown workload '{workload}'", hint)

    def _whole(self, scenario: Scenario) -> Scenario:
        """A scenario, unless its step does a part of it."""
        for each in scenario.workload.in_context:
            message = f"attention of {scenario.name} is over {each.over}, whose keys and values its step exchanges"
            hint = f"ask about the step, or about whole sequences: {each.over} 1"
            raise self._error(Code.MGS573, message, hint, about=scenario.name)
        return scenario

    def _of_step(self, step: StepScenario) -> CompileError:
        layers = " or ".join(dict.fromkeys(part.forward.name for block in step.step.blocks for part in block.parts))
        hint = f"about its layers: --workload {layers}; magus advise and magus simulate answer about the step"
        message = f"{step.name} is a training step, and this is not answered about one"
        return self._error(Code.MGS573, message, hint, about=step.name)

    def _error(self, code: Code, message: str, hint: str = "", about: str = "") -> CompileError:
        """What is wrong with a question about the file, or ``about`` a workload that it declares."""
        span = self.span_of(about) or Span(Source(self.path, ""), 0, 0)
        return CompileError([Diagnostic(code, message, span, hint)])


def compile_file(path: str | Path, settings: Settings = ()) -> Compiled:
    """Compile a file; ``settings`` are parameters and the texts of their values, as ``--set`` takes them.

    Raises
    ------
    CompileError
        If the file cannot be read or has errors; it holds all diagnostics.
    """
    with raising_errors() as report:
        source = read_source(Path(path), report)
        return _compile(source, load(source, report), settings, report)


def compile_text(
    text: str, path: str = "<text>", settings: Settings = (), *, as_written: bool = True, seed: int | None = None
) -> Compiled:
    """Compile a text as if it stood in ``path``; see ``compile_file``.

    A declared schedule that does not fit is an error if the text is ``as_written`` by its user; otherwise, or with
    ``settings``, it is left out. ``seed`` replaces the seeds of random routings in the text, unless it is None.
    """
    with raising_errors() as report:
        source = Source(path, text)
        return _compile(source, load(source, report), settings, report, as_written, seed)


@lru_cache(maxsize=NUM_KEPT)
def compiler_of(text: str, path: str) -> Callable[[Settings], Compiled]:
    """Read a text once, and return what compiles it with any settings, as ``compile_text`` does.

    Raises
    ------
    CompileError
        If it cannot be read; what is returned raises it too.
    """
    source = Source(path, text)
    with raising_errors() as report:
        scope = load(source, report)

    def compiled(settings: Settings) -> Compiled:
        with raising_errors() as report:
            return _compile(source, scope, settings, report)

    return compiled


def written_out(text: str, path: str = "<text>") -> str:
    """Return the canonical form of a text with its derived workloads written out.

    Raises
    ------
    CompileError
        If it has errors; what is derived follows from what the rest means.
    """
    from .resolve.workloads.backward import with_derived  # for `fmt --derived` alone

    source = Source(path, text)
    with raising_errors() as report:
        scope = load(source, report)
        _compile(source, scope, (), report)
        return with_derived(source, scope, report)


@dataclass(frozen=True, slots=True)
class Examined:
    """What the stages made of a text, right or wrong.

    ``scope`` holds the names of all that could be read; ``compiled`` is None if there are errors.
    """

    source: Source
    scope: Scope
    compiled: Compiled | None
    diagnostics: tuple[Diagnostic, ...]


def examine_text(text: str, path: str = "<text>") -> Examined:
    """Compile a text as if it stood in ``path``; return its names and mistakes even if it has errors, for editors."""
    source, report, scope = Source(path, text), Report(), Scope()
    compiled: Compiled | None = None
    with suppress(GaveUp, CompileError):
        scope = load(source, report)
        compiled = _compile(source, scope, (), report)
    return Examined(source, scope, compiled, report.diagnostics)


def _compile(
    source: Source,
    scope: Scope,
    settings: Settings,
    report: Report,
    as_written: bool = True,
    seed: int | None = None,
) -> Compiled:
    resolved = resolve(scope, bind(scope, settings, report), report, seed=seed)
    if scope.is_empty and not report.has_errors:
        hint = "begin with: workload NAME on SYSTEM { ... }"
        report.error(Code.MGS122, "nothing is declared", Span(source, 0, 0), hint)
    as_written = as_written and not settings
    scenarios = check_schedules(scope, resolved.scenarios, report, as_written=as_written)
    if seed is None:
        _check_questions(scope, resolved, settings, report)
    if report.has_errors:
        raise CompileError(report.diagnostics)
    return Compiled(
        source.path,
        scenarios,
        resolved.expectations,
        report.diagnostics,
        resolved.params,
        resolved.numbers,
        resolved.steps,
        resolved.partitions,
        tuple((entry.name, entry.declaration.span) for entry in scope.of_kind(Kind.WORKLOAD)),
    )


def _check_questions(scope: Scope, resolved: Resolved, settings: Settings, report: Report) -> None:
    """Resolve the file again for each ``expect ... with`` and each point of a sweep, and report new errors.

    Where these say what holds already there are none.
    """
    all_settings = (given for expectation in resolved.expectations for given in expectation.settings)
    all_bindings = dict.fromkeys(filter(None, all_settings))
    held = {param.name: param.quantity for param in resolved.params}
    reported = {(diagnostic.code, diagnostic.span) for diagnostic in report.diagnostics}
    for bindings in islice(all_bindings, MAX_CHECKED_BINDINGS):
        inner_report = report.beside()
        with inner_report.trial():
            bound = bind(scope, (*settings, *bindings), inner_report)
            if inner_report.has_errors or bound.items() - held.items():
                resolve(scope, bound, inner_report, with_questions=False)
        settings_text = ", ".join(f"{name} = {text}" for name, text in bindings)
        for diagnostic in inner_report.diagnostics:
            if diagnostic.severity is Severity.ERROR and (diagnostic.code, diagnostic.span) not in reported:
                message = f"with {settings_text}: {diagnostic.message}"
                report.error(diagnostic.code, message, diagnostic.span, diagnostic.hint)
