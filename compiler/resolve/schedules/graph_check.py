"""Whether schedules of graphs can be carried out."""

from collections.abc import Iterator
from dataclasses import replace

from ...ir import GraphScenario, without_batch
from ...planning.graph_build import build_graph_plan
from ...planning.graph_order import GraphPlanError
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Kind, Scope
from ...text.soundness import Soundness
from ...text.source import Span


def check_graph_schedules(
    scope: Scope, graphs: tuple[GraphScenario, ...], report: Report, *, as_written: bool
) -> tuple[GraphScenario, ...]:
    """Report what is wrong with the schedules of graphs, and keep those that can be carried out.

    ``as_written`` is as in ``check_schedules``.
    """
    sound, say = Soundness(scope, report), report.error if as_written else report.warn
    places = {entry.name: entry.declaration for entry in scope.of_kind(Kind.SCHEDULE)}
    kept = []
    for one in graphs:
        legal = []
        for choice in one.schedules:
            declaration = places[choice.name]
            assert isinstance(declaration, ast.Plan), "a schedule of a graph is a block"
            if not sound.of_name(choice.name):
                continue
            try:
                build_graph_plan(one.system, one.graph, choice, min(one.graph.num_layers, 1 + choice.layers_apart))
                legal.append(choice)
            except GraphPlanError as error:
                unfit = error.rejection
                message = unfit.message if as_written else f"{choice.name} is left out: {unfit.message}"
                say(unfit.code, message, _place(declaration, error.at), unfit.hint)
        kept.append(replace(one, schedules=tuple(legal)))
    return tuple(kept)


def _place(declaration: ast.Plan, at: str) -> Span:
    """The statement that defines the op ``at``, begins with that word or names it; else the head of the schedule."""
    at = without_batch(at)
    for statement in declaration.block.statements:
        if isinstance(statement, ast.Define) and statement.name == at:
            return statement.span
    for statement in declaration.block.statements:
        names = (name for group in statement.phrase for part in group.parts for name in _names(part))
        if isinstance(statement, ast.Say) and at in names:
            return statement.span
    return declaration.workload.span


def _names(part: ast.Expression) -> Iterator[str]:
    """The name that ``qkv``, ``qkv[0]``, ``qkv.all_gather`` or ``qkv[0] = serial()`` begins with."""
    match part:
        case ast.Name(text=text):
            yield text
        case ast.Index(base=base) | ast.Member(base=base) | ast.Compare(left=base):
            yield from _names(base)
