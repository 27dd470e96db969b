"""Split a text into tokens: lark's lexer, then a filter for lines and heads of declarations.

The filter ends every statement with exactly one ``_SEP``: at ``;``, at a newline that ends a statement, before ``}``.
A newline goes on after an operator, a comma or an opening bracket, unless a declaration starts at the margin behind it,
so that an error stays on its line. Words such as
``gpu`` or ``on`` are words of the language only where a declaration's head can hold them; elsewhere they are names.
All limits on size are checked here, before any work is done on a text.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import lark
from lark import Lark, Token

from ....grammar import load_grammar, load_tables
from ...codes import Code
from ..diagnostics import Report, Source, Span
from ..syntax import Comment
from ..units import MAX_DIGITS, num_digits


def read_tables(text: str, grammar: str, postlex: Any) -> Lark | None:
    """The lexer and parser of ``grammar`` from the file of their tables; None if it is not theirs or is damaged."""
    stamp, _, content = text.partition("\n")
    content = content.removesuffix("\n")
    if stamp != _stamp(grammar, content):
        return None
    try:
        found = json.loads(content)
        data, table = found["data"], found["data"]["parser"]["parser"]
        table["states"] = {state: dict(actions) for state, actions in table["states"]}
        table["tokens"] = dict(table["tokens"])
        loader: Any = Lark  # whose function has no types
        loaded: Lark = loader._load_from_dict(data, dict(found["memo"]), postlex=postlex)
    except Exception:  # whatever lark makes of a file that vouches for itself and holds no tables
        return None
    return loaded


def _stamp(grammar: str, content: str) -> str:
    """The version of lark, and the hash of what the tables depend on and of them."""
    digest = hashlib.sha256(f"{lark.__version__}\n{grammar}\n{content}".encode()).hexdigest()
    return f"lark {lark.__version__} {digest}"


MAX_TOKENS = 40_000
MAX_NESTING = 64

DECLARATIONS: Mapping[str, str] = {
    "mgs": "_MGS",
    "use": "_USE",
    "include": "_INCLUDE",
    "let": "_LET",
    "param": "_PARAM",
    "gpu": "DEVICE",
    "link": "DEVICE",
    "switch": "DEVICE",
    "implementation": "DEVICE",
    "kernel": "DEVICE",
    "system": "_SYSTEM",
    "workload": "_WORKLOAD",
    "schedule": "_SCHEDULE",
    "explore": "_EXPLORE",
    "expect": "_EXPECT",
}
_HAVE_BLOCKS = (
    *("gpu", "link", "switch", "implementation", "kernel", "system"),
    *("workload", "schedule", "explore", "expect"),
)
HEAD_WORDS: Mapping[str, Mapping[str, str]] = {
    "use": {"as": "_AS"},
    "gpu": {"extends": "_EXTENDS"},
    "link": {"extends": "_EXTENDS"},
    "switch": {"extends": "_EXTENDS"},
    "implementation": {"extends": "_EXTENDS"},
    "workload": {"on": "_ON"},
    "schedule": {"for": "_FOR"},
    "expect": {"with": "_WITH"},
}
OPERATORS = ("EQUAL", "PLUS", "MINUS", "STAR", "SLASH", "COMPARE", "NEGATIVE", "_IN", "_RANGE", "_SPREAD")
_GOES_ON = frozenset({*OPERATORS, "COMMA", "_CALL", "_INDEX", "LPAR", "LSQB", "LBRACE", "_SEP"})
_GOES_ON_BEFORE = frozenset({"LBRACE", "RPAR", "RSQB"})
OPENING = frozenset({"LPAR", "LSQB", "_CALL", "_INDEX"})
CLOSING = frozenset({"RPAR", "RSQB"})


class _KeepAll:
    """Tells lark to keep the terminals that only the filter reads."""

    always_accept = ("SEMICOLON", "NEWLINE", "COMMENT", "OPEN_TEXT", "STRAY")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def language() -> Lark:
    """Return the lexer and parser of the language, from the tables beside the grammar if they are of this grammar."""
    grammar = load_grammar()
    made: Any = read_tables(load_tables(), grammar, _KeepAll()) or make_language(grammar)
    made.lexer = made.parser.lexer  # else lark makes one, of all terminals, for every text
    kept: Lark = made
    return kept


def make_language(grammar: str) -> Lark:
    """Make the lexer and parser; this takes some 100 ms."""
    postlex: Any = _KeepAll()
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start=["start", "value"],
        postlex=postlex,
        maybe_placeholders=True,
        propagate_positions=True,
    )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one text for the parser, and its comments."""

    tokens: tuple[Token, ...]
    comments: tuple[Comment, ...]


def read_tokens(source: Source, report: Report, room: int = MAX_TOKENS) -> Tokens:
    """Split a text into at most ``room`` tokens; report and leave out stray characters."""
    raw = list(islice(language().lex(source.text), room + 1))
    if len(raw) > room:
        span = Span(source, raw[-1].start_pos or 0, raw[-1].end_pos or 0)
        raise report.fail(Code.MGS131, f"more than {MAX_TOKENS:,} words in a file with all that it includes", span)
    return _Filter(source, report, raw).run()


class _Filter:
    def __init__(self, source: Source, report: Report, raw: list[Token]) -> None:
        self._source, self._report, self._raw = source, report, raw
        self._out: list[Token] = []
        self._comments: list[Comment] = []
        self._blocks: list[Token] = []
        self._num_brackets = 0
        self._head_words: Mapping[str, str] = {}
        self._in_head = False

    def run(self) -> Tokens:
        new_line = True
        for idx, token in enumerate(self._raw):
            match token.type:
                case "NEWLINE":
                    new_line = True
                case "COMMENT":
                    text = str(token).rstrip()
                    own_line = (
                        not self._source.text[: token.start_pos].rpartition("\n")[2].strip() if new_line else False
                    )
                    self._comments.append(Comment(text, own_line, span=self._span(token)))
                case "SEMICOLON":
                    self._end_statement(forced=True)
                case "STRAY":
                    self._report_stray(token)
                case _:
                    self._take(idx, token, new_line)
                    new_line = False
        if self._blocks:
            self._close_all(self._raw[-1])
        # Forced: no line follows on which the last statement could go on.
        self._end_statement(forced=True)
        return Tokens(tuple(self._out), tuple(self._comments))

    def _take(self, idx: int, token: Token, new_line: bool) -> None:
        if new_line and self._starts_declaration(idx):
            if self._blocks:
                self._close_all(token)
            self._end_statement(forced=True)  # even behind "let K =": what is missing there is not on this line
        if new_line and token.type not in _GOES_ON_BEFORE:
            self._end_statement()
        self._check(token)
        match token.type:
            case "OPEN_TEXT":
                self._report.error(
                    Code.MGS105, "this text is not closed", self._span(token), 'a text ends with " on its line'
                )
                token = token.update(type="TEXT", value=f'{token}"')
            case "NAME":
                token = self._word(token)
            case "EQUAL" if not self._blocks:
                self._head_words, self._in_head = {}, False
            case "LBRACE":
                self._in_head = False
                self._blocks.append(token)
            case "COLON" if self._in_head and not self._num_brackets:
                self._report.error(Code.MGS104, "a block opens with '{'", self._span(token), "and closes with '}'")
                token = token.update(type="LBRACE")
                self._in_head = False
                self._blocks.append(token)
            case "RBRACE":
                if not self._blocks:
                    self._report.error(Code.MGS102, "'}' closes nothing", self._span(token))
                    return
                self._end_statement(forced=True)
                self._blocks.pop()
        self._out.append(token)

    def _word(self, token: Token) -> Token:
        """Turn a name into a keyword in the places where it is one."""
        if token == "in":
            return token.update(type="_IN")
        if self._blocks:
            return token
        if not self._out or self._out[-1].type == "_SEP":
            self._head_words = HEAD_WORDS.get(token, {})
            self._in_head = token in _HAVE_BLOCKS
            return token.update(type=DECLARATIONS.get(token, "NAME"))
        return token.update(type=self._head_words.get(token, "NAME"))

    def _starts_declaration(self, idx: int) -> bool:
        """Whether a declaration starts at the margin, whatever is open before it."""
        token, following = self._raw[idx], self._raw[idx + 1 : idx + 2]
        at_margin = self._source.text[(token.start_pos or 0) - 1] == "\n"
        return (
            at_margin and token in DECLARATIONS and bool(following) and following[0].type in ("NAME", "TEXT", "NUMBER")
        )

    def _close_all(self, before: Token) -> None:
        opened = self._span(self._blocks[-1])
        if opened.text == "{":
            at, line = opened.location, self._span(before).location.line
            hint = f"add '}}' before line {line}" if before is not self._raw[-1] else "add '}' at the end"
            self._report.error(Code.MGS103, f"'{{' at {at.line}:{at.column} is never closed", opened, hint)
        while self._blocks:
            self._end_statement(forced=True)
            self._blocks.pop()
            self._out.append(_after(self._out[-1], "RBRACE"))
        self._end_statement()

    def _end_statement(self, forced: bool = False) -> None:
        last = self._out[-1].type if self._out else "_SEP"
        if last not in _GOES_ON or (forced and last not in ("_SEP", "LBRACE")):
            self._out.append(_after(self._out[-1], "_SEP"))
            self._num_brackets = 0

    def _check(self, token: Token) -> None:
        """Check the limits on nesting and on digits."""
        if token.type in OPENING or token.type in CLOSING:
            self._num_brackets = max(0, self._num_brackets + (1 if token.type in OPENING else -1))
        if self._num_brackets + len(self._blocks) > MAX_NESTING:
            raise self._report.fail(Code.MGS132, f"nested deeper than {MAX_NESTING} brackets", self._span(token))
        if token.type in ("NUMBER", "QUANTITY") and len(token) > MAX_DIGITS // 4:
            number, _ = split_quantity(str(token))
            if num_digits(number) > MAX_DIGITS:
                raise self._report.fail(Code.MGS133, f"a number of more than {MAX_DIGITS} digits", self._span(token))

    def _report_stray(self, token: Token) -> None:
        self._report.error(Code.MGS106, f"the character {str(token)!r} means nothing here", self._span(token))

    def _span(self, token: Token) -> Span:
        return Span(self._source, token.start_pos or 0, token.end_pos or 0)


def _after(token: Token, kind: str) -> Token:
    """Return an empty token at the end of ``token``."""
    end = token.end_pos
    return Token(kind, "", end, token.end_line, token.end_column, token.end_line, token.end_column, end)


def split_quantity(text: str) -> tuple[str, str]:
    """Split ``64 GB/s`` into its number and its unit."""
    end = len(text)
    while end and not (text[end - 1].isdigit() or text[end - 1] in "._"):
        end -= 1
    return text[:end], text[end:].strip()
