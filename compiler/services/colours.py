"""What each part of a text is, for colours: words of the language, names, numbers, units, comments."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from lark import Token

from ...grammar import load_words
from ..text.diagnostics import GaveUp, Report, Stopped
from ..text.parsing.tokens import DECLARATIONS, read_tokens, split_quantity
from ..text.source import Source
from .context import Context
from .document import NUM_KEPT
from .expected import expected_at

FUNCTIONS = ("operation", "topology", "template", "algorithm", "function", "distribution", "expect.function", "engine")
_OPERATORS = ("EQUAL", "PLUS", "MINUS", "STAR", "SLASH", "COMPARE", "NEGATIVE", "_RANGE", "_SPREAD")


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
        case kind if kind in _OPERATORS:
            yield Coloured(start, end, Colour.OPERATOR)
        case kind if kind == DECLARATIONS.get(token, "") or kind in ("_AS", "_EXTENDS", "_ON", "_FOR", "_WITH", "_IN"):
            yield Coloured(start, end, Colour.KEYWORD)


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
