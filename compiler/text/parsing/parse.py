"""Parse a text into a syntax tree, and report all syntax errors in one run.

A statement that does not parse is explained and left out, and parsing goes on with the next one. A broken head of a
block is replaced by a nameless one, so that the statements inside are read too; the builder drops nameless nodes.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lark import Token, Tree, UnexpectedToken

from ...codes import Code
from ..diagnostics import Report, Source, Span, did_you_mean
from ..syntax import Expression, File
from ..units import bytes_text, looks_like_unit, unit_hint
from .build import NAMELESS, Parsed, build_file, build_values
from .tokens import CLOSING, DECLARATIONS, MAX_TOKENS, OPENING, language, read_tokens

# Explain why a statement does not parse, in the words of the language.

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
    if word in ("{", "["):
        hint = "JSON is read by other commands: import, from-model, replay, and as a plan by --schedule FILE"
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
    message, hint = _SAYS.get(word, f"this is not how '{word}' begins"), HEADS[word]
    if word == "use" and place.at > 1:
        message, hint = _behind_library(place)
    report.error(Code.MGS104, message, place.here, f"write: {hint}")
    return True


def _behind_library(place: _Place) -> tuple[str, str]:
    """What is wrong behind the library that is used, and what to write."""
    _, library, *rest = place.statement
    if place.before is not None and place.before.type == "_AS":
        said = str(place.token).strip('"')
        return "behind 'as' stands a name, without quotes", f"use {library} as {said if said.isidentifier() else 'lib'}"
    used = f"use {library} as {rest[1]}" if place.at > 3 else f"use {library}"
    if place.token.type == "COMMA":
        return "one library is used at a time", f"{used}, and another library on a line of its own"
    names = [str(token) for token in rest if token.type == "NAME"]
    alias = f" as {names[-1]}" if names and place.at == 2 else ""
    return f"'{place.token}' cannot stand behind the library", used + alias


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


MAX_BYTES = 1 << 20
NUM_KEPT = 512
"""Declarations whose trees are kept."""


def parse_file(source: Source, report: Report, room: int = MAX_TOKENS) -> File:
    """Parse a text of at most ``room`` words. Statements with errors are reported and missing from the tree.

    Declarations are parsed one by one, and those that were parsed lately are not parsed again: an editor asks about
    texts that differ in one of them.
    """
    check_size(source, report)
    tokens = read_tokens(source, report, room)
    parsed: list[Parsed] = []
    for chunk in _declarations(tokens.tokens):
        with report.attempt():
            parsed.append(_parsed(source, chunk, report))
    return build_file(source, parsed, tokens, report)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """The tokens of one declaration; two are equal if they have the same words at the same distances."""

    words: tuple[tuple[str, str, int], ...]
    tokens: tuple[Token, ...] = field(compare=False, repr=False)
    is_first: bool

    @property
    def start(self) -> int:
        """Where it begins in its text."""
        return self.tokens[0].start_pos or 0


def _declarations(tokens: Sequence[Token]) -> Iterator[_Declaration]:
    """Split the tokens of a text behind each declaration."""
    begin, depth = 0, 0
    for idx, token in enumerate(tokens):
        depth += (token.type == "LBRACE") - (token.type == "RBRACE")
        if (depth == 0 and token.type == "_SEP") or idx + 1 == len(tokens):
            chunk = tuple(tokens[begin : idx + 1])
            start = chunk[0].start_pos or 0
            yield _Declaration(
                tuple((each.type, str(each), (each.start_pos or 0) - start) for each in chunk), chunk, not begin
            )
            begin = idx + 1


def _parsed(source: Source, declaration: _Declaration, report: Report) -> Parsed:
    tree, start = _known_tree(declaration)
    if tree is None:
        tokens = list(declaration.tokens)
        if tokens[0].type == "_MGS" and not declaration.is_first:
            explain(source, tokens, 0, 0, (), report)
            raise report.stop()
        tree, start = _feed(_repaired(source, tokens, report), "start"), declaration.start
    if tree is None:
        raise report.stop()
    return Parsed(tree, declaration.start - start)


@lru_cache(NUM_KEPT)
def _known_tree(declaration: _Declaration) -> tuple[Tree[Token] | None, int]:
    """Return the tree of a declaration, None if it does not parse, and where it stood when it was parsed."""
    if declaration.tokens[0].type == "_MGS" and not declaration.is_first:
        return None, declaration.start
    return _feed(list(declaration.tokens), "start"), declaration.start


def parse_value(source: Source, report: Report) -> tuple[Expression, ...]:
    """Parse the text of one value, as it stands after ``let name =``."""
    check_size(source, report)
    tree = _feed(list(read_tokens(source, report).tokens), "value")
    if tree is None:
        raise report.fail(
            Code.MGS107, f"'{source.text.strip()[:60]}' is not a value", Span(source, 0, len(source.text))
        )
    return build_values(source, tree, report)


def check_size(source: Source, report: Report) -> None:
    """Reject a text that is too large to parse."""
    if len(source.text) > MAX_BYTES:
        raise report.fail(Code.MGS130, f"the file is larger than {bytes_text(MAX_BYTES)}", Span(source, 0, 1))


def _parser(start: str) -> Any:
    # lark's interactive parser has no types.
    return language().parse_interactive("", start=start)


def _feed(tokens: list[Token], start: str) -> Tree[Token] | None:
    parser = _parser(start)
    try:
        for token in tokens:
            parser.feed_token(token)
        tree: Tree[Token] = parser.feed_eof(tokens[-1] if tokens else None)
    except UnexpectedToken:
        return None
    return tree


def _repaired(source: Source, tokens: list[Token], report: Report) -> list[Token]:
    """Report every statement that does not parse, and return the tokens without them."""
    parser = _parser("start")
    marks: dict[int, Any] = {}
    index = 0
    while index < len(tokens):
        if index == 0 or tokens[index - 1].type in ("_SEP", "LBRACE"):
            marks[index] = parser.copy(deepcopy_values=False)
        try:
            parser.feed_token(tokens[index])
            index += 1
        except UnexpectedToken:
            start, end = statement_around(tokens, index)
            explain(source, tokens[start:end], index - start, depth_at(tokens, start), parser.accepts(), report)
            if start == end:
                raise report.stop() from None
            kept = _without_head(tokens[start:end], depth_at(tokens, start))
            report.lost_names |= tokens[start] in ("use", "include")
            report.lost_words |= _names(tokens[start:end], head_only=bool(kept))
            tokens[start:end] = kept
            parser = marks[start].copy(deepcopy_values=False)
            index = start
    return tokens


def statement_around(tokens: list[Token], index: int) -> tuple[int, int]:
    """Return the half-open range of the statement of token ``index``, its ``_SEP`` included."""
    start, depth = index, 0
    while start > 0:
        before = tokens[start - 1].type
        if depth == 0 and (before in ("_SEP", "LBRACE")):
            break
        depth += (before == "RBRACE") - (before == "LBRACE")
        start -= 1
    end, depth = index, 0
    while end < len(tokens):
        kind = tokens[end].type
        if depth == 0 and kind == "RBRACE":
            break
        end += 1
        depth += (kind == "LBRACE") - (kind == "RBRACE")
        if depth == 0 and kind == "_SEP":
            break
    return start, end


def depth_at(tokens: list[Token], index: int) -> int:
    """Return how many blocks are open before token ``index``."""
    return sum((token.type == "LBRACE") - (token.type == "RBRACE") for token in tokens[:index])


def _without_head(statement: list[Token], depth: int) -> list[Token]:
    """Drop a broken statement; if it has one block, keep the block under a nameless head."""
    brace = next((idx for idx, token in enumerate(statement) if token.type == "LBRACE"), None)
    if brace is None or any(token.type == "NAME" and token == NAMELESS for token in statement[:brace]):
        return []
    nameless = Token.new_borrow_pos("NAME", NAMELESS, statement[brace])
    head = [nameless] if depth else [Token.new_borrow_pos("_EXPLORE", NAMELESS, nameless), nameless]
    body = _first_block(statement[brace:])
    return [*head, *body, Token.new_borrow_pos("_SEP", "", body[-1])]


def _names(statement: list[Token], *, head_only: bool) -> set[str]:
    """Return the words of a broken statement; any of them may be the name that it defines."""
    opened = next((idx for idx, token in enumerate(statement) if token.type == "LBRACE"), len(statement))
    return {str(token) for token in (statement[:opened] if head_only else statement) if token.type == "NAME"}


def _first_block(tokens: list[Token]) -> list[Token]:
    depth = 0
    for idx, token in enumerate(tokens):
        depth += (token.type == "LBRACE") - (token.type == "RBRACE")
        if depth == 0:
            return tokens[: idx + 1]
    return tokens
