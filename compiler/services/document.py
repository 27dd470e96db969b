"""A text that is being edited: its mistakes, its names, and their values as far as they are known."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path

from lark import Token

from ...grammar import load_words
from ..ir import Axis, Scenario
from ..pipeline import Examined, examine_text
from ..resolve.devices.device import DeviceResolver
from ..resolve.devices.system import SystemResolver
from ..resolve.values.device_numbers import DeviceNumbers
from ..resolve.values.evaluate import ExpressionEvaluator, Place, Reading
from ..text import syntax as ast
from ..text.diagnostics import Diagnostic, GaveUp, Report, Source, Span, Stopped
from ..text.load import real_path
from ..text.names import Entry, Kind
from ..text.parsing.tokens import DECLARATIONS, HEAD_WORDS, OPERATORS, read_tokens, split_quantity
from ..text.units import Quantity
from .context import Context
from .expected import expected_at

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
        with suppress(Stopped, GaveUp):
            return self._reading.value(expression)
        return None

    def value_of(self, entry: Entry) -> Quantity | None:
        """Return the value of a ``let`` or ``param``."""
        if entry.kind not in (Kind.LET, Kind.PARAM):
            return None
        return self.value(ast.Name(entry.name, span=entry.declaration.span))

    def numbers_of(self, entry: Entry) -> DeviceNumbers:
        """Return the numbers of a gpu, link or switch with their origins; none where they cannot be read."""
        with suppress(Stopped, GaveUp):
            if entry.kind in _DEVICES:
                return DeviceResolver(self._reading).numbers(entry)
        return DeviceNumbers({})

    def axes_of(self, entry: Entry) -> tuple[Axis, ...]:
        """Return the axes of the ranks of a system; none of what is no system, and where they cannot be read."""
        with suppress(Stopped, GaveUp):
            if entry.kind is Kind.SYSTEM:
                reading = self._reading
                return SystemResolver(reading, DeviceResolver(reading)).system(entry).mesh
        return ()

    @property
    def _reading(self) -> Reading:
        """A new context for expressions of the file, whose report nobody reads."""
        report = Report()
        return Reading(Place(self.examined.scope), ExpressionEvaluator(report, {}), report)

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


# What each part of a text is, for colours: words of the language, names, numbers, units, comments.

FUNCTIONS = ("operation", "topology", "template", "algorithm", "function", "distribution", "expect.function", "engine")
_KEYWORDS = frozenset({"_IN", *(kind for words in HEAD_WORDS.values() for kind in words.values())})


class Colour(Enum):
    """What a part of a text is; the value is its name in themes."""

    KEYWORD = "keyword"
    WORD = "word"
    FUNCTION = "function"
    TYPE = "type"
    NAME = "name"
    NUMBER = "number"
    UNIT = "unit"
    TEXT = "text"
    COMMENT = "comment"
    OPERATOR = "operator"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Coloured:
    """The characters from ``start`` to ``end`` and what they are; none goes over a line's end."""

    start: int
    end: int
    colour: Colour


@lru_cache(NUM_KEPT)
def colours(text: str) -> tuple[Coloured, ...]:
    """Return the coloured parts of a text in its order; what is not coloured is plain."""
    source = Source("", text)
    try:
        read = read_tokens(source, Report())
    except (Stopped, GaveUp):
        return ()
    comments = [Coloured(each.span.start, each.span.end, Colour.COMMENT) for each in read.comments]
    place, found = Context(), comments
    for token in read.tokens:
        if token:
            found.extend(_parts(place, token))
        place.feed(token)
    return tuple(sorted(found, key=lambda each: each.start))


def _parts(place: Context, token: Token) -> Iterator[Coloured]:
    start, end = token.start_pos or 0, token.end_pos or 0
    match token.type:
        case "QUANTITY":
            unit = len(split_quantity(str(token))[1])
            yield Coloured(start, end - unit, Colour.NUMBER)
            yield Coloured(end - unit, end, Colour.UNIT)
        case "NUMBER" | "TIMES":
            yield Coloured(start, end, Colour.NUMBER)
        case "TEXT":
            yield Coloured(start, end, Colour.TEXT)
        case "NAME":
            yield Coloured(start, end, _colour(place, str(token)))
        case kind if kind == DECLARATIONS.get(token, "") or kind in _KEYWORDS:
            yield Coloured(start, end, Colour.KEYWORD)
        case kind if kind in OPERATORS:
            yield Coloured(start, end, Colour.OPERATOR)


def _colour(place: Context, word: str) -> Colour:
    """The colour of a word: that of the section in which it means something here, else that of a name."""
    section = next((each for each in expected_at(place).sections if word in load_words().get(each, {})), "")
    match section:
        case "":
            return Colour.NAME
        case "dtype":
            return Colour.TYPE
        case "origin":
            return Colour.ORIGIN
        case _:
            return Colour.FUNCTION if section in FUNCTIONS else Colour.WORD
