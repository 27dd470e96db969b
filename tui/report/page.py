"""The page: sections in the order of the questions a reader has, with style, script and data inline.

It loads nothing: a policy in its head forbids that to whatever stands in it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from ... import __version__
from ...advisor.candidates.advice import Advice
from ...advisor.drawing.timeline_svg import timeline_svg
from ...advisor.drawing.waterfall_svg import waterfall_svg
from ...advisor.policy.sweep import Sweep
from ...compiler.ir import JsonObject, Settings
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...simcore import Result
from ..text.next_steps import NextStep
from ..text.render import scenario_line
from .answer import candidates, headline, implementations, levels, reasons
from .assumptions import assumptions
from .markup import Markup, joined, tag
from .sweep import sweep_section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
MAX_LANES = 20
"""Lanes of a timeline: a page has two."""
IDLE = "Point at a step: its times, and what it waited for and who waited for it, light up."


@dataclass(frozen=True, slots=True)
class Report:
    """What a report is made of: ``result`` is the run that is drawn, ``data`` the document of ``advise --json``.

    ``file`` and ``settings`` say where the scenario is from, ``numbers`` are those of its devices. ``sweep`` goes over
    ``swept``, None without one; ``sweep_note`` says what was left out of it.
    """

    advice: Advice
    result: Result
    data: JsonObject
    file: str
    settings: Settings = ()
    numbers: tuple[StatedNumber, ...] = ()
    top: int = 8
    todo: tuple[NextStep, ...] = ()
    sweep: Sweep | None = None
    swept: str = ""
    sweep_note: str = ""


def report_html(report: Report) -> str:
    """Return the whole page."""
    title = f"Magus: {report.advice.scenario.workload.name}"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Markup(f"<style>\n{_asset('report.css')}</style>"),
    )
    data = json.dumps(report.data).replace("<", "\\u003c")
    body = tag(
        "body",
        joined(_sections(report)),
        Markup(f'<script type="application/json" id="advice">{data}</script>'),
        Markup(f"<script>\n{_asset('report.js')}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sections(report: Report) -> Iterator[Markup]:
    advice = report.advice
    yield _header(report)
    yield headline(advice)
    yield levels(advice)
    if report.todo:
        yield _section("What to do next", *map(_next_step, report.todo))
    yield _section("Timeline", *_timelines(report))
    yield _section("Schedules", *candidates(advice, report.top))
    if advice.implementations is not None:
        yield _section("What you can switch on today", *implementations(advice.implementations))
    if report.result.waterfall is not None:
        waterfall = report.result.waterfall
        about = f"What lies between the lower bound and the run, simulated in units of {waterfall.unit_bytes} B."
        drawing = Markup(waterfall_svg(waterfall))
        yield _section("Where the time goes", tag("p", about, kind="faint"), drawing)
    if report.sweep is not None:
        yield _section(f"From size to size: {report.swept}", *sweep_section(report.sweep, report.swept))
    if report.sweep_note:
        yield tag("p", report.sweep_note, kind="faint")
    yield _section("Why", *reasons(advice))
    yield _section("What this rests on", *assumptions(advice, report.numbers))
    yield tag("footer", tag("p", f"Magus {__version__}; {_run_line(report.result)}", kind="faint"))


def _section(title: str, *parts: Markup) -> Markup:
    return tag("section", tag("h2", title), *parts)


def _header(report: Report) -> Markup:
    scenario = report.advice.scenario
    settings = ", ".join(f"{name} = {value}" for name, value in report.settings)
    parts = [tag("h1", scenario_line(scenario))]
    if scenario.workload.about:
        parts.append(tag("p", scenario.workload.about))
    parts.append(tag("p", f"{report.file}{f' with {settings}' if settings else ''}", kind="faint"))
    return tag("header", *parts)


def _next_step(step: NextStep) -> Markup:
    if not step.by_command:
        return tag("p", f"{step.what[:1].upper()}{step.what[1:]}.")
    return tag("p", f"{step.what[:1].upper()}{step.what[1:]}: ", tag("code", step.command))


def _timelines(report: Report) -> Iterator[Markup]:
    """The run, and below it that of the baseline, to the same scale."""
    advice, shown = report.advice, [report.result]
    serial = advice.serial_result
    if serial is not None and serial.schedule.expression != report.result.schedule.expression:
        shown.append(serial)
    span = max(result.makespan_ticks for result in shown)
    for place, result in enumerate(shown):
        if place:
            yield tag("p", f"To the same scale, the baseline: {advice.baseline}.")
        drawing = tag(
            "div", Markup(timeline_svg(advice.scenario, result, span_ticks=span, max_lanes=MAX_LANES)), kind="timeline"
        )
        yield tag("div", drawing, tag("output", kind="hover", data_idle=IDLE))


def _run_line(result: Result) -> str:
    ranks = f"{result.ranks_simulated} of {result.num_ranks} ranks"
    return f"the run was simulated in units of {result.unit_bytes} B, {ranks}, by the core {result.core}"
