"""The space to search: ``explore workload { schedules all; chunks 8..128 x2; ... }``."""

from dataclasses import replace
from fractions import Fraction

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .domains import read_values, whole_numbers
from .evaluate import Evaluator, Place
from .figures import FigureReader
from .phrases import Words, known_head
from .resolve_schedule import ChoiceReader
from .scenario import Explore
from .source import Span
from .tables import EXPLORE_WORDS, OBJECTIVES, Property
from .units import BYTES

_MAX_CHUNKS = 1 << 20
_STAGING = Property("staging", BYTES, Fraction(0), Fraction(1 << 50), whole=True)


class ExploreReader:
    """Reads the explore block of one workload."""

    def __init__(self, choices: ChoiceReader, place: Place, evaluator: Evaluator, report: Report) -> None:
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
        return explore

    def _statement(self, word: str, statement: ast.Say, explore: Explore) -> Explore:
        if word == "staging":
            return replace(explore, staging_limit_bytes=self._staging(statement))
        words = Words(statement.phrase, self._report)
        words.take(word)
        match word:
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
