"""A file with its derived workloads written out, as its author could edit them."""

from collections.abc import Iterator

from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.formatting.fmt import format_text
from ...text.formatting.fmt_text import phrase
from ...text.names import Kind, Scope
from ...text.source import Source
from ..devices.device import DeviceResolver
from ..devices.system import SystemResolver
from ..values.evaluate import ExpressionEvaluator
from ..values.sentences import head_of
from .backward import KEEP, BackwardReader
from .backward_pass import Derived
from .backward_syntax import is_backward
from .workload import resolve_workload


def with_derived(source: Source, scope: Scope, report: Report) -> str:
    """The canonical text of ``source``, whose ``scope`` has no errors, with what it derives in place of the request."""
    evaluator = ExpressionEvaluator(report, {})
    systems = SystemResolver(report, evaluator, DeviceResolver(report, evaluator))
    reader = BackwardReader(systems, evaluator, report, lambda e, r: resolve_workload(e, systems, evaluator, r))
    changes: list[tuple[int, int, str]] = []
    for entry in scope.of_kind(Kind.WORKLOAD):
        declaration = entry.declaration
        assert isinstance(declaration, ast.Workload)
        if declaration.span.source is source and is_backward(declaration):
            lines = "\n".join(_lines(reader.derived(entry)[1]))
            for statement in declaration.block.statements:
                word = head_of(statement) if isinstance(statement, ast.Say) else None
                if word is not None and word.text != "about":
                    written = "\n" if word.text == KEEP else f"{lines}\n"
                    changes.append((statement.span.start, statement.span.end, written))
    text = source.text
    for start, end, written in sorted(changes, reverse=True):
        text = text[:start] + written + text[end:]
    return format_text(text, source.path)


def _lines(derived: Derived) -> Iterator[str]:
    for block in (derived.tensors, derived.ops):
        for statement in block:
            note = derived.notes.get(statement.name, "")
            yield f"{statement.name} = {phrase(statement.phrase)}" + (f"  # {note}" if note else "")
        yield ""
    yield from (phrase(statement.phrase) for statement in derived.layers)
