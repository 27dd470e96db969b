"""Schedules of a graph by name: what ``--schedule`` takes is one that the file declares, or ``serial``."""

from ...codes import Code
from ...ir import GraphChoice, GraphScenario, Seams
from ...text.diagnostics import CompileError, Diagnostic, did_you_mean, listing
from ...text.source import Source, Span

SERIAL = GraphChoice("serial", seams=Seams.WHOLE)
"""Every op as a pair that does not overlap, in the order of the file."""


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
