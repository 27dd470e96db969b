"""``magus report``: an answer as a page to send."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ....advisor import Advice, AdviceOptions, Advisor
from ....advisor.answer.export import advice_document
from ....advisor.answer.stages import either
from ....advisor.policy.sweep import Sweep, swept
from ....advisor.work.pools import in_threads
from ....compiler.ir import Cancelled, Progress, Scenario, Settings, ShouldStop
from ....compiler.pipeline import Compiled, compile_text
from ....compiler.resolve.values.params import Param
from ....compiler.text.diagnostics import CompileError, Source
from ....compiler.text.writing import check_writable
from ...drawing.drawn_runs import drawn_run
from ...exit_codes import Exit
from ...report import ReportData, report_html
from ...text.door import say
from ...text.next_steps import next_steps
from ...text.progress import progress_line
from ..console import save, show
from ..inputs import ScenarioInput, name_of, source_of
from ..interrupts import interruptible
from ..running import run_command

MAX_POINTS = 9
"""Values of a sweep at most: a parameter with more has them spread evenly."""
SWEPT_TOP = 4
"""Schedules that are simulated at each of them, beside the baseline."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of ``magus report``: ``sweep_s`` are the seconds for the sweep, 0 for none."""

    out: Path
    advice: AdviceOptions
    sweep_s: float = 30.0


def report_file(source: ScenarioInput, options: ReportOptions) -> Exit:
    """Advise, sweep, and write the page."""

    def action() -> Exit:
        check_writable(options.out)
        text = source_of(source.file)
        compiled = compile_text(text.text, text.path, source.settings)
        show(compiled.warnings)
        step = compiled.step(source.workload)
        if step is not None:
            return _report_step(text, source, step.name, compiled, options.out)
        scenario, advisor = compiled.scenario(source.workload), Advisor.load()
        with progress_line() as progress, interruptible() as stopped:
            # Of several ops the page shows all declared schedules, which those who watch are told first.
            watched = None if scenario.only_case is not None else _untold
            advice = advisor.recommend(
                scenario, options.advice, progress=progress, should_stop=stopped, answered=watched
            )
            run = drawn_run(advice)
            sweeps = options.sweep_s and not stopped() and scenario.only_case is not None
            param = swept_param(compiled, source.settings) if sweeps else None
            sweep, note = None, ""
            if param is not None:
                sweep, note = _sweep(text, source, param, advisor, options, progress, stopped)
        if run is None:
            say("magus: the recommended schedule could not be simulated, so there is nothing to draw")
            return Exit.INPUT
        report = ReportData(
            advice=advice,
            run=run,
            data=advice_document(advice, results=True),
            file=name_of(source.file),
            settings=source.settings,
            numbers=compiled.numbers,
            top=options.advice.top,
            todo=next_steps(advice, source.words, how=False),
            sweep=sweep,
            swept=param.name if param is not None else "",
            sweep_note=note,
        )
        done = save(options.out, report_html(report), f"{options.out}: {scenario.title}, one page")
        return Exit.INTERRUPTED if advice.interrupted and stopped() else done

    return run_command(action)


def _report_step(text: Source, source: ScenarioInput, name: str, compiled: Compiled, out: Path) -> Exit:
    """Write the page about a training step."""
    from ....advisor.steps.answer import advise_step  # few files have one
    from ...report.step_page import step_html

    with progress_line() as progress, interruptible() as stopped:
        found = advise_step(text.text, text.path, source.settings, name, progress=progress, should_stop=stopped)
    page = step_html(found, name_of(source.file), source.settings, compiled.numbers)
    done = save(out, page, f"{out}: {name}, one page")
    return Exit.INTERRUPTED if found.searched.interrupted else done


def _untold(advice: Advice) -> None:
    """Nobody sees what would be answered now."""


def swept_param(compiled: Compiled, settings: Settings) -> Param | None:
    """Return the first parameter with values to sweep that ``settings`` do not fix; None without one."""
    fixed = {name for name, _ in settings}
    return next((each for each in compiled.params if len(each.choices) > 1 and each.name not in fixed), None)


def swept_values(param: Param) -> Sequence[str]:
    """Return the values of ``param`` to sweep, the first and the last among them."""
    values, most = param.choices, min(MAX_POINTS, len(param.choices))
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _sweep(
    text: Source,
    source: ScenarioInput,
    param: Param,
    advisor: Advisor,
    options: ReportOptions,
    progress: Progress,
    stopped: ShouldStop,
) -> tuple[Sweep | None, str]:
    """Return the sweep as far as there was time for it, and what is to be said of it."""
    values = swept_values(param)
    points = _points(text, source, param, values)
    deadline, done = time.monotonic() + options.sweep_s, 0
    given = AdviceOptions(SWEPT_TOP, options.advice.verify, bespoke=0, workers=options.advice.workers)

    def late() -> bool:
        return stopped() or time.monotonic() > deadline

    def advise(scenario: Scenario, stop: ShouldStop) -> Advice:
        nonlocal done
        progress("sweep", min(done, len(points)), len(points))
        advice = advisor.recommend(scenario, given, should_stop=either(late, stop))
        if late():
            raise Cancelled
        done += 1
        return advice

    try:
        with in_threads(advise, 1) as ask:
            sweep = swept(points, ask, options=given)
    except Cancelled:
        return None, f"The sweep over {param.name} was left out: one value takes more than {options.sweep_s:g} s."
    left = len(values) - len(sweep.points) - len(sweep.failed)
    note = f"{left} of {len(values)} values of {param.name} were left out: they do not fit, or time was over."
    return sweep, note if left else ""


def _points(
    text: Source, source: ScenarioInput, param: Param, values: Sequence[str]
) -> list[tuple[Settings, Scenario]]:
    """Return the scenario at each of ``values``; those with which the file has errors are left out."""
    points: list[tuple[Settings, Scenario]] = []
    for value in values:
        with suppress(CompileError):
            found = compile_text(text.text, text.path, (*source.settings, (param.name, value)))
            points.append((((param.name, value),), found.scenario(source.workload)))
    return points
