"""The space to search: ``explore workload { schedules all; chunks 8..128 x2; ... }``."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import OF_LAYERS, Explore, Gpu, Implementation, Rejection, Workload, WorkloadCut, even_groups
from ...planning import knobs
from ...planning.knobs import Knob
from ...planning.knobs.base import CountValues
from ...planning.knobs.engine import ENGINE
from ...planning.knobs.execution import SPLIT_K, TILE, reject_split, reject_tile
from ...planning.knobs.structure import TEMPLATE
from ...text import syntax as ast
from ...text.diagnostics import Span, listing
from ...text.names import Kind
from ...text.units import BYTES
from ...text.vocabulary import MAX_BATCHES, MAX_GROUPS, OBJECTIVES, Property
from ..values.evaluate import Reading
from ..values.params import read_values, whole_numbers
from ..values.words import Words, behind, known_head, one_of
from .implementation import ImplementationReader, reject_implementation
from .schedule import ChoiceReader

BATCHES = "batches"
"""The word for how many batches a workload may be computed in."""

GROUPS = "groups"
"""The word for in how many groups experts may be computed."""

IMPLEMENTATIONS = "implementations"
"""The word for what one can switch on today."""

_OTHER_WORDS = ("staging", "minimize", "everything", "dominance", IMPLEMENTATIONS, BATCHES, GROUPS)
_STAGING = Property("staging", BYTES, Fraction(0), Fraction(1 << 50), whole=True)


def explored_knobs() -> dict[str, Knob]:
    """The knobs that a block may name, by their words."""
    return {knob.word: knob for knob in knobs.KNOBS if knob.explored}


class ExploreReader:
    """Reads the explore block of one workload."""

    def __init__(self, choices: ChoiceReader, implementations: ImplementationReader, reading: Reading) -> None:
        self._choices, self._implementations = choices, implementations
        self._reading, self._report = reading, reading.report

    def read(self, question: ast.ExploreNode) -> Explore:
        """Return the space a block describes; what it does not say is left open."""
        explore, seen = Explore(), dict[str, Span]()
        for statement in question.block.statements:
            with self._report.attempt():
                word = known_head(statement, (*explored_knobs(), *_OTHER_WORDS), "explore", self._report)
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
        words = behind(statement, self._report)
        if word in explored_knobs():
            return explore.asking(word, self._values(explored_knobs()[word], words))
        match word:
            case "everything":
                words.end()
                return explore
            case "dominance":
                return replace(explore, dominance=self._switch(words))
            case "batches" | "groups":
                counts = read_values(words, self._reading)
                numbers = whole_numbers(counts, word, MAX_BATCHES if word == BATCHES else MAX_GROUPS, self._report)
                return explore.asking(word, tuple(dict.fromkeys(numbers)))
            case "implementations":
                return replace(explore, implementations=self._requested(words))
            case _:
                objective, hint = words.take_name("what to minimize"), f"what can be minimized: {listing(OBJECTIVES)}"
                words.end()
                one_of(OBJECTIVES, objective, "objective", self._report, hint, Code.MGS201)
                return explore

    def _values(self, knob: Knob, words: Words) -> tuple[Any, ...]:
        """The values of one knob: counts, engines, or words."""
        if knob is TEMPLATE:
            return self._templates(words)
        if isinstance(knob.values, CountValues):
            counts = read_values(words, self._reading)
            return tuple(dict.fromkeys(whole_numbers(counts, knob.word, knob.values.most, self._report)))
        what = "an engine" if knob is ENGINE else f"a value of {knob.word}"
        values = [self._choices.value(knob, each) for each in words.take_list(what)]
        self._end_of_list(words)
        return tuple(dict.fromkeys(values))

    def _requested(self, words: Words) -> tuple[Implementation, ...]:
        """The implementations of a list of names; each number that a prediction needs must be known."""
        requested: dict[str, Implementation] = {}
        for each in words.take_list("an implementation"):
            entry = self._reading.place.scope.find(each, Kind.IMPLEMENTATION, self._report)
            requested[entry.name] = self._implementations.read(entry)
        self._end_of_list(words)
        return tuple(requested.values())

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
            case (ast.GroupNode(parts=(ast.Compare(operator="<=", right=right),)),):
                return int(self._reading.number(_STAGING, right).amount)
            case _:
                raise self._report.fail(Code.MGS116, "staging says a limit", statement.span, "staging <= 2 GiB")


def opened(explore: Explore) -> Explore:
    """The same space with every value of the knobs that it does not say, where they are few."""
    for knob in explored_knobs().values():
        if knob is not TEMPLATE and not explore.values(knob.word) and knob.every():
            explore = explore.asking(knob.word, knob.every())
    return explore


def requested_in_vain(explore: Explore, workload: Workload) -> Iterator[tuple[str, Rejection]]:
    """The words of a block that ask about what a workload has not, and why: cuts, and implementations."""
    for word in (BATCHES, GROUPS):
        for count in explore.values(word):
            rejection = _uncut(workload, word, count)
            if rejection is not None:
                yield word, rejection
    for implementation in explore.implementations:
        rejection = _no_implementation(workload, implementation)
        if rejection is not None:
            yield IMPLEMENTATIONS, rejection


def told_in_vain(explore: Explore, gpu: Gpu, workload: Workload) -> Iterator[tuple[str, Rejection]]:
    """The words of a block that tell kernels what none of a workload's has, and why: tiles, and parts of k."""
    for word, reject in ((TILE.word, reject_tile), (SPLIT_K.word, reject_split)):
        for value in explore.values(word):
            rejections = [reject(gpu, op.shape, value) for op in workload.ops if op.shape.gemm is not None]
            rejections = rejections or [reject(gpu, op.shape, value) for op in workload.ops]
            if None not in rejections and rejections[0] is not None:
                yield word, rejections[0]


def _no_implementation(workload: Workload, implementation: Implementation) -> Rejection | None:
    """Why an implementation cannot be predicted for a workload, None if it can."""
    if len(workload.ops) == 1:
        return reject_implementation(implementation, workload.ops[0].shape)
    rejected = [reject_implementation(implementation, op.shape) for op in workload.ops if op.shape.moved is not None]
    if implementation.name in OF_LAYERS or None in rejected:
        return None
    why = "; ".join(dict.fromkeys(each.message for each in rejected if each is not None))
    message = f"{implementation.name} carries out none of the {len(workload.ops)} ops of {workload.name}"
    return Rejection(Code.MGS520, f"{message}: {why}" if why else message, "name one that does a pair of them")


def _uncut(workload: Workload, word: str, count: int) -> Rejection | None:
    """Why a workload cannot be computed in so many batches or groups, None if it can."""
    from ...planning.groups import cut_up, experts_of_a_rank  # few files ask about them
    from ...planning.parts import PlanError

    try:
        groups = even_groups(experts_of_a_rank(workload), count) if word == GROUPS and count > 1 else ()
        cut_up(workload, WorkloadCut(count if word == BATCHES else 1, groups))
    except PlanError as error:
        return error.rejection
    return None
