"""A text that is being edited: its mistakes, its names, and their values as far as they are known."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from ..ir import Axis, Scenario
from ..pipeline import Examined, examine_text
from ..resolve.devices.device import DeviceResolver
from ..resolve.devices.system import SystemResolver
from ..resolve.values.device_numbers import DeviceNumbers
from ..resolve.values.evaluate import ExpressionEvaluator, Place
from ..text import syntax as ast
from ..text.diagnostics import Diagnostic, GaveUp, Report, Source, Span, Stopped
from ..text.load import real_path
from ..text.names import Entry, Kind
from ..text.units import Quantity

NUM_KEPT = 8
"""Texts whose examination is kept: completion, hover and colours ask about one text many times."""
_DEVICES = (Kind.GPU, Kind.LINK, Kind.SWITCH)


@dataclass(frozen=True)
class Document:
    """A text as it stands in an editor; files that it includes are read from disk."""

    examined: Examined

    @property
    def source(self) -> Source:
        """The text."""
        return self.examined.source

    @property
    def path(self) -> Path:
        """Where the text stands, or will stand."""
        return Path(self.source.path)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All mistakes, each at a place of this text: those of an included file at its ``include``."""
        return tuple(self._here(each) for each in self.examined.diagnostics)

    @property
    def tree(self) -> ast.File | None:
        """The syntax tree of what could be read of the text, None if it is no text of the language at all."""
        trees = (each for each in self.examined.scope.trees if each.span.source.path == self.source.path)
        return next(trees, None)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios of the text, none while it has errors."""
        return self.examined.compiled.workloads if self.examined.compiled is not None else ()

    def entry(self, names: tuple[str, ...]) -> Entry | None:
        """Return what ``name`` or ``library.name`` stands for."""
        return self.examined.scope.lookup(names)

    def value(self, expression: ast.Expression) -> Quantity | None:
        """Return the value of an expression of lets and params as the file sets them, None if it has none."""
        try:
            return ExpressionEvaluator(Report(), {})(expression, Place(self.examined.scope))
        except (Stopped, GaveUp):
            return None

    def value_of(self, entry: Entry) -> Quantity | None:
        """Return the value of a ``let`` or ``param``."""
        if entry.kind not in (Kind.LET, Kind.PARAM):
            return None
        return self.value(ast.Name(entry.name, span=entry.declaration.span))

    def numbers_of(self, entry: Entry) -> DeviceNumbers:
        """Return the numbers of a gpu, link or switch with their origins; none where they cannot be read."""
        report = Report()
        try:
            if entry.kind in _DEVICES:
                return DeviceResolver(report, ExpressionEvaluator(report, {})).numbers(entry)
        except (Stopped, GaveUp):
            pass
        return DeviceNumbers({})

    def axes_of(self, entry: Entry) -> tuple[Axis, ...]:
        """Return the axes of the ranks of a system; none of what is no system, and where they cannot be read."""
        report = Report()
        evaluator = ExpressionEvaluator(report, {})
        try:
            if entry.kind is Kind.SYSTEM:
                return SystemResolver(report, evaluator, DeviceResolver(report, evaluator)).system(entry).mesh
        except (Stopped, GaveUp):
            pass
        return ()

    def _here(self, diagnostic: Diagnostic) -> Diagnostic:
        elsewhere = diagnostic.span
        if elsewhere.source.path == self.source.path:
            return diagnostic
        place = f"{Path(elsewhere.source.path).name}:{elsewhere.location.line}:{elsewhere.location.column}"
        return replace(
            diagnostic, span=self._include_of(elsewhere.source.path), message=f"{place}: {diagnostic.message}"
        )

    def _include_of(self, path: str) -> Span:
        """The ``include`` of this text that leads to a file; the first one if it is included by another file."""
        declarations = self.tree.declarations if self.tree is not None else ()
        includes = [each for each in declarations if isinstance(each, ast.Include)]
        straight = (each for each in includes if real_path(self.path.parent / each.path) == real_path(Path(path)))
        found = next(iter((*straight, *includes)), None)
        return found.span if found is not None else Span(self.source, 0, 0)


@lru_cache(NUM_KEPT)
def read_document(text: str, path: str) -> Document:
    """Examine a text as if it stood in ``path``."""
    return Document(examine_text(text, path))
