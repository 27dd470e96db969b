"""Find the declarations that errors do not affect, so that later stages can still check them.

A declaration is sound if no error lies in it and everything it names is sound. All words of its text count as names,
whatever they stand for: it is better to miss an error than to report a consequence of another one.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

from .diagnostics import Report, Severity
from .names import Entry, Scope
from .source import Span

_WORD = re.compile(r"[^\W\d]\w*")


class Soundness:
    """The sound declarations of ``scope``, given the errors in ``report`` so far."""

    def __init__(self, scope: Scope, report: Report) -> None:
        diagnostics = report.diagnostics
        self._errors = [diagnostic.span for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
        self._own = {entry.name: entry for entry in scope.own()}
        read = {entry.declaration.span.source.path for entry in self._own.values()}
        # An error in a library, or in a value from outside, may affect every declaration.
        self._nothing = any(error.source.path not in read for error in self._errors)
        wrong = {name for name, entry in self._own.items() if self._holds_error(entry.declaration.span)}
        self._wrong = _spread(
            wrong | scope.declared_twice, {name: self._named(entry) for name, entry in self._own.items()}
        )

    def of_name(self, name: str) -> bool:
        """Whether the declaration of that name, and all it depends on, is sound."""
        return not self._nothing and name not in self._wrong

    def _holds_error(self, span: Span) -> bool:
        return any(within(error, span) for error in self._errors)

    def _named(self, entry: Entry) -> frozenset[str]:
        return words_in(entry.declaration.span) & self._own.keys()


def words_in(span: Span) -> frozenset[str]:
    """Return all words of a text, including comments."""
    return frozenset(_WORD.findall(span.text))


def within(inner: Span, outer: Span) -> bool:
    """Whether ``inner`` begins in ``outer``."""
    return inner.source.path == outer.source.path and outer.start <= inner.start < outer.end


def _spread(wrong: set[str], named: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return ``wrong`` and all names that depend on one of them, directly or through others."""
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
