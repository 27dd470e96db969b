"""The page: sections in the order of the questions a reader has."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...advisor.candidates.advice import Advice
from ...advisor.drawing.waterfall_svg import waterfall_svg
from ...advisor.drawn_runs import baseline_run
from ...advisor.policy.sweep import Sweep
from ...compiler.ir import JsonObject, Settings
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...simcore import ShownRun
from ..text.next_steps import NextStep
from ..text.question import question_line
from .answer import candidates, headline, implementations, levels, reasons
from .assumptions import assumptions
from .markup import Markup, tag
from .ops import ops, several_schedules
from .shell import footer, header, page_html, section, timelines
from .sweep import sweep_section


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report is made of: ``run`` is the one that is drawn, ``data`` the document of ``advise --json``.

    ``file`` and ``settings`` say where the scenario is from, ``numbers`` are those of its devices. ``sweep`` goes over
    ``swept``, None without one; ``sweep_note`` says what was left out of it.
    """

    advice: Advice
    run: ShownRun
    data: JsonObject
    file: str
    settings: Settings = ()
    numbers: tuple[StatedNumber, ...] = ()
    top: int = 8
    todo: tuple[NextStep, ...] = ()
    sweep: Sweep | None = None
    swept: str = ""
    sweep_note: str = ""


def report_html(report: ReportData) -> str:
    """Return the whole page."""
    return page_html(report.advice.scenario.title, _sections(report), report.data)


def _sections(report: ReportData) -> Iterator[Markup]:
    advice, scenario = report.advice, report.advice.scenario
    yield header(question_line(scenario), scenario.graph.about, report.file, report.settings)
    yield headline(advice)
    yield levels(advice)
    if report.todo:
        yield section("What to do next", *map(_next_step, report.todo))
    yield section("Timeline", *_timelines(report))
    if advice.recommended.several is None:
        yield section("Schedules", *candidates(advice, report.top))
    else:
        yield section("Schedules", *several_schedules(advice))
        yield section("What each op does", *ops(advice))
    if advice.offers is not None:
        yield section("What you can switch on today", *implementations(advice.offers))
    waterfall = report.run.result.waterfall
    if waterfall is not None:
        about = f"What lies between the lower bound and the run, simulated in units of {waterfall.unit_bytes} B."
        drawing = Markup(waterfall_svg(waterfall))
        yield section("Where the time goes", tag("p", about, kind="faint"), drawing)
    if report.sweep is not None:
        yield section(f"From size to size: {report.swept}", *sweep_section(report.sweep, report.swept))
    if report.sweep_note:
        yield tag("p", report.sweep_note, kind="faint")
    yield section("Why", *reasons(advice))
    yield section("What this rests on", *assumptions(scenario.system, advice.bound, report.numbers))
    yield footer(report.run.result)


def _next_step(step: NextStep) -> Markup:
    if not step.by_command:
        return tag("p", f"{step.what[:1].upper()}{step.what[1:]}.")
    return tag("p", f"{step.what[:1].upper()}{step.what[1:]}: ", tag("code", step.command))


def _timelines(report: ReportData) -> Iterator[Markup]:
    """The run, and below it that of the baseline, to the same scale."""
    baseline = baseline_run(report.advice)
    others = [] if baseline is None or baseline.expression == report.run.expression else [baseline]
    return timelines([report.run, *others], report.advice.baseline)
