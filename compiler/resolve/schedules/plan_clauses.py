"""Clauses of a step in a plan: its peer, the steps and signals it waits for, its queue."""

from dataclasses import dataclass, field

from ...codes import Code
from ...ir import EngineChoice, IndexRange, Reach
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean
from ...text.source import Span as TextSpan
from ...text.vocabulary import MAX_STREAMS, PLAN_CLAUSES
from ..values.sentences import Words
from .regions import RegionReader


@dataclass(slots=True)
class Clauses:
    """The clauses of one step, with the default of each."""

    rank: int | None = None
    reach: Reach = Reach.PEER
    signal: str = ""
    after: tuple[str, ...] = ()
    lane: int | None = None
    stream: int = 0
    k: IndexRange | None = None
    parts: int | None = None
    flags: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


class ClauseReader:
    """Reads the clauses of all steps of one plan, and keeps the names that steps and signals have."""

    def __init__(self, engine: EngineChoice, regions: RegionReader, report: Report) -> None:
        self._engine, self._regions, self._report = engine, regions, report
        self._waits: list[tuple[str, TextSpan, dict[str, TextSpan]]] = []
        self._names: dict[str, TextSpan] = {}
        self._signals: dict[str, TextSpan] = {}
        self._by_rank = False

    def begin_rank(self) -> None:
        """Begin the steps of another rank: names start anew, but a signal that one rank sets lands at another."""
        self._names, self._by_rank = {}, True

    def read(self, action: str, words: Words, statement: ast.Define, override: bool, inner: int = 0) -> Clauses:
        """Read what is left of ``statement``, a step that does ``action``; ``inner`` is the size that k cuts."""
        said, known = Clauses(), PLAN_CLAUSES[action]
        while word := words.take_word(*known):
            if word in said.seen:
                raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
            said.seen.add(word)
            self._clause(word, words, said, override, inner)
        words.end(known)
        return said

    def _clause(self, word: str, words: Words, said: Clauses, override: bool, inner: int) -> None:
        match word:
            case "to" | "from" if words.take_word("all"):
                said.rank, said.reach = 0, Reach.ALL
            case "to" | "from":
                said.rank = self._regions.relative(words.take("a rank"), "a peer", itself=False)
            case "signal":
                signal = words.take_name("a signal")
                self._signals[signal.text] = signal.span
                # Ranks may set signals of one name at each other; that no two land at one rank is checked later.
                if not self._by_rank and (not override or signal.text not in self._names):
                    self.name(signal.text, signal.span)
                said.signal = signal.text
            case "after":
                said.after = tuple([self._wait(each) for each in words.take_list("a step or a signal")])
            case "lane":
                said.lane = self._lane(words.take("a number"))
            case "stream":
                said.stream = self._regions.number(words.take("a number"), "a stream", 0, MAX_STREAMS - 1)
            case "k":
                said.k = self._regions.slice(words.take("a slice"), "k", inner)
            case "parts":
                said.parts = self._regions.number(words.take("a number"), "parts", 2, self._regions.num_ranks)
            case _:
                said.flags.add(word)

    def _lane(self, expression: ast.Expression) -> int:
        lane = self._regions.number(expression, "a lane", 0, 1 << 20)
        if lane >= self._engine.count:
            message = f"lane {lane} does not exist: {self._engine} has lanes 0 to {self._engine.count - 1}"
            raise self._report.fail(Code.MGS401, message, expression.span)
        return lane

    def name(self, name: str, span: TextSpan) -> None:
        """Note the name of a step or a signal, which is new."""
        if name in self._names:
            hint = f"the first is on line {self._names[name].location.line}"
            raise self._report.fail(Code.MGS206, f"'{name}' is defined twice", span, hint)
        self._names[name] = span

    def _wait(self, expression: ast.Expression) -> str:
        if not isinstance(expression, ast.Name):
            raise self._report.fail(Code.MGS116, "a step or a signal is expected here", expression.span)
        self._waits.append((expression.text, expression.span, self._names))
        return expression.text

    def check_waits(self) -> None:
        """Report waits for what the plan does not do."""
        for name, span, names in self._waits:
            known = {**names, **self._signals}
            if name not in known:
                hint = did_you_mean(name, known) or "after names steps of this plan and their signals"
                self._report.error(Code.MGS502, f"nobody does '{name[:64]}'", span, hint)
