"""Schedules of a step and the space to compare: ``schedule s for train { pipeline interleaved(chunks=5); zero 1 }``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

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
from ..values.evaluate import Words, behind, known_head, one_of, single
from ..values.params import read_values
from ..values.reading import Reading

MAX_ZERO = 3
_MEMORY = Property("memory", BYTES, Fraction(1), Fraction(1 << 50), whole=True)


@dataclass(slots=True)
class _Said:
    """What a block has said so far: alternatives of each word."""

    pipelines: list[Pipeline] = field(default_factory=list)
    zero: list[int] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    context: list[ContextKind] = field(default_factory=list)
    stages: tuple[int, ...] = ()
    overlapped: tuple[Overlapped, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    memory_bytes: int | None = None
    stack: Implementation | None = None


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
        said = self._block(declaration.block, words, "the schedule of a step", several=False)
        usual = StepSchedule(declaration.name)
        return replace(
            usual,
            pipeline=next(iter(said.pipelines), usual.pipeline),
            stages=said.stages,
            zero=next(iter(said.zero), usual.zero),
            overlapped=said.overlapped,
            keep=next(iter(said.keep), usual.keep),
            parts=tuple(said.parts.items()),
            context=next(iter(said.context), usual.context),
            stack=said.stack,
        )

    def explore(self, question: ast.ExploreNode) -> StepExplore:
        """Read the space of layouts."""
        words = (*STEP_EXPLORE_WORDS, *self._reading.place.scope.names(Kind.PARAM))
        said = self._block(question.block, words, "explore of a step", several=True)
        settings, keep, context = tuple(said.settings.items()), tuple(said.keep), tuple(said.context)
        return StepExplore(settings, tuple(said.pipelines), tuple(said.zero), keep, context, said.memory_bytes)

    def _block(self, block: ast.BlockNode, known: Sequence[str], owner: str, *, several: bool) -> _Said:
        said, seen, failures = _Said(), set[str](), self._report.num_failures
        for statement in block.statements:
            with self._report.attempt():
                word = self._word(statement, known, owner)
                if word in seen:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                seen.add(word)
                self._statement(word, statement, said, several=several)
        if self._report.num_failures > failures:
            raise self._report.stop()
        return said

    def _word(self, statement: ast.Define | ast.Say, known: Sequence[str], owner: str) -> str:
        if isinstance(statement, ast.Define) and statement.name in self._schedules:
            return statement.name
        return known_head(statement, known, owner, self._report)

    def _statement(self, word: str, statement: ast.Define | ast.Say, said: _Said, *, several: bool) -> None:
        if isinstance(statement, ast.Define):
            said.parts[word] = self._part(word, single(statement.phrase[0].parts, self._report))
            return
        if word == "memory":
            said.memory_bytes = self._memory(statement)
            return
        words = behind(statement, self._report)
        readers: dict[str, Callable[[Words, _Said], None]] = {
            "pipeline": self._pipelines,
            "zero": self._zero,
            "keep": self._keep if several else self._kept,
            "stages": self._stages,
            "overlap": self._overlapped,
            "context": self._context,
            "stack": self._framework,
        }
        if word in readers:
            readers[word](words, said)
            if not several and max(len(said.pipelines), len(said.zero), len(said.context)) > 1:
                message = f"a schedule has one {word}"
                raise self._report.fail(Code.MGS116, message, statement.span, "explore compares several")
        else:
            values = read_values(words, self._reading)
            listed = values.listed or (values.low, values.high)
            said.settings[word] = tuple(exact_text(each) for each in listed)

    def _part(self, workload: str, value: ast.Expression) -> str:
        known, text = self._schedules[workload], value.span.text[:40]
        if isinstance(value, ast.Name) and value.text in known:
            return value.text
        hint = did_you_mean(text, known) or f"schedules of {workload}: {listing(known)}"
        if not known:
            hint = f"declare it: schedule {text} for {workload} {{ ... }}"
        raise self._report.fail(Code.MGS203, f"{workload} has no schedule '{text}'", value.span, hint)

    def _pipelines(self, words: Words, said: _Said) -> None:
        if words.take_word("all"):
            words.end()
            kinds = [kind for kind in PipelineKind if kind is not PipelineKind.INTERLEAVED]
            said.pipelines += [Pipeline(kind) for kind in kinds]
            said.pipelines += [Pipeline(PipelineKind.INTERLEAVED, chunks) for chunks in (2, 3, 4, 5, 6, 8, 10)]
            return
        said.pipelines += [self._pipeline(each) for each in words.take_list("a pipeline")]
        words.end()

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

    def _zero(self, words: Words, said: _Said) -> None:
        written = words.take_list("a stage of ZeRO, 0 to 3")
        said.zero += [self._reading.count("zero", 0, MAX_ZERO, each) for each in written]
        words.end()

    def _stages(self, words: Words, said: _Said) -> None:
        sizes = words.take_list("layers of a stage")
        said.stages = tuple(self._reading.count("layers of a stage", 1, MAX_LAYERS, each) for each in sizes)
        words.end()

    def _overlapped(self, words: Words, said: _Said) -> None:
        named = self._words_of(words, [each.value for each in Overlapped], "traffic")
        said.overlapped = (*said.overlapped, *map(Overlapped, named))

    def _context(self, words: Words, said: _Said) -> None:
        named = self._words_of(words, [each.value for each in ContextKind], "exchange of keys and values")
        said.context += map(ContextKind, named)

    def _words_of(self, words: Words, known: Sequence[str], what: str) -> list[str]:
        """Read a list of words, all of which are ``known``."""
        found = words.take_list(" or ".join(known))
        words.end()
        return [one_of(known, each, what, self._report, f"known are: {listing(known)}") for each in found]

    def _framework(self, words: Words, said: _Said) -> None:
        said.stack = self._stack(words.take_name("a stack"))
        words.end()

    def _keep(self, words: Words, said: _Said) -> None:
        """Read alternatives: ``keep all, least``."""
        for each in words.take_list("all or least"):
            if not isinstance(each, ast.Name) or each.text not in (KEEP_ALL, KEEP_LEAST):
                hint = "keep all, least; a schedule may name results"
                raise self._report.fail(Code.MGS204, f"unknown '{each.span.text[:40]}'", each.span, hint)
            said.keep.append(each.text)
        words.end()

    def _kept(self, words: Words, said: _Said) -> None:
        """Read ``keep all``, ``keep least`` or names of results."""
        names = [each.span.text for each in self._names(words)]
        said.keep.append(", ".join(names))

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
