"""Schedules of a graph: what ``--schedule`` takes is one that the file declares, ``serial``, or a plan in a file."""

from pathlib import Path

from ...codes import Code
from ...ir import GraphChoice, GraphPlan, GraphScenario, Seams
from ...planfile.file import PLAN_SUFFIX, graph_plan_in_file
from ...text.diagnostics import CompileError, Diagnostic, did_you_mean, listing
from ...text.source import Source, Span

SERIAL = GraphChoice("serial", seams=Seams.WHOLE)
"""Every op as a pair that does not overlap, in the order of the file."""


def graph_schedule_named(scenario: GraphScenario, text: str | None) -> GraphChoice | GraphPlan:
    """The schedule that ``text`` names, as ``resolve_graph_schedule``, or the plan in the file that it names.

    Raises
    ------
    CompileError
        If there is none, or the file holds no plan that can run.
    """
    names = {choice.name for choice in scenario.schedules}
    if text is not None and text.endswith(PLAN_SUFFIX) and text.strip() not in names:
        return graph_plan_in_file(scenario, Path(text))
    return resolve_graph_schedule(scenario, text)


def resolve_graph_schedule(scenario: GraphScenario, text: str | None) -> GraphChoice:
    """The schedule that ``text`` names; without a text the first that is declared, else serial.

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
    span = Span(Source("--schedule", text), 0, len(text))
    message = f"'{scenario.name}' is a graph, and has no schedule '{text[:64]}'"
    hint = did_you_mean(text, known) or f"its schedules are {listing(known)}"
    raise CompileError([Diagnostic(Code.MGS203, message, span, hint)])
