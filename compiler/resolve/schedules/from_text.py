"""Schedules by their text: what ``--schedule`` takes is a declared name, a template expression or a plan in a file."""

from dataclasses import replace
from pathlib import Path

from ...codes import Code
from ...ir import Choice, Scenario, Schedule
from ...planfile.file import PLAN_SUFFIX, Warn, ignore_warnings, plan_in_file
from ...planning.build import build_schedule, declared
from ...planning.knobs.engine import usual_engine
from ...templates import BASELINE
from ...text import syntax as ast
from ...text.diagnostics import CompileError, Diagnostic, Report
from ...text.names import Scope
from ...text.parsing.parse import parse_value
from ...text.source import Source
from ..values.evaluate import ExpressionEvaluator, Place
from .template import ChoiceReader


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
    report, source = Report(), Source("--schedule", text)
    with report.trial():
        values = parse_value(source, report)
        reader = ChoiceReader(scenario.system, Place(Scope()), ExpressionEvaluator(report, {}), report)
        template = ast.Template("schedule", ast.Path((scenario.workload.name,)), values)
        return reader.choice(template)
    names = ", ".join(named.name for named in scenario.schedules)
    raise CompileError(_explained(found, names) for found in report.diagnostics)


def _explained(found: Diagnostic, names: str) -> Diagnostic:
    """An unknown template may be meant as a schedule of the file, and what is no expression as a plan in a file."""
    if found.code is Code.MGS505 and names:
        return replace(found, hint=f"{found.hint}; the file declares {names}")
    if found.code is Code.MGS107 and not found.hint:
        return replace(found, hint=f"for instance serial(engine=dma), or a plan in a file: plan{PLAN_SUFFIX}")
    return found
