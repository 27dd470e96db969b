"""Schedules of a step and the space to compare: ``schedule s for train { pipeline interleaved(chunks=5); zero 1 }``."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import Implementation
from ...ir.step import (
    KEEP_ALL,
    KEEP_LEAST,
    ContextKind,
    Overlapped,
    Pipeline,
    PipelineKind,
    StepExplore,
    StepSchedule,
)
from ...text import syntax as ast
from ...text.diagnostics import did_you_mean, listing
from ...text.names import Kind
from ...text.units import BYTES, exact_text
from ...text.vocabulary import MAX_LAYERS, STEP_EXPLORE_WORDS, STEP_SCHEDULE_WORDS, Property
from ..values.evaluate import Reading
from ..values.params import read_values
from ..values.words import Words, behind, known_head, one_of, single

MAX_ZERO = 3
_MEMORY = Property("memory", BYTES, Fraction(1), Fraction(1 << 50), whole=True)


_OF_SEVERAL = ("pipeline", "zero", "keep", "context")
"""Words that take alternatives, of which a schedule has one."""


class StepBlockReader:
    """Reads blocks about one step.

    ``schedules`` are the names of those that the file declares for each workload of the step, and ``stack`` finds the
    implementation of a name whose costs as a framework are known.
    """

    def __init__(
        self,
        schedules: dict[str, Sequence[str]],
        results: Sequence[str],
        stack: Callable[[ast.Name], Implementation],
        reading: Reading,
    ) -> None:
        self._schedules, self._results, self._stack = schedules, results, stack
        self._reading, self._report = reading, reading.report

    def schedule(self, declaration: ast.TemplateNode | ast.PlanNode) -> StepSchedule:
        """Read a schedule."""
        if isinstance(declaration, ast.TemplateNode):
            message = f"'{declaration.name}' is for a step: its schedule is a block"
            hint = f"schedule {declaration.name} for {declaration.workload} {{ pipeline one_f_one_b; zero 1 }}"
            raise self._report.fail(Code.MGS116, message, declaration.span, hint)
        words = (*STEP_SCHEDULE_WORDS, *self._schedules)
        said, parts = self._block(declaration.block, words, "the schedule of a step", several=False)
        one = {word: values[0] if word in _OF_SEVERAL else values for word, values in said.items()}
        overlapped = one.pop("overlap", ())
        return StepSchedule(declaration.name, overlapped=overlapped, parts=tuple(parts.items()), **one)

    def explore(self, question: ast.ExploreNode) -> StepExplore:
        """Read the space of layouts."""
        words = (*STEP_EXPLORE_WORDS, *self._reading.place.scope.names(Kind.PARAM))
        said, _ = self._block(question.block, words, "explore of a step", several=True)
        pipelines, zero, keep, context = (said.pop(word, ()) for word in _OF_SEVERAL)
        limit = said.pop("memory", None)
        return StepExplore(tuple(said.items()), pipelines, zero, keep, context, limit)

    def _block(
        self, block: ast.BlockNode, known: Sequence[str], owner: str, *, several: bool
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What a block says by its words, and the schedules of workloads."""
        said, parts, seen, failures = dict[str, Any](), dict[str, str](), set[str](), self._report.num_failures
        for statement in block.statements:
            with self._report.attempt():
                word = self._word(statement, known, owner)
                if word in seen:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                seen.add(word)
                if isinstance(statement, ast.Define):
                    parts[word] = self._part(word, single(statement.phrase[0].parts, self._report))
                else:
                    said[word] = self._said(word, statement, several=several)
        if self._report.num_failures > failures:
            raise self._report.stop()
        return said, parts

    def _word(self, statement: ast.Define | ast.Say, known: Sequence[str], owner: str) -> str:
        if isinstance(statement, ast.Define) and statement.name in self._schedules:
            return statement.name
        return known_head(statement, known, owner, self._report)

    def _said(self, word: str, statement: ast.Say, *, several: bool) -> Any:
        if word == "memory":
            return self._memory(statement)
        words = behind(statement, self._report)
        readers: dict[str, Callable[[Words], Any]] = {
            "pipeline": self._pipelines,
            "zero": self._zero,
            "keep": self._keep if several else self._kept,
            "stages": self._stages,
            "overlap": self._overlapped,
            "context": self._context,
            "stack": self._framework,
        }
        if word not in readers and not several:
            hint = f"{word} = NAME, a schedule of {word}"
            raise self._report.fail(Code.MGS116, f"{word} is a workload", statement.span, hint)
        if word not in readers:
            values = read_values(words, self._reading)
            return tuple(exact_text(each) for each in values.listed or (values.low, values.high))
        found = readers[word](words)
        if not several and word in _OF_SEVERAL and len(found) > 1:
            raise self._report.fail(
                Code.MGS116, f"a schedule has one {word}", statement.span, "explore compares several"
            )
        return found

    def _part(self, workload: str, value: ast.Expression) -> str:
        known, text = self._schedules[workload], value.span.text[:40]
        if isinstance(value, ast.Name) and value.text in known:
            return value.text
        hint = did_you_mean(text, known) or f"schedules of {workload}: {listing(known)}"
        if not known:
            hint = f"declare it: schedule {text} for {workload} {{ ... }}"
        raise self._report.fail(Code.MGS203, f"{workload} has no schedule '{text}'", value.span, hint)

    def _pipelines(self, words: Words) -> tuple[Pipeline, ...]:
        if words.take_word("all"):
            words.end()
            kinds = [Pipeline(kind) for kind in PipelineKind if kind is not PipelineKind.INTERLEAVED]
            return (*kinds, *(Pipeline(PipelineKind.INTERLEAVED, chunks) for chunks in (2, 3, 4, 5, 6, 8, 10)))
        found = tuple(self._pipeline(each) for each in words.take_list("a pipeline"))
        words.end()
        return found

    def _pipeline(self, value: ast.Expression) -> Pipeline:
        name, chunks = value, 1
        if isinstance(value, ast.Call):
            name = value.function
            for argument in value.arguments:
                if argument.name != "chunks":
                    hint = "interleaved(chunks=2)"
                    raise self._report.fail(Code.MGS201, "a pipeline has chunks alone", argument.span, hint)
                chunks = self._reading.count(
                    "chunks", 2, MAX_LAYERS, single(argument.values, self._report, in_call=True)
                )
        known = [kind.value for kind in PipelineKind]
        kind = PipelineKind(one_of(known, name, "pipeline", self._report, f"pipelines are {listing(known)}"))
        if (kind is PipelineKind.INTERLEAVED) is not (chunks > 1):
            message = "interleaved says its chunks" if chunks == 1 else f"{kind.value} has one chunk a stage"
            raise self._report.fail(Code.MGS116, message, value.span, "interleaved(chunks=2)")
        return Pipeline(kind, chunks)

    def _zero(self, words: Words) -> tuple[int, ...]:
        return self._counts(words, "a stage of ZeRO, 0 to 3", "zero", 0, MAX_ZERO)

    def _stages(self, words: Words) -> tuple[int, ...]:
        return self._counts(words, "layers of a stage", "layers of a stage", 1, MAX_LAYERS)

    def _counts(self, words: Words, expected: str, what: str, least: int, most: int) -> tuple[int, ...]:
        listed = words.take_list(expected)
        words.end()
        return tuple(self._reading.count(what, least, most, each) for each in listed)

    def _overlapped(self, words: Words) -> tuple[Overlapped, ...]:
        return tuple(map(Overlapped, self._words_of(words, [each.value for each in Overlapped], "traffic")))

    def _context(self, words: Words) -> tuple[ContextKind, ...]:
        known = [each.value for each in ContextKind]
        return tuple(map(ContextKind, self._words_of(words, known, "exchange of keys and values")))

    def _words_of(self, words: Words, known: Sequence[str], what: str) -> list[str]:
        """Read a list of words, all of which are ``known``."""
        found = words.take_list(" or ".join(known))
        words.end()
        return [one_of(known, each, what, self._report, f"known are: {listing(known)}") for each in found]

    def _framework(self, words: Words) -> Implementation:
        stack = self._stack(words.take_name("a stack"))
        words.end()
        return stack

    def _keep(self, words: Words) -> tuple[str, ...]:
        """Read alternatives: ``keep all, least``."""
        listed = words.take_list("all or least")
        words.end()
        for each in listed:
            if not isinstance(each, ast.Name) or each.text not in (KEEP_ALL, KEEP_LEAST):
                hint = "keep all, least; a schedule may name results"
                raise self._report.fail(Code.MGS204, f"unknown '{each.span.text[:40]}'", each.span, hint)
        return tuple(each.span.text for each in listed)

    def _kept(self, words: Words) -> tuple[str, ...]:
        """Read ``keep all``, ``keep least`` or names of results."""
        return (", ".join(each.text for each in self._names(words)),)

    def _names(self, words: Words) -> Iterator[ast.Name]:
        listed = words.take_list("all, least or results of the forward pass")
        words.end()
        for each in listed:
            known = (KEEP_ALL, KEEP_LEAST) if len(listed) == 1 else ()
            if not isinstance(each, ast.Name) or each.text not in (*known, *self._results):
                hint = did_you_mean(each.span.text[:40], self._results) or f"results are {listing(self._results)}"
                message = f"the forward pass has no result '{each.span.text[:40]}'"
                raise self._report.fail(Code.MGS203, message, each.span, hint)
            yield each

    def _memory(self, statement: ast.Say) -> int:
        match statement.phrase:
            case (ast.GroupNode(parts=(ast.Compare(operator="<=", right=right),)),):
                return int(self._reading.number(_MEMORY, right).amount)
        raise self._report.fail(Code.MGS116, "memory says a limit", statement.span, "memory <= 74 GiB")
