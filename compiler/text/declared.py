"""Where a text declares a name, for errors that are found when its meaning is known."""

from . import syntax as ast
from .diagnostics import Report, Source, Span
from .parsing.parse import parse_file


def declared_at(source: Source, name: str) -> Span | None:
    """Return the first line of a schedule or workload of that name; None if the text itself has none."""
    for each in parse_file(source, Report()).declarations:
        if isinstance(each, ast.TemplateNode | ast.PlanNode | ast.WorkloadNode) and each.name == name:
            first = each.span.text.partition("\n")[0].rstrip(" {")
            return Span(each.span.source, each.span.start, each.span.start + len(first))
    return None
