"""Where a name stands: its declaration and all its uses, found from tokens, so that a broken statement hides none.

A name belongs to the file, or to the workload or plan that defines it. Tensors of a workload are also those of its
plans.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from lark import Token

from ...grammar import load_words
from ..text.load import real_path
from ..text.source import Source, Span
from ..text.vocabulary import BACKWARD_WORDS
from .context import Context, tokens_of
from .document import Document
from .expected import expected_at

_EDGES = "edges"
_RATIO = re.compile(r"x[0-9]+")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One use of a name. ``home`` is the workload or plan that it belongs to, empty for a name of the file."""

    name: str
    home: str
    span: Span
    is_definition: bool


def occurrences_in(source: Source) -> tuple[Occurrence, ...]:
    """Return every use of a name in a text, in the order of the text."""
    uses = list(_uses(source))
    local = {(use.home, use.name) for use in uses if use.is_definition and use.home}
    return tuple(_at_home(use, local) for use in uses)


def occurrence_at(document: Document, offset: int) -> Occurrence | None:
    """Return the name that stands at an offset, or right before it."""
    here = [use for use in occurrences_in(document.source) if use.span.start <= offset <= use.span.end]
    return here[-1] if here else None


def all_occurrences(document: Document, of: Occurrence, includers: Sequence[Document] = ()) -> tuple[Occurrence, ...]:
    """Return all uses of a name in a text and, if it is a name of the file, in what it includes.

    Of ``includers``, those that read a file which defines the name have uses of it too.
    """
    sources = [document.source]
    if not of.home:
        sources += _included(document)
    found = _of(sources, of)
    homes = {real_path(Path(use.span.source.path)) for use in found if use.is_definition and not of.home}
    for each in includers:
        known = {real_path(Path(source.path)) for source in sources}
        if homes & each.examined.scope.files:
            new = [each.source, *_included(each)]
            sources += [source for source in new if real_path(Path(source.path)) not in known]
    return _of(sources, of)


def _included(document: Document) -> list[Source]:
    trees = document.examined.scope.trees
    return [tree.span.source for tree in trees if tree.span.source.path != document.source.path]


def _of(sources: Sequence[Source], of: Occurrence) -> tuple[Occurrence, ...]:
    each = (use for source in sources for use in occurrences_in(source))
    return tuple(use for use in each if (use.name, use.home) == (of.name, of.home))


def _at_home(use: Occurrence, local: set[tuple[str, str]]) -> Occurrence:
    """The use under the plan, workload or file that defines the name."""
    plan, _, workload = use.home.partition(" for ")
    home = next((each for each in (use.home, workload or plan) if (each, use.name) in local), "")
    return Occurrence(use.name, home, use.span, use.is_definition)


def _uses(source: Source) -> Iterator[Occurrence]:
    """Every name with the block that it stands in as its home."""
    place, forward = Context(), ""
    tokens = list(tokens_of(source))
    for token, following in pairwise([*tokens, Token("$END", "")]):
        if token.type == "NAME" and token and _is_name(place, token, following):
            span = Span(source, token.start_pos or 0, token.end_pos or 0)
            home, defines = _home(place), _defines(place, following)
            if place.block == "workload" and place.head == BACKWARD_WORDS[0]:
                forward = str(token)
            if place.block == "workload" and place.head == BACKWARD_WORDS[1]:
                home = forward  # results of the other workload
            if home and not defines and place.brackets and place.statement[place.brackets[-1]].type == "_INDEX":
                home = ""  # sizes are values of the file
            yield Occurrence(str(token), home, span, defines)
        place.feed(token)


def _home(place: Context) -> str:
    match place.blocks:
        case [["workload", name, *_], *_]:
            return name
        case [["schedule", name, "for", workload, *_], *_]:
            return f"{name} for {workload}"
        case _:
            return ""


def _defines(place: Context, following: Token) -> bool:
    if not place.blocks:
        return len(place.statement) == 1 and place.head not in ("explore", "expect", "use", "include")
    starts = not place.statement and following.type == "EQUAL"
    return starts or place.before == "signal"


def _is_name(place: Context, token: Token, following: Token) -> bool:
    """Whether a token is a name that the text invents or uses, and no word of the language."""
    if place.before in (".", "@") or (place.blocks and not place.statement and following.type != "EQUAL"):
        return place.block.startswith("expect") and not place.statement and token not in _words_at(place)
    if _RATIO.fullmatch(token) and place.statement and place.statement[-1].type in ("NUMBER", "QUANTITY"):
        return False  # the steps of a range: 16..65536 x2
    in_call = bool(place.callee) and following.type == "EQUAL"
    if in_call:
        return place.callee == _EDGES
    return _defines(place, following) or token not in _words_at(place)


def _words_at(place: Context) -> set[str]:
    return {word for section in expected_at(place).sections for word in load_words().get(section, {})}
