"""Schedules said in outline: what is split, moved, grouped, ordered and synchronized, and how.

Here an outline is read. Whether it fits the sizes of its workload is checked where plans are made of it.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from ...codes import Code
from ...collectives import ALGORITHM_BY_NAME
from ...ir import CopyProtocol, Direction, Kernels, LaunchMode, PeerOrder, System, Wait, WaitPer
from ...outline.outline import (
    MAX_PIECES,
    WORDS,
    By,
    Grouping,
    KernelGroup,
    Ordering,
    Outline,
    Split,
    SplitAxis,
    Sums,
    Turn,
)
from ...planning.build import options_from
from ...planning.knobs import Knob, words_of
from ...planning.knobs.execution import SPLIT_K, TILE
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean
from ...text.vocabulary import MAX_EXTENT, MAX_STREAMS
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, known_head
from .plan_steps import RegionReader
from .schedule import ChoiceReader

MAX_LANES = 1 << 20
_BY = {by.value.removeprefix("by "): by for by in By if by is not By.TOGETHER}


class OutlineReader:
    """Reads one outline."""

    def __init__(self, system: System, choices: ChoiceReader, reading: Reading) -> None:
        self._choices, self._report = choices, reading.report
        self._numbers, self._count = RegionReader(system.num_ranks, reading), reading.count
        self._said = Outline(choices.default_engine())
        self._tactics: dict[str, Any] = {}
        self._readers: dict[str, Callable[[Words], None]] = {
            "split": self._read_split,
            "move": self._read_move,
            "group": lambda words: self._say(grouping=GroupReader(words, self._numbers, self._report).read()),
            "order": lambda words: self._say(ordering=OrderReader(words, self._numbers, self._report).read()),
            "streams": self._read_streams,
            "sums": self._read_sums,
            "sync": self._read_sync,
            "kernel": lambda words: self._read_word(words, "kernel", words_of(Kernels)),
            "launch": lambda words: self._read_word(words, "launch", words_of(LaunchMode)),
            "tile": lambda words: self._read_value(words, TILE, "the rows and columns of a tile"),
            "split_k": lambda words: self._read_value(words, SPLIT_K, "a number of parts"),
        }

    def read(self, plan: ast.PlanNode) -> Outline:
        """Return the outline; statements may come in any order.

        Raises
        ------
        Stopped
            If a statement could not be read; what is wrong is reported.
        """
        seen: set[str] = set()
        with self._report.whole():
            for statement in plan.block.statements:
                with self._report.attempt():
                    self._read(statement, seen)
        return replace(self._said, tactics=options_from(self._tactics))

    def _read(self, statement: ast.Define | ast.Say, seen: set[str]) -> None:
        word = known_head(statement, WORDS, "a schedule", self._report)
        assert isinstance(statement, ast.Say), "a definition has no head that is known"
        self._report.once(subject_of(statement), seen, statement.span)
        if statement.block is not None:
            raise self._report.fail(Code.MGS116, f"{word} has no block", statement.block.span)
        self._readers[word](behind(statement, self._report))

    def _say(self, **fields: Any) -> None:
        self._said = replace(self._said, **fields)

    def _read_split(self, words: Words) -> None:
        """Read ``rows into 4``, ``rows at 128, 384``, ``rows 128, 256, 640`` or ``shards``."""
        if words.take_word("own"):
            self._read_own(words)
            return
        axis = SplitAxis(self._choices.word("split", words.take("rows, cols or shards"), words_of(SplitAxis)))
        if axis is SplitAxis.SHARDS:
            words.end()
        elif words.take_word("into"):
            parts = self._count("pieces", 1, MAX_PIECES, words.take("a number of pieces"))
            words.end()
            self._say(split=Split(axis, parts))
        elif words.take_word("at"):
            cuts = self._rising(words)
            self._say(split=Split(axis, len(cuts) + 1, cuts))
        else:
            listed = self._sizes(words, f"into, at, or the {axis.value} of each piece")
            *edges, total = accumulate(listed)
            self._say(split=Split(axis, len(listed), tuple(edges), total))

    def _read_own(self, words: Words) -> None:
        """Read ``own rows 512, 0, 512``."""
        if not words.take_word("rows"):
            words.end(("rows",))
        self._say(own=tuple(self._sizes(words, "the own rows that go with each piece", least=0)))

    def _sizes(self, words: Words, what: str, least: int = 1) -> list[int]:
        found = words.take_list(what)
        words.end()
        if len(found) > MAX_PIECES:
            raise self._report.fail(Code.MGS305, f"{len(found)} pieces, at most {MAX_PIECES}", words.span)
        return [self._count("the size of a piece", least, MAX_EXTENT, each) for each in found]

    def _rising(self, words: Words) -> tuple[int, ...]:
        span = words.span
        cuts = self._sizes(words, "where to cut")
        if any(before >= after for before, after in pairwise(cuts)):
            hint = f"at {', '.join(map(str, sorted(set(cuts))))}"
            raise self._report.fail(Code.MGS306, "cuts rise: a piece begins where the one before ends", span, hint)
        return tuple(cuts)

    def _read_move(self, words: Words) -> None:
        """Read ``by dma(7) get ring protocol ll128 depth 2 one at a time``, in any order."""
        directions, algorithms = words_of(Direction), tuple(ALGORITHM_BY_NAME)
        known = ("by", *directions, *algorithms, "protocol", "depth", "lanes", "one")
        kinds = dict.fromkeys(directions, "transfer") | dict.fromkeys(algorithms, "algorithm")
        seen: set[str] = set()
        first = words.span
        while word := words.take_word(*known):
            kind = kinds.get(word, word)
            self._report.once(kind, seen, first)
            self._move_clause(kind, word, words)
        if words.peek() is None and not seen:
            words.take("who moves and how")
        words.end(known)

    def _move_clause(self, kind: str, word: str, words: Words) -> None:
        match kind:
            case "by":
                self._say(engine=self._choices.engine(words.take("an engine")))
            case "transfer":
                self._tactics["transfer"] = word
            case "algorithm":
                # The direct one is what every pattern has if nothing is said.
                self._say(algorithm="" if word == "direct" else word)
            case "protocol":
                value = words.take("a protocol")
                self._tactics["protocol"] = self._choices.word("protocol", value, words_of(CopyProtocol))
            case "depth":
                self._say(depth=self._count("depth", 1, MAX_PIECES, words.take("a number of pieces")))
            case "lanes":
                self._say(lanes=self._count("lanes", 1, MAX_LANES, words.take("a number of lanes")))
            case _:
                for rest in ("at", "a", "time"):
                    if not words.take_word(rest):
                        raise self._report.fail(Code.MGS116, "'one at a time' is meant", words.span, "one at a time")
                self._say(one_at_a_time=True)

    def _read_streams(self, words: Words) -> None:
        # One more is for sums.
        self._say(streams=self._count("streams", 1, MAX_STREAMS - 1, words.only("a number of streams")))

    def _read_sums(self, words: Words) -> None:
        self._say(sums=Sums(self._choices.word("sums", words.only("parallel or behind"), words_of(Sums))))

    def _read_sync(self, words: Words) -> None:
        """Read ``poll per tile``."""
        known = words_of(Wait)
        if word := words.take_word(*known):
            self._tactics["wait"] = word
        if words.take_word("per"):
            self._tactics["per"] = self._choices.word("per", words.take("chunk or tile"), words_of(WaitPer))
        elif not word:
            self._choices.word("sync", words.take("event, poll or monitor"), known)
        words.end(() if "per" in self._tactics else ("per",))

    def _read_value(self, words: Words, knob: Knob, what: str) -> None:
        """Read ``[64, 256]`` of a tile, or a number of parts."""
        self._tactics[knob.word] = self._choices.value(knob, words.only(what))

    def _read_word(self, words: Words, name: str, known: tuple[str, ...]) -> None:
        self._tactics[name] = self._choices.word(name, words.only(" or ".join(known)), known)


class _Clauses:
    """Base of both readers: clauses between commas, and lists of numbers and ranges in them."""

    def __init__(self, words: Words, numbers: RegionReader, report: Report) -> None:
        self._words, self._numbers, self._report = words, numbers, report
        self._seen: set[str] = set()

    def _once(self, clause: str) -> None:
        self._report.once(clause, self._seen, self._words.span)

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
        return self._numbers.reading.count("a piece", 0, MAX_PIECES, part)

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


def subject_of(statement: ast.Say) -> str:
    """The word that a statement begins with; the own shard is split apart from the others."""
    head, parts = head_word(statement), statement.phrase[0].parts
    own = head == "split" and len(parts) > 1 and isinstance(parts[1], ast.Name) and parts[1].text == "own"
    return "split own" if own else head
