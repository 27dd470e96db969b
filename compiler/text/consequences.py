"""What a statement that could not be read may cause elsewhere; such findings are not told beside their cause."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..codes import CONSEQUENCES, Code
from .diagnostics import Diagnostic, Report
from .names import Entry
from .soundness import within, words_in
from .source import Span


@dataclass(frozen=True, slots=True)
class Lost:
    """What is missing after a text was read: words of statements that did not parse, and where such a statement was.

    ``damaged`` are the names of declarations, and ``places`` their spans. With ``everything`` any name may be missing:
    a whole file or library was not read.
    """

    words: frozenset[str]
    damaged: frozenset[str]
    places: tuple[Span, ...]
    everything: bool

    @classmethod
    def of(cls, report: Report, entries: Iterable[Entry]) -> "Lost":
        """What the errors that reading the text left in ``report`` have taken from it."""
        errors = [found.span for found in report.diagnostics]
        hurt = [each for each in entries if any(within(error, each.declaration.span) for error in errors)]
        lines = [words_in(_line(error)) for error in errors]
        words = frozenset(report.lost_words).union(*lines)
        spans = tuple(entry.declaration.span for entry in hurt)
        return cls(words, frozenset(entry.name for entry in hurt), spans, report.lost_names or report.num_failures > 0)

    def explains(self, found: Diagnostic) -> bool:
        """Whether ``found`` may be there only because of what is missing."""
        if found.code not in CONSEQUENCES:
            return False
        if self.everything or any(within(found.span, place) for place in self.places):
            return True
        missing = {Code.MGS203: self.words, Code.MGS209: self.damaged}.get(found.code, frozenset())
        return not missing.isdisjoint(words_in(found.span))


def _line(span: Span) -> Span:
    """The line in which ``span`` begins."""
    source, start = span.source, span.source.text.rfind("\n", 0, span.start) + 1
    stop = source.text.find("\n", span.start)
    return Span(source, start, stop if stop >= 0 else len(source.text))
