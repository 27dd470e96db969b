"""Suppress diagnostics that may only follow from statements that could not be read."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..codes import CONSEQUENCES, Code
from .diagnostics import Diagnostic, Report
from .names import Entry
from .soundness import within, words_in
from .source import Span


@dataclass(frozen=True, slots=True)
class MissingText:
    """Text that is missing after parsing.

    ``words`` are those of statements that did not parse; ``damaged`` and ``places`` are the names and spans of the
    declarations with such statements. With ``everything`` any name may be missing: a whole file or library was not
    read.
    """

    words: frozenset[str]
    damaged: frozenset[str]
    places: tuple[Span, ...]
    everything: bool

    @classmethod
    def of(cls, report: Report, entries: Iterable[Entry]) -> "MissingText":
        """Collect the missing text from the errors of parsing in ``report``."""
        errors = [diagnostic.span for diagnostic in report.diagnostics]
        damaged = [entry for entry in entries if any(within(error, entry.declaration.span) for error in errors)]
        lines = [words_in(_line(error)) for error in errors]
        words = frozenset(report.lost_words).union(*lines)
        spans = tuple(entry.declaration.span for entry in damaged)
        everything = report.lost_names or report.num_failures > 0
        return cls(words, frozenset(entry.name for entry in damaged), spans, everything)

    def explains(self, diagnostic: Diagnostic) -> bool:
        """Whether ``diagnostic`` may only follow from missing text."""
        if diagnostic.code not in CONSEQUENCES:
            return False
        if self.everything or any(within(diagnostic.span, place) for place in self.places):
            return True
        missing = {Code.MGS203: self.words, Code.MGS209: self.damaged}.get(diagnostic.code, frozenset())
        return not missing.isdisjoint(words_in(diagnostic.span))


def _line(span: Span) -> Span:
    """Return the line in which ``span`` begins."""
    source, start = span.source, span.source.text.rfind("\n", 0, span.start) + 1
    stop = source.text.find("\n", span.start)
    return Span(source, start, stop if stop >= 0 else len(source.text))
