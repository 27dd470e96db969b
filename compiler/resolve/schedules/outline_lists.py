"""The statements of an outline that are lists of clauses: ``group own alone, by piece`` and ``order own first``."""

from collections.abc import Callable

from ...codes import Code
from ...ir import PeerOrder
from ...outline.outline import MAX_PIECES, By, Grouping, KernelGroup, Ordering, Turn
from ...planning.knobs import words_of
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean
from ..values.sentences import Words
from .regions import RegionReader

_BY = {by.value.removeprefix("by "): by for by in By if by is not By.TOGETHER}


class _Clauses:
    """Base of both readers: clauses between commas, and lists of numbers and ranges in them."""

    def __init__(self, words: Words, numbers: RegionReader, report: Report) -> None:
        self._words, self._numbers, self._report = words, numbers, report
        self._seen: set[str] = set()

    def _once(self, clause: str) -> None:
        if clause in self._seen:
            raise self._report.fail(Code.MGS206, f"{clause} is said twice", self._words.span)
        self._seen.add(clause)

    def _one_of(self, *known: str) -> str:
        """Take one of the words that can stand here."""
        word = self._words.take_word(*known)
        if word is not None:
            return word
        part = self._words.take(" or ".join(known))
        hint = did_you_mean(part.span.text[:40], known) or f"what can stand here: {', '.join(known)}"
        raise self._report.fail(Code.MGS116, f"'{part.span.text[:40]}' cannot stand here", part.span, hint)

    def _numbers_in(self, part: ast.Expression, read: Callable[[ast.Expression], int]) -> tuple[int, ...]:
        """``3``, ``0..3`` or downwards ``3..0``."""
        if not isinstance(part, ast.Range):
            return (read(part),)
        low, high = read(part.low), read(part.high)
        return tuple(range(low, high + 1)) if low <= high else tuple(range(low, high - 1, -1))

    def _piece(self, part: ast.Expression) -> int:
        return self._numbers.number(part, "a piece", 0, MAX_PIECES)

    def _more(self) -> bool:
        """Whether another clause follows; all but the first are behind a comma."""
        part = self._words.peek()
        if part is None:
            return False
        if self._seen and not self._words.skip_comma():
            text = part.span.text[:40]
            raise self._report.fail(Code.MGS112, f"a comma is missing before '{text}'", part.span, f", {text}")
        return True


class GroupReader(_Clauses):
    """Reads ``own alone, by piece`` or ``own together, pieces 0..1 together, pieces 2..7 by block``."""

    def read(self) -> Grouping:
        """The grouping that the statement says."""
        own_alone, by, batches = True, By.PIECE, list[KernelGroup]()
        while self._more():
            match self._one_of("own", "by", "together", "piece", "pieces"):
                case "own":
                    self._once("own")
                    own_alone = self._one_of("alone", "together") == "alone"
                case "by":
                    self._once("by")
                    by = _BY[self._one_of(*_BY)]
                case "together":
                    self._once("by")
                    by = By.TOGETHER
                case _:
                    batches.append(self._batch())
                    self._seen.add("pieces")
        if batches and "by" in self._seen:
            hint = "say how behind the pieces: pieces 0..3 by block"
            raise self._report.fail(Code.MGS116, "all pieces are grouped, and some by name", self._words.span, hint)
        if not self._seen:
            self._words.take("own, by, together or pieces")
        return Grouping(own_alone, by, tuple(batches))

    def _batch(self) -> KernelGroup:
        part = self._words.take("a piece, or a range of them")
        found = self._numbers_in(part, self._piece)
        if found[0] > found[-1]:
            hint = f"pieces {found[-1]}..{found[0]}; in what order they come, 'order' says"
            raise self._report.fail(Code.MGS306, f"the range {part.span.text[:40]} is empty", part.span, hint)
        following = self._words.peek()
        if following is None or self._words.after_comma():
            return KernelGroup(found[0], found[-1], By.TOGETHER)
        word = self._one_of("together", "by")
        return KernelGroup(found[0], found[-1], By.TOGETHER if word == "together" else _BY[self._one_of(*_BY)])


class OrderReader(_Clauses):
    """Reads ``own first, pieces 1, 0, 2..3, peers reversed, by peer``."""

    def read(self) -> Ordering:
        """The order that the statement says."""
        own: Turn | None = None
        pieces, peers = tuple[int, ...](), tuple[int, ...]()
        order, outermost = PeerOrder.ROTATED, False
        while self._more():
            clause = self._one_of("own", "pieces", "peers", "by")
            self._once(clause)
            match clause:
                case "own":
                    own = Turn(self._one_of(*words_of(Turn)))
                case "pieces":
                    pieces = self._list("a piece", self._piece)
                case "by":
                    outermost = self._one_of("piece", "peer") == "peer"
                case _ if word := self._words.take_word(*words_of(PeerOrder)):
                    order = PeerOrder(word)
                case _:
                    self._check_word()
                    peers = self._list("a peer, or in what order", self._peer)
        if not self._seen:
            self._words.take("own, pieces, peers or by")
        if peers == tuple(range(1, self._numbers.num_ranks)):
            peers = ()
        return Ordering(own, pieces, peers, order, outermost)

    def _check_word(self) -> None:
        """A word behind ``peers`` that is almost one of those that say an order."""
        part = self._words.peek()
        hint = did_you_mean(part.text, words_of(PeerOrder)) if isinstance(part, ast.Name) else ""
        if part is not None and hint:
            raise self._report.fail(Code.MGS204, f"unknown order '{part.span.text[:40]}'", part.span, hint)

    def _peer(self, part: ast.Expression) -> int:
        return self._numbers.relative(part, "a peer", itself=False)

    def _list(self, what: str, read: Callable[[ast.Expression], int]) -> tuple[int, ...]:
        found = list(self._numbers_in(self._words.take(what), read))
        while self._words.after_comma() and not self._at_clause():
            self._words.skip_comma()
            found += self._numbers_in(self._words.take(what), read)
        return tuple(found)

    def _at_clause(self) -> bool:
        part = self._words.peek()
        return isinstance(part, ast.Name) and part.text in ("own", "pieces", "peers", "by")
