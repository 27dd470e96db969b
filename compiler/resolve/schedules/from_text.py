"""Schedules by their text: what ``--schedule`` takes is a declared name, a template expression or a plan in a file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...codes import Code
from ...ir import Choice, GraphChoice, GraphPlan, GraphScenario, OpMode, Scenario, Schedule, Seams, System
from ...planfile.file import PLAN_SUFFIX, Warn, graph_plan_in_file, ignore_warnings, plan_in_file
from ...planning.build import build_schedule, declared
from ...planning.graph_build import build_graph_plan
from ...planning.knobs.engine import usual_engine
from ...templates import BASELINE
from ...text import syntax as ast
from ...text.diagnostics import CompileError, Diagnostic, Report, did_you_mean, listing
from ...text.names import Scope
from ...text.parsing.parse import parse_value
from ...text.source import Source, Span
from ..values.evaluate import ExpressionEvaluator, Place
from .template import ChoiceReader

SERIAL = GraphChoice("serial", seams=Seams.WHOLE)
"""Every op without overlap, in the order of the file."""


def resolve_schedule(scenario: Scenario, text: str | None, warn: Warn = ignore_warnings) -> Schedule:
    """The schedule that ``text`` means on ``scenario``; without a text the first declared one, else serial.

    ``warn`` is told what a file says that a plan does not.

    Raises
    ------
    CompileError
        If the text is no template expression, or the file that it names holds no plan that can run.
    ScheduleError
        If the template cannot run on this scenario.
    """
    for named in scenario.schedules:
        if text is None or named.name == text.strip():
            return declared(scenario, named)
    if text is None:
        engine = usual_engine(scenario.system, scenario.workload)
        return build_schedule(scenario, Choice(BASELINE.name, scenario.num_ranks, engine))
    if text.endswith(PLAN_SUFFIX):
        return plan_in_file(scenario, Path(text), warn)
    return build_schedule(scenario, read_choice(scenario, text))


def read_choice(scenario: Scenario, text: str) -> Choice:
    """Read ``uniform_fused_1d(chunks=64, engine=dma(7))`` and fill in what is not said.

    Raises
    ------
    CompileError
        If the text is no template expression.
    """
    return _choice(scenario.system, text, [named.name for named in scenario.schedules])


def _choice(system: System, text: str, declared_names: Sequence[str]) -> Choice:
    report, source = Report(), Source("--schedule", text)
    with report.trial():
        values = parse_value(source, report)
        reader = ChoiceReader(system, Place(Scope()), ExpressionEvaluator(report, {}), report)
        return reader.choice(ast.Template("schedule", ast.Path(("w",)), values))
    names = ", ".join(declared_names)
    raise CompileError(_explained(found, names) for found in report.diagnostics)


def _explained(found: Diagnostic, names: str) -> Diagnostic:
    """An unknown template may be meant as a schedule of the file, and what is no expression as a plan in a file."""
    if found.code is Code.MGS505 and names:
        return replace(found, hint=f"{found.hint}; the file declares {names}")
    if found.code is Code.MGS107 and not found.hint:
        return replace(found, hint=f"for instance serial(engine=dma), or a plan in a file: plan{PLAN_SUFFIX}")
    return found


def schedule_named(scenario: GraphScenario, text: str | None) -> GraphChoice | GraphPlan:
    """The schedule that ``text`` names, as ``choice_named``, or the plan in the file that it names.

    Raises
    ------
    CompileError
        If there is none, or the file holds no plan that can run.
    """
    return (
        choice_named(scenario, text) if text is None or not is_plan_file(scenario, text) else _in_file(scenario, text)
    )


def plan_named(scenario: GraphScenario, text: str | None, layers: int = 1) -> GraphPlan:
    """The plan of what ``text`` names, of so many layers; that in a file has those that are written out.

    Raises
    ------
    CompileError
        As ``schedule_named``.
    ScheduleError
        If the schedule cannot run on this scenario.
    """
    if text is not None and is_plan_file(scenario, text):
        return _in_file(scenario, text)
    return build_graph_plan(scenario.system, scenario.graph, choice_named(scenario, text), layers)


def is_plan_file(scenario: GraphScenario, text: str) -> bool:
    """Whether ``text`` names a file with a plan, and no schedule that is declared."""
    return text.endswith(PLAN_SUFFIX) and text.strip() not in {choice.name for choice in scenario.schedules}


def _in_file(scenario: GraphScenario, text: str) -> GraphPlan:
    return graph_plan_in_file(scenario, Path(text))


def choice_named(scenario: GraphScenario, text: str | None) -> GraphChoice:
    """The schedule that ``text`` names; without a text the first that is declared, else serial.

    Of one op it may be a template expression.

    Raises
    ------
    CompileError
        If there is none of that name.
    """
    known = {choice.name: choice for choice in (*scenario.schedules, SERIAL)}
    if text is None:
        return next(iter(known.values()))
    if text.strip() in known:
        return known[text.strip()]
    if len(scenario.graph.ops) == 1:
        choice = _choice(scenario.system, text, [named.name for named in scenario.schedules])
        return GraphChoice(text.strip(), (OpMode(scenario.graph.ops[0].name, choice),))
    span = Span(Source("--schedule", text), 0, len(text))
    message = f"'{scenario.name}' has {len(scenario.graph.ops)} ops, and no schedule '{text[:64]}'"
    hint = did_you_mean(text, known) or f"its schedules are {listing(known)}"
    raise CompileError([Diagnostic(Code.MGS203, message, span, hint)])
