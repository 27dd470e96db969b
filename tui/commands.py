"""What each command does: compile, call the stage it is about, print. Every function returns an exit code."""

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..advisor import Advisor, ModelError, NoFeasibleSchedule, enumerate_space, lower_bound
from ..advisor.expect import ExpectationRunner
from ..advisor.export import advice_document, result_document, space_document
from ..compiler import CompileError, Scenario, compile_file, format_text
from ..compiler.diagnostics import Diagnostic, Report, as_json, render_text
from ..compiler.load import read_source
from ..compiler.plan import ScheduleError
from ..compiler.schedule_text import resolve_schedule
from ..compiler.source import Source
from ..simcore import PACKET_BYTES, Outcome, simulate
from .exits import Exit
from .progress import progress_line
from .render import advice_text, result_text, space_text

Bindings = Sequence[tuple[str, str]]


def say(text: str) -> None:
    """Progress and diagnostics go to stderr, so that stdout stays the result."""
    print(text, file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    print(json.dumps(document, indent=2))


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Diagnostics on stderr, in colour where a terminal reads them."""
    if diagnostics:
        say(render_text(diagnostics, color=sys.stderr.isatty()))


def guarded(action: Callable[[], Exit]) -> Exit:
    """Run ``action``; what is wrong with the input becomes text on stderr and an exit code."""
    try:
        return action()
    except CompileError as error:
        show(error.diagnostics)
        return Exit.INPUT
    except ScheduleError as error:
        say(f"{error.code.name} error: {error}" + (f"\n  help: {error.hint}" if error.hint else ""))
        return Exit.INPUT
    except ModelError as error:
        say(f"magus: the ranker cannot be used: {error}")
        return Exit.INPUT
    except NoFeasibleSchedule as error:
        say("MGS510 error: no schedule is feasible; these constraints together leave none:")
        for reason in error.reasons:
            say(f"  - {reason}")
        return Exit.NOT_FEASIBLE


def check_files(files: Sequence[Path], bindings: Bindings, *, as_json_text: bool) -> Exit:
    """``magus check``: every error and warning of every file."""
    found: list[Diagnostic] = []
    wrong = 0
    for file in files:
        try:
            found.extend(compile_file(file, bindings).warnings)
        except CompileError as error:
            found.extend(error.diagnostics)
            wrong += 1
    if as_json_text:
        print_json({"schema": "magus-diagnostics/1", "diagnostics": [as_json(one) for one in found]})
    else:
        show(found)
        say(f"{len(files) - wrong} of {len(files)} files are right")
    return Exit.INPUT if wrong else Exit.DONE


def format_files(files: Sequence[Path], *, check_only: bool) -> Exit:
    """``magus fmt``: rewrite in the canonical form, or say which files are not in it."""

    def one(file: Path) -> Exit:
        source = _read(file)
        text = format_text(source.text, source.path)
        if text == source.text:
            return Exit.DONE
        if check_only:
            say(f"{file} is not in the canonical form")
            return Exit.INPUT
        file.write_text(text, encoding="utf-8")
        say(f"{file} rewritten")
        return Exit.DONE

    return max([guarded(lambda file=file: one(file)) for file in files])  # type: ignore[misc]


def test_files(files: Sequence[Path], bindings: Bindings, workers: int) -> Exit:
    """``magus test``: every ``expect`` block, each with its own bindings."""
    advisor = cache(Advisor.load)
    return max([guarded(lambda file=file: _test_file(file, bindings, advisor, workers)) for file in files])  # type: ignore[misc]


def _test_file(file: Path, bindings: Bindings, advisor: Callable[[], Advisor], workers: int) -> Exit:
    compiled = compile_file(file, bindings)
    if not compiled.expectations:
        say(f"{file}: no expect block")
    failed = passed = 0
    runners: dict[tuple[str, tuple[tuple[str, str], ...]], ExpectationRunner] = {}
    for expectation in compiled.expectations:
        key = (expectation.workload, expectation.bindings)
        if key not in runners:
            bound = compile_file(file, [*bindings, *expectation.bindings]) if expectation.bindings else compiled
            runners[key] = ExpectationRunner(bound.scenario(expectation.workload), advisor, workers)
        given = "".join(f" with {name} = {value}" for name, value in expectation.bindings)
        for result in runners[key].run(expectation):
            passed, failed = passed + result.passed, failed + (not result.passed)
            mark = "ok    " if result.passed else "FAILED"
            where = f"{file}:{result.check.span.location.line}"
            print(f"{mark} {where}: {result.check.text}{given}  ({result.found})")
    print(f"{file}: {passed} passed, {failed} failed")
    return Exit.INPUT if failed else Exit.DONE


def simulate_file(
    file: Path,
    bindings: Bindings,
    *,
    workload: str | None,
    schedule: str | None,
    at_line: bool,
    fold: bool,
    strict: bool,
    as_json_text: bool,
) -> Exit:
    """``magus simulate``: one schedule, by default the first that the file declares, else serial."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        chosen = resolve_schedule(scenario, schedule)
        bound, line = lower_bound(scenario), scenario.gpu.line_bytes
        packet = -(-PACKET_BYTES // line) * line
        result = simulate(
            scenario,
            chosen,
            unit_bytes=line if at_line else packet,
            fold=fold,
            bound_ticks=bound.ticks,
            explain_bytes=packet,
        )
        if as_json_text:
            print_json(result_document(result, scenario.workload.name))
        else:
            print(result_text(result, scenario, bound))
        if result.outcome is not Outcome.DONE:
            say(f"magus: {result.outcome.value}")
            return Exit.INPUT
        return _strictly(scenario, strict)

    return guarded(action)


def list_schedules(
    file: Path, bindings: Bindings, *, workload: str | None, limit: int | None, as_json_text: bool
) -> Exit:
    """``magus schedules``: the feasible space in its canonical order, with the lower bound."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        space, bound = enumerate_space(scenario, limit=limit), lower_bound(scenario)
        if as_json_text:
            print_json(space_document(scenario, space, bound))
        else:
            print(space_text(scenario, space, bound))
        return Exit.DONE

    return guarded(action)


def advise_file(
    file: Path,
    bindings: Bindings,
    *,
    workload: str | None,
    top: int,
    verify: bool,
    strict: bool,
    as_json_text: bool,
    workers: int,
) -> Exit:
    """``magus advise``: the answer with its proof."""

    def action() -> Exit:
        scenario = _scenario(file, bindings, workload)
        with progress_line() as progress:
            advice = Advisor.load().recommend(scenario, top=top, verify=verify, workers=workers, progress=progress)
        if as_json_text:
            print_json(advice_document(advice))
        else:
            print(advice_text(advice, top))
        return _strictly(scenario, strict)

    return guarded(action)


def train_model(out: Path | None, *, seed: int, scenarios: int | None, as_json_text: bool, workers: int) -> Exit:
    """``magus train``: build the data set, fit, report on unseen scenarios, write the model."""
    from ..advisor.train import report_document, report_text, train

    def action() -> Exit:
        with progress_line() as progress:
            report = train(out=out, seed=seed, scenarios=scenarios, workers=workers, progress=progress)
        if as_json_text:
            print_json(report_document(report))
        else:
            print(report_text(report))
        return Exit.DONE

    return guarded(action)


def _read(file: Path) -> Source:
    """The text of a file; what keeps it from being read is a diagnostic."""
    report = Report()
    with report.attempt():
        return read_source(file, report)
    raise CompileError(report.diagnostics)


def _scenario(file: Path, bindings: Bindings, workload: str | None) -> Scenario:
    compiled = compile_file(file, bindings)
    show(compiled.warnings)
    return compiled.scenario(workload)


def _strictly(scenario: Scenario, strict: bool) -> Exit:
    """With ``--strict``, an answer that rests on a profile that is not validated is not an answer."""
    if not strict or scenario.workload.gemm is None or scenario.gpu.gemm.validated:
        return Exit.DONE
    say(f"magus: --strict: the GEMM profile of {scenario.gpu.name} is not validated against measurements")
    return Exit.NOT_FEASIBLE
