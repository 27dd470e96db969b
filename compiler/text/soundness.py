"""What a mistake leaves standing: which declarations can still be asked about when others are wrong.

A declaration is sound if no error lies in it and everything it names is sound. Names are taken from its text, whatever
they stand for there: rather one mistake less is told than one that is only the consequence of another.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

from .diagnostics import Report, Severity
from .names import Entry, Scope
from .source import Span

_WORD = re.compile(r"[^\W\d]\w*")


class Soundness:
    """Which of the names of ``scope`` are sound, as far as ``report`` knows now."""

    def __init__(self, scope: Scope, report: Report) -> None:
        found = report.diagnostics
        self._errors = [each.span for each in found if each.severity is Severity.ERROR]
        self._own = {entry.name: entry for entry in scope.own()}
        read = {entry.declaration.span.source.path for entry in self._own.values()}
        # What is wrong in a library, or with a value from outside, may concern anything.
        self._nothing = any(error.source.path not in read for error in self._errors)
        wrong = {name for name, entry in self._own.items() if self._holds_error(entry.declaration.span)}
        self._wrong = _spread(wrong | scope.twice, {name: self._named(entry) for name, entry in self._own.items()})

    def of_name(self, name: str) -> bool:
        """Whether the declaration of that name is sound, and all it depends on."""
        return not self._nothing and name not in self._wrong

    def _holds_error(self, span: Span) -> bool:
        return any(within(error, span) for error in self._errors)

    def _named(self, entry: Entry) -> frozenset[str]:
        return words_in(entry.declaration.span) & self._own.keys()


def words_in(span: Span) -> frozenset[str]:
    """All words of a text, those of comments included."""
    return frozenset(_WORD.findall(span.text))


def within(inner: Span, outer: Span) -> bool:
    """Whether ``inner`` begins in ``outer``."""
    return inner.source.path == outer.source.path and outer.start <= inner.start < outer.end


def _spread(wrong: set[str], named: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """``wrong`` and all that name one of them, directly or by way of others."""
    named_by = defaultdict[str, list[str]](list)
    for name, words in named.items():
        for word in words:
            named_by[word].append(name)
    spread, waiting = set(wrong), list(wrong)
    while waiting:
        following = [name for name in named_by[waiting.pop()] if name not in spread]
        spread.update(following)
        waiting.extend(following)
    return frozenset(spread)
