"""Plans in files of their own: ``schedule mine for w = import "plan.json"``, and ``--schedule plan.json``.

A file holds a plan of Magus (``from_json.py``) or an execution plan of MSCCL++ (``mscclpp/read.py``); the key ``gpus``
tells them apart. Plans of graphs (``graph_from_json.py``) are read for ``--schedule`` alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..ir import GraphPlan, GraphScenario, Plan, Scenario, Schedule
from ..planning.build import ScheduleError, build_schedule
from ..text import syntax as ast
from ..text.diagnostics import CompileError, Diagnostic, Report
from ..text.json_items import MAX_FILE_BYTES, Item, JsonPlace, read_json
from ..text.load import path_beside, read_source
from ..text.source import Source, Span
from ..verify.check import check_plan

PLAN_SUFFIX = ".json"
Warn = Callable[[Sequence[Diagnostic]], None]


def import_plan(scenario: Scenario, text: ast.Text, report: Report) -> Plan:
    """Read the plan at the path ``text``, in the folder of the file that names it or below."""
    return _read(scenario, path_beside(text, "plan", report), text.span, report)


def ignore_warnings(warnings: Sequence[Diagnostic]) -> None:
    """Drop warnings."""


def plan_in_file(scenario: Scenario, path: Path, warn: Warn = ignore_warnings) -> Schedule:
    """Read the schedule of a plan file at any path, which becomes its name; pass warnings to ``warn``.

    Raises
    ------
    CompileError
        If the file cannot be read, is not a plan, or holds one that cannot run here.
    """
    return _schedule(scenario, str(path), lambda span, report: _document(path, span, report), warn)


def plan_in_text(scenario: Scenario, text: str, name: str) -> Schedule:
    """Read the schedule of the text of a plan file; errors name it ``name``.

    Raises
    ------
    CompileError
        As ``plan_in_file``.
    """
    return _schedule(scenario, name, lambda span, report: read_json(text, JsonPlace(name, span, report)))


def graph_plan_in_file(scenario: GraphScenario, path: Path) -> GraphPlan:
    """Read the plan of a graph from a file at any path, which becomes its name.

    Raises
    ------
    CompileError
        As ``plan_in_file``.
    """
    from .graph_from_json import read_graph_plan  # few commands read one

    report, text = Report(), str(path)
    span = Span(Source("--schedule", text), 0, len(text))
    with report.trial():
        plan = read_graph_plan(scenario, _document(path, span, report))
        if not report.has_errors:
            return replace(plan, expression=text)
    raise CompileError(report.diagnostics)


def _schedule(
    scenario: Scenario, name: str, document: Callable[[Span, Report], Item], warn: Warn = ignore_warnings
) -> Schedule:
    report = Report()
    span = Span(Source("--schedule", name), 0, len(name))
    with report.trial():
        schedule = _built(scenario, _plan(scenario, document(span, report)), name, span, report)
        for fault in check_plan(scenario, schedule):
            report.error(fault.code, fault.message, span)
        if not report.has_errors:
            warn(report.diagnostics)
            return schedule
    raise CompileError(report.diagnostics)


def _built(scenario: Scenario, plan: Plan, name: str, span: Span, report: Report) -> Schedule:
    try:
        return build_schedule(scenario, plan, name)
    except ScheduleError as error:
        unfit = error.rejection
        raise report.fail(unfit.code, unfit.message, span, unfit.hint) from None


def _read(scenario: Scenario, path: Path, span: Span, report: Report) -> Plan:
    return _plan(scenario, _document(path, span, report))


def _plan(scenario: Scenario, document: Item) -> Plan:
    # Imported here: few scenarios import a plan, and every command reads scenarios.
    if "gpus" in document.members():
        from .mscclpp.read import read_mscclpp

        return read_mscclpp(scenario, document)
    from .from_json import read_plan

    return read_plan(scenario, document)


def _document(path: Path, span: Span, report: Report) -> Item:
    source = read_source(path, report, span, MAX_FILE_BYTES)
    return read_json(source.text, JsonPlace(path.name, span, report))
