"""The space to search: ``explore workload { schedules all; chunks 8..128 x2; ... }``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import Explore, PeerOrder
from ...planning.execution import VALUES
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.source import Span
from ...text.units import BYTES
from ...text.vocabulary import EXPLORE_KNOBS, EXPLORE_WORDS, MAX_STREAMS, OBJECTIVES, Property
from ..values.device_numbers import FigureReader
from ..values.domains import read_values, whole_numbers
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, known_head
from .template import ChoiceReader, known_words

_MAX_CHUNKS = 1 << 20
_MAX_DEPTH = 1 << 20
# What Explore calls the knob of each word.
FIELDS: Mapping[str, str] = {
    "streams": "streams",
    "algorithm": "algorithms",
    "transfer": "directions",
    "protocol": "protocols",
    "kernel": "kernels",
    "wait": "waits",
    "per": "waits_per",
    "launch": "launches",
    "order": "orders",
    "depth": "depths",
}
# What ``everything`` tries of the counts.
ALL_STREAMS = ALL_DEPTHS = (1, 2, 4)
_STAGING = Property("staging", BYTES, Fraction(0), Fraction(1 << 50), whole=True)


class ExploreReader:
    """Reads the explore block of one workload."""

    def __init__(self, choices: ChoiceReader, place: Place, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._choices, self._place, self._evaluator, self._report = choices, place, evaluator, report

    def read(self, question: ast.Explore) -> Explore:
        """Return the space a block describes; what it does not say is left open."""
        explore, seen = Explore(), dict[str, Span]()
        for statement in question.block.statements:
            with self._report.attempt():
                word = known_head(statement, EXPLORE_WORDS, "explore", self._report)
                assert isinstance(statement, ast.Say)
                if word in seen:
                    hint = f"the first is on line {seen[word].location.line}; commas separate alternatives"
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span, hint)
                seen[word] = statement.span
                explore = self._statement(word, statement, explore)
        return opened(explore) if "everything" in seen else explore

    def _statement(self, word: str, statement: ast.Say, explore: Explore) -> Explore:
        if word == "staging":
            return replace(explore, staging_limit_bytes=self._staging(statement))
        words = Words(statement.phrase, self._report)
        words.take(word)
        if word in EXPLORE_KNOBS:
            return _with(explore, {FIELDS[word]: self._knob(word, words)})
        match word:
            case "everything":
                words.end()
                return explore
            case "dominance":
                return replace(explore, dominance=self._switch(words))
            case "schedules":
                return replace(explore, templates=self._templates(words))
            case "chunks":
                values = read_values(words, self._place, self._evaluator, self._report)
                return replace(explore, chunks=whole_numbers(values, "chunks", _MAX_CHUNKS, self._report))
            case "engine":
                engines = [self._choices.engine(each) for each in words.take_list("an engine")]
                self._end_of_list(words)
                return replace(explore, engines=tuple(dict.fromkeys(engines)))
            case _:
                objective = words.take_name("what to minimize")
                words.end()
                if objective.text not in OBJECTIVES:
                    hint = did_you_mean(objective.text, OBJECTIVES) or f"what can be minimized: {listing(OBJECTIVES)}"
                    raise self._report.fail(
                        Code.MGS201, f"unknown objective '{objective.text[:64]}'", objective.span, hint
                    )
                return explore

    def _knob(self, word: str, words: Words) -> tuple[Any, ...]:
        """The values of one knob: counts, or words."""
        if word in ("streams", "depth"):
            values = read_values(words, self._place, self._evaluator, self._report)
            most = MAX_STREAMS if word == "streams" else _MAX_DEPTH
            return tuple(dict.fromkeys(whole_numbers(values, word, most, self._report)))
        texts = [self._choices.word(word, each, known_words(word)) for each in words.take_list(f"a value of {word}")]
        self._end_of_list(words)
        return _valued(word, tuple(dict.fromkeys(texts)))

    def _switch(self, words: Words) -> bool:
        said = words.take_name("on or off")
        words.end()
        if said.text not in ("on", "off"):
            raise self._report.fail(Code.MGS204, f"dominance is on or off, not '{said.text[:40]}'", said.span)
        return said.text == "on"

    def _templates(self, words: Words) -> tuple[str, ...]:
        if words.take_word("all"):
            words.end()
            return ()
        names: list[str] = []
        for each in words.take_list("a template"):
            if not isinstance(each, ast.Name):
                raise self._report.fail(
                    Code.MGS116, "schedules names templates", each.span, "schedules serial, shard_p2p"
                )
            names.append(self._choices.check_template(each))
        self._end_of_list(words)
        return tuple(dict.fromkeys(names))

    def _end_of_list(self, words: Words) -> None:
        left_over = words.peek()
        if left_over is not None:
            message = f"a comma is missing before '{left_over.span.text[:40]}'"
            raise self._report.fail(Code.MGS112, message, left_over.span)

    def _staging(self, statement: ast.Say) -> int:
        match statement.phrase:
            case (ast.Group(parts=(ast.Compare(operator="<=", right=right),)),):
                numbers = FigureReader(self._report, self._evaluator)
                return int(numbers.value(_STAGING, (right,), self._place).amount)
            case _:
                raise self._report.fail(Code.MGS116, "staging says a limit", statement.span, "staging <= 2 GiB")


def opened(explore: Explore) -> Explore:
    """The same space with every value of the knobs that it does not say."""
    values: dict[str, tuple[Any, ...]] = {"streams": ALL_STREAMS, "depth": ALL_DEPTHS}
    values |= {word: _valued(word, known_words(word)) for word in EXPLORE_KNOBS if word not in values}
    unsaid = {FIELDS[word]: each for word, each in values.items() if not getattr(explore, FIELDS[word])}
    return _with(explore, unsaid)


def _with(explore: Explore, values: Mapping[str, Any]) -> Explore:
    return replace(explore, **values)


def _valued(word: str, texts: Sequence[str]) -> tuple[Any, ...]:
    """Algorithms by their names, other words as what they mean."""
    if word == "algorithm":
        return tuple(texts)
    kind: type[Enum] = PeerOrder if word == "order" else VALUES[word]
    return tuple(kind(text) for text in texts)
