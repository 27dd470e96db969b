"""Where a place of a text lies: in which blocks, behind what of its statement, in which brackets.

Places come from tokens alone, so that a half-written statement has them too, and everything behind it.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from lark import Token

from ..text.diagnostics import GaveUp, Report, Source, Stopped
from ..text.parsing.tokens import CLOSING, OPENING, read_tokens

MAX_HEAD = 64
_STAND_IN = "_"
"""A name in place of the word at the cursor: what stands before it is read as before any name."""
_WORD = re.compile(r"[A-Za-z_0-9]+")
_WORD_BEFORE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*$")
_UNIT_BEFORE = re.compile(r"(?<![\w.])[0-9][0-9_.]* ?([A-Za-z%]*(?:/[a-z]*)?)$")


@dataclass(slots=True)
class Context:
    """A place between two tokens; ``feed`` moves it behind the next one.

    ``blocks`` are the words in front of each open block, the outermost first; ``statement`` holds the tokens of the
    statement so far, ``brackets`` the positions in it of the open brackets, ``items`` those behind the last comma
    outside and inside each of them, and ``named`` what was named in the outermost block: tensors, steps and signals.
    """

    blocks: list[list[str]] = field(default_factory=list)
    statement: list[Token] = field(default_factory=list)
    brackets: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=lambda: [0])
    named: list[str] = field(default_factory=list)

    def feed(self, token: Token) -> None:
        """Go past a token."""
        match token.type:
            case "_SEP":
                self._begin()
            case "LBRACE":
                self.blocks.append([str(each) for each in self.statement[:8]])
                self._begin()
            case "RBRACE":
                if self.blocks:
                    self.blocks.pop()
                self._begin()
                if not self.blocks:
                    self.named.clear()
            case _:
                self._take(token)

    def _begin(self) -> None:
        self.statement.clear()
        self.brackets.clear()
        self.items[:] = [0]

    def _take(self, token: Token) -> None:
        if token.type in OPENING:
            self.brackets.append(len(self.statement))
            self.items.append(len(self.statement) + 1)
        elif token.type in CLOSING and self.brackets:
            self.brackets.pop()
            self.items.pop()
        elif token.type == "COMMA":
            self.items[-1] = len(self.statement) + 1
        elif token.type == "EQUAL" and self.blocks and len(self.statement) == 1:
            self.named.append(str(self.statement[0]))
        elif self.before == "signal" and token.type == "NAME":
            self.named.append(str(token))
        self.statement.append(token)

    @property
    def block(self) -> str:
        """The blocks around as a path of their first words, ``gpu.hbm``; empty between declarations."""
        return ".".join(words[0] for words in self.blocks if words)

    @property
    def head(self) -> str:
        """The first word of the statement, empty where that begins."""
        return str(self.statement[0]) if self.statement else ""

    @property
    def before(self) -> str:
        """The text of the token before, empty where a statement begins."""
        return str(self.statement[-1]) if self.statement else ""

    def holds(self, kind: str) -> bool:
        """Whether a token of a kind is near the beginning of the statement, where heads of declarations are."""
        return any(token.type == kind for token in self.statement[:MAX_HEAD])

    @property
    def is_definition(self) -> bool:
        """Whether a statement of a block names something: ``y = ...``."""
        return bool(self.blocks) and len(self.statement) > 1 and self.statement[1].type == "EQUAL"

    @property
    def owner(self) -> tuple[str, ...]:
        """The names before a dot that stands last: ``("base", "hbm")`` behind ``base.hbm.``; empty elsewhere."""
        names: list[str] = []
        at = len(self.statement) - 1
        while at > 0 and self.statement[at].type == "DOT":
            names.insert(0, str(self.statement[at - 1]))
            at -= 2
        return tuple(names)

    @property
    def parent(self) -> tuple[str, ...]:
        """The name of the device that the one around extends: ``("nv", "H100")``; empty without one."""
        words = self.blocks[0] if self.blocks else []
        behind = words[words.index("extends") + 1 :] if "extends" in words else []
        return tuple(word for word in behind if word != ".")

    @property
    def callee(self) -> str:
        """The word before the innermost open bracket of a call or index, empty where there is none."""
        if not self.brackets or self.statement[self.brackets[-1]].type not in ("_CALL", "_INDEX"):
            return ""
        return str(self.statement[self.brackets[-1] - 1])

    @property
    def argument(self) -> str:
        """The name of the argument whose value stands here: ``engine`` behind ``engine=``; empty without one."""
        item = self.statement[self.items[-1] : self.items[-1] + 2]
        return str(item[0]) if len(item) == 2 and item[1].type == "EQUAL" else ""

    @property
    def begins_argument(self) -> bool:
        """Whether an argument of a call begins here."""
        return bool(self.brackets) and self.items[-1] == len(self.statement)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place inside or behind a word: ``word`` is the whole word from ``start`` on, ``prefix`` its part before.

    ``text_before`` is what stands on the line before the place.
    """

    place: Context
    start: int
    prefix: str
    word: str
    text_before: str
    in_text: bool = False
    in_comment: bool = False

    @property
    def at_margin(self) -> bool:
        """Whether the word begins its line, as declarations do."""
        return self.text_before == self.prefix

    @property
    def behind_number(self) -> bool:
        """Whether a unit may stand here: ``64 GB``."""
        return _UNIT_BEFORE.search(self.text_before) is not None


def cursor_at(source: Source, offset: int) -> Cursor:
    """Return the place at an offset; one outside of the text is taken to its nearest end."""
    offset = min(max(0, offset), len(source.text))
    line_start = source.text.rfind("\n", 0, offset) + 1
    line = source.text[line_start:offset]
    start = offset - len(_prefix(line))
    inside = _WORD.match(source.text, start)
    in_text, in_comment = _quoted(line)
    place = Context()
    for token in tokens_of(Source(source.path, source.text[:start] + _STAND_IN)):
        if (token.end_pos or 0) > start:
            break
        place.feed(token)
    word = inside.group() if inside is not None and inside.end() >= offset else source.text[start:offset]
    return Cursor(place, start, source.text[start:offset], word, line, in_text, in_comment)


def _prefix(line: str) -> str:
    """The part of a word at the end of ``line``: of a unit behind a number, inside quotes all since these opened."""
    if _quoted(line)[0]:
        return line.rpartition('"')[2]
    unit = _UNIT_BEFORE.search(line)
    word = _WORD_BEFORE.search(line)
    return unit.group(1) if unit is not None else word.group() if word is not None else ""


def _quoted(line: str) -> tuple[bool, bool]:
    """Return whether the end of ``line`` is in a text, and whether in a comment."""
    quoted = False
    for character in line:
        if character == '"':
            quoted = not quoted
        elif character == "#" and not quoted:
            return False, True
    return quoted, False


def tokens_of(source: Source) -> Iterator[Token]:
    """Iterate over the tokens of a text, those that are missing included; none of one that is too large."""
    with suppress(GaveUp, Stopped):
        yield from read_tokens(source, Report()).tokens
