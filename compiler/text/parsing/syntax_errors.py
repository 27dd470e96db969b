"""Explain why a statement does not parse, in the words of the language."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lark import Token

from ...codes import Code
from ..diagnostics import Report, Source, Span, did_you_mean
from ..units import looks_like_unit, unit_hint
from .tokens import CLOSING, DECLARATIONS, OPENING

HEADS = {
    "mgs": "mgs 1",
    "use": 'use "amd/mi300x"',
    "include": 'include "parts/cables.mgs"',
    "let": "let K = 8192",
    "param": "param M = 8192 in 16..65536 x2",
    "gpu": "gpu NAME { ... }",
    "link": "link NAME { ... }",
    "switch": "switch NAME { ... }",
    "implementation": "implementation NAME { ... }",
    "kernel": "kernel NAME { ... }",
    "system": "system NAME { ... }",
    "workload": "workload NAME on SYSTEM { ... }",
    "schedule": "schedule NAME for WORKLOAD = template(chunks=64, engine=dma(7))",
    "explore": "explore WORKLOAD { ... }",
    "expect": "expect WORKLOAD { ... }",
}
_SAYS = {
    "workload": "a workload says where it runs",
    "schedule": "a schedule says for which workload it is",
    "explore": "explore says which workload it is about",
    "use": "a library is named in quotes",
    "include": "a path stands in quotes",
}
_CLOSES = {"LPAR": ")", "_CALL": ")", "LSQB": "]", "_INDEX": "]"}


@dataclass(frozen=True, slots=True)
class _Place:
    """A statement that fails at token ``at``, ``depth`` blocks deep."""

    source: Source
    statement: Sequence[Token]
    at: int
    depth: int

    @property
    def token(self) -> Token:
        return self.statement[self.at]

    @property
    def before(self) -> Token | None:
        return self.statement[self.at - 1] if self.at else None

    @property
    def ends(self) -> bool:
        """Whether the statement ends too early."""
        return self.token.type in ("_SEP", "RBRACE", "LBRACE")

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start_pos or 0, token.end_pos or 0)

    @property
    def here(self) -> Span:
        """The span of the token that fails; for an empty one that of the character before it."""
        span = self.span(self.token)
        return span if span.end > span.start else Span(self.source, max(0, span.start - 1), max(1, span.start))


def explain(
    source: Source, statement: Sequence[Token], at: int, depth: int, accepted: Collection[str], report: Report
) -> None:
    """Report why the parser refuses token ``at`` of ``statement``; ``accepted`` are the terminals it would take."""
    place = _Place(source, statement, at, depth)
    for rule in (_comment, _bracket, _declaration, _unit, _two_statements, _head, _definition):
        if rule(place, report):
            return
    if place.ends:
        word = f"after '{place.before}'" if place.before is not None else "here"
        report.error(Code.MGS107, f"something is missing {word}", place.here)
    elif (
        "COMMA" in accepted and place.token.type in ("NAME", "NUMBER", "QUANTITY", "TEXT") and place.before is not None
    ):
        message = f"a comma is missing between '{place.before}' and '{place.token}'"
        report.error(Code.MGS112, message, place.here, f"{place.before}, {place.token}")
    else:
        report.error(Code.MGS107, f"'{place.token}' cannot stand here", place.here)


def _comment(place: _Place, report: Report) -> bool:
    if place.token.type != "SLASH" or (place.at and place.before != "/"):
        return False
    report.error(Code.MGS107, "'/' cannot stand here", place.here, "comments start with #")
    return True


def _bracket(place: _Place, report: Report) -> bool:
    open_ones: list[Token] = []
    for token in place.statement[: place.at]:
        if token.type in OPENING:
            open_ones.append(token)
        elif token.type in CLOSING and open_ones:
            open_ones.pop()
    if place.token.type in CLOSING and not open_ones:
        report.error(Code.MGS102, f"'{place.token}' closes nothing", place.here)
        return True
    if open_ones and (place.ends or (place.token.type in CLOSING and place.token != _CLOSES[open_ones[-1].type])):
        opened = place.span(open_ones[-1]).location
        sign = _CLOSES[open_ones[-1].type]
        message = f"'{sign}' is missing; '{open_ones[-1]}' at {opened.line}:{opened.column} is open"
        report.error(Code.MGS102, message, place.here)
        return True
    return False


def _declaration(place: _Place, report: Report) -> bool:
    if place.depth or place.at:
        return False
    word = str(place.token)
    hint = did_you_mean(word, DECLARATIONS) or "declarations are " + ", ".join(DECLARATIONS)
    message = f"unknown declaration '{word}'" if place.token.type == "NAME" else f"'{word}' starts no declaration"
    if place.token.type == "_MGS":
        message, hint = "the version stands once, at the top of the file", ""
    report.error(Code.MGS101, message, place.here, hint)
    return True


def _unit(place: _Place, report: Report) -> bool:
    before, token = place.before, place.token
    if before is None or before.type != "NUMBER" or token.type != "NAME":
        return False
    if looks_like_unit(str(token)):
        report.error(Code.MGS302, f"unknown unit '{token}'", place.here, unit_hint(str(token)))
    else:
        report.error(Code.MGS114, f"two values side by side: {before} and {token}", place.here)
    return True


def _two_statements(place: _Place, report: Report) -> bool:
    if place.before is None or place.before.type != "RBRACE":
        return False
    report.error(Code.MGS113, "two statements on one line", place.here, f"put ';' before '{place.token}'")
    return True


def _head(place: _Place, report: Report) -> bool:
    """A declaration whose head stops early or goes on with the wrong word."""
    word = str(place.statement[0])
    in_head = not any(token.type in ("EQUAL", "LBRACE") for token in place.statement[: place.at])
    if place.depth or word not in HEADS or not in_head or word in ("mgs", "let", "param"):
        return False
    message = _SAYS.get(word, f"this is not how '{word}' begins")
    report.error(Code.MGS104, message, place.here, f"write: {HEADS[word]}")
    return True


def _definition(place: _Place, report: Report) -> bool:
    first = str(place.statement[0])
    if place.depth and first in ("let", "param") and place.token.type == "EQUAL":
        report.error(Code.MGS107, f"'{first}' stands between declarations, not in a block", place.here)
        return True
    if place.token.type == "EQUAL":
        hint = "one new name stands before '='; to compare, write =="
        complete = place.at > 1 and place.statement[place.at - 2].type in (*CLOSING, "NUMBER")
        if complete and place.before is not None and place.before.type == "NAME":
            hint = f"if another statement begins there, put ';' before '{place.before}'; to compare, write =="
        report.error(Code.MGS107, "'=' cannot stand here", place.here, hint)
        return True
    return False
