"""Schedules by their text: what ``--schedule`` takes is a declared name, an expression or a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...codes import Code
from ...ir import HandOff, OpCase, OpChoice, OpMode, OpPlan, Plan, Scenario, Schedule, System, WrittenPlan
from ...planfile.file import PLAN_SUFFIX, PLAN_SUFFIXES, Warn, ignore_warnings, op_plan_in_file, plan_in_file
from ...planning.build import build_op_plan, declared
from ...planning.knobs.engine import usual_engine
from ...planning.plan import build_plan
from ...templates import BASELINE
from ...text import syntax as ast
from ...text.diagnostics import CompileError, Diagnostic, Report, Source, Span, did_you_mean, listing
from ...text.names import Scope
from ...text.parsing.parse import parse_value
from ..values.evaluate import ExpressionEvaluator, Place, Reading
from .schedule import ChoiceReader

SERIAL = Schedule("serial", handoff=HandOff.WHOLE)
"""Every op without overlap, in the order of the file."""


def resolve_schedule(scenario: OpCase, text: str | None, warn: Warn = ignore_warnings) -> OpPlan:
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
        engine = usual_engine(scenario.system, scenario.shape)
        return build_op_plan(scenario, OpChoice(BASELINE.name, scenario.num_ranks, engine))
    if text.endswith(PLAN_SUFFIXES):
        return op_plan_in_file(scenario, Path(text), warn)
    return build_op_plan(scenario, read_choice(scenario, text))


def read_choice(scenario: OpCase, text: str) -> OpChoice:
    """Read ``uniform_fused_1d(chunks=64, engine=dma(7))`` and fill in what is not said.

    Raises
    ------
    CompileError
        If the text is no template expression.
    """
    return _choice(scenario.system, text, {named.name: (named.body,) for named in scenario.schedules})


_Bodies = Mapping[str, Sequence[OpChoice | WrittenPlan | None]]
"""What schedules of a file say of each op, by the name of the schedule."""


def _choice(system: System, text: str, declared_ones: _Bodies) -> OpChoice:
    """Read an expression; it may name kernels that the ``declared_ones`` name."""
    report, source = Report(), Source("--schedule", text)
    with report.trial():
        values = parse_value(source, report)
        bodies = [body for each in declared_ones.values() for body in each if body is not None]
        kernels = [body.engine.kernel for body in bodies if body.engine.kernel is not None]
        reader = ChoiceReader(system, Reading(Place(Scope()), ExpressionEvaluator(report, {}), report), kernels)
        return reader.choice(ast.TemplateNode("schedule", ast.Path(("w",)), values))
    names = ", ".join(declared_ones)
    raise CompileError(_explained(found, names) for found in report.diagnostics)


def _explained(found: Diagnostic, names: str) -> Diagnostic:
    """An unknown template may be meant as a schedule of the file, and what is no expression as a plan in a file."""
    if found.code is Code.MGS505 and names:
        return replace(found, hint=f"{found.hint}{'' if found.hint.endswith('?') else ';'} the file declares {names}")
    if found.code is Code.MGS107 and not found.hint:
        return replace(found, hint=f"for instance serial(engine=dma), or a plan in a file: plan{PLAN_SUFFIX}")
    return found


def schedule_named(scenario: Scenario, text: str | None) -> Schedule | Plan:
    """The schedule that ``text`` names, as ``choice_named``, or the plan in the file that it names.

    Raises
    ------
    CompileError
        If there is none, or the file holds no plan that can run.
    """
    if text is not None and is_plan_file(scenario, text):
        return plan_in_file(scenario, Path(text))
    return choice_named(scenario, text)


def plan_named(scenario: Scenario, text: str | None, layers: int = 1) -> Plan:
    """The plan of what ``text`` names, of so many layers; that in a file has those that are written out.

    Raises
    ------
    CompileError
        As ``schedule_named``.
    ScheduleError
        If the schedule cannot run on this scenario.
    """
    if text is not None and is_plan_file(scenario, text):
        return plan_in_file(scenario, Path(text))
    return build_plan(scenario.system, scenario.workload, choice_named(scenario, text), layers)


def is_plan_file(scenario: Scenario, text: str) -> bool:
    """Whether ``text`` names a file with a plan, and no schedule that is declared."""
    return text.endswith(PLAN_SUFFIXES) and text.strip() not in {choice.name for choice in scenario.schedules}


def choice_named(scenario: Scenario, text: str | None) -> Schedule:
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
    if len(scenario.workload.ops) == 1:
        declared_ones = {named.name: [mode.body for mode in named.modes] for named in scenario.schedules}
        choice = _choice(scenario.system, text, declared_ones)
        return Schedule(text.strip(), (OpMode(scenario.workload.ops[0].name, choice),))
    span = Span(Source("--schedule", text), 0, len(text))
    message = f"'{scenario.name}' has {len(scenario.workload.ops)} ops, and no schedule '{text[:64]}'"
    hint = did_you_mean(text, known) or f"its schedules are {listing(known)}"
    raise CompileError([Diagnostic(Code.MGS203, message, span, hint)])
