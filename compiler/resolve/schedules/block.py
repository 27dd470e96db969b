"""Schedules of ops: how each is carried out, which are separated, and who runs when and with whom.

schedule mine for layer {
  dh = hetero_fused_1d(chunks=32, engine=dma(7))
  u { split rows 512, 512; move by dma(7) put }
  separate dx, xg by dma(7)
  order dh, dx, d_wdn, d_wup
  stream 1 d_wup
  start xg with d_wdn
  priority sums, d_wdn low
  handoff chunks
  chained o
}
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...codes import Code
from ...ir import UNCUT, HandOff, Op, OpCase, OpMode, Schedule, System, Workload, WorkloadCut, even_groups
from ...planning.groups import axes_in, cut_up, experts_of_a_rank, names_in
from ...planning.handoff import delivered_for
from ...planning.parts import collective_name, is_summed_last
from ...text import syntax as ast
from ...text.diagnostics import Span, did_you_mean, listing
from ...text.vocabulary import MAX_BATCHES, MAX_EXTENT, MAX_GROUPS, MAX_PREFETCH, MAX_STREAMS, SCHEDULE_WORDS
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, known_head, one_of
from .plan import WrittenReader
from .schedule import ChoiceReader


class ScheduleBlockReader:
    """Reads one schedule that is a block of ops."""

    def __init__(
        self,
        system: System,
        workload: Workload,
        choices: ChoiceReader,
        reading: Reading,
        *,
        as_written: bool,
    ) -> None:
        self._system, self._graph = system, workload
        self._choices, self._reading, self._report = choices, reading, reading.report
        self._written = WrittenReader(choices, reading, as_written=as_written)
        self._names, self._cut = OpNames(workload, UNCUT, reading), UNCUT
        self._modes: dict[str, OpMode] = {}
        self._streams: dict[str, int] = {}
        self._starts_with: dict[str, str] = {}
        self._low: dict[str, None] = {}
        self._said: dict[str, Any] = {}
        """What is said once, by the fields of the schedule."""

    def read(self, declaration: ast.PlanNode) -> Schedule:
        """Read a schedule."""
        seen = set[str]()
        with self._report.whole():
            self._cut = WorkloadCut(self._batches(declaration.block), self._groups(declaration.block))
            self._names = OpNames(self._graph, self._cut, self._reading)
            for statement in declaration.block.statements:
                with self._report.attempt():
                    self._statement(statement, seen)
        return Schedule(
            declaration.name,
            tuple(self._modes.values()),
            streams=tuple(self._streams.items()),
            starts_with=tuple(self._starts_with.items()),
            low=tuple(self._low),
            batches=self._cut.batches,
            groups=self._cut.groups,
            **self._said,
        )

    def _batches(self, block: ast.BlockNode) -> int:
        """Read ``batches 2``, wherever it stands: names of ops depend on it."""
        for words in self._said_of("batches", block):
            with self._report.attempt():
                return self._reading.count("a number of batches", 1, MAX_BATCHES, words.take("a number of batches"))
        return 1

    def _groups(self, block: ast.BlockNode) -> tuple[int, ...]:
        """Read ``groups 8``, or ``groups of 2, 6``: in experts of a rank."""
        for words in self._said_of("groups", block):
            with self._report.attempt():
                if words.take_word("of"):
                    sizes = words.take_list("experts of a rank")
                    if not 2 <= len(sizes) <= MAX_GROUPS:
                        message = f"experts are in 2 to {MAX_GROUPS} groups"
                        raise self._report.fail(Code.MGS307, message, words.span, "groups of 4, 12, 16")
                    return tuple([self._reading.count("experts of a group", 1, MAX_EXTENT, each) for each in sizes])
                count = self._reading.count("a number of groups", 1, MAX_GROUPS, words.take("a number of groups"))
                return even_groups(experts_of_a_rank(self._graph), count) if count > 1 else ()
        return ()

    def _said_of(self, word: str, block: ast.BlockNode) -> Iterator[Words]:
        """What the statements of a block that begin with ``word`` say behind it."""
        for statement in block.statements:
            if head_word(statement) == word:
                yield behind(statement, self._report)

    def _statement(self, statement: ast.Define | ast.Say, seen: set[str]) -> None:
        match statement:
            case ast.Define(name=word):
                if word in SCHEDULE_WORDS:
                    known_head(statement, SCHEDULE_WORDS, "a schedule of ops", self._report)
                span = Span(statement.span.source, statement.span.start, statement.span.start + len(word))
                self._template(ast.Name(word, span=span), statement.phrase[0].parts, statement.span)
            case ast.Say(phrase=(ast.GroupNode(parts=(ast.Compare(left=op, operator="=", right=body), *rest)), *_)):
                self._template(op, (body, *rest), statement.span)
            case ast.Say(phrase=(ast.GroupNode(parts=(op,)),), block=ast.BlockNode() as block):
                self._block(op, block, statement.span)
            case ast.Say():
                self._say(statement, seen)

    def _block(self, op: ast.Expression, block: ast.BlockNode, span: Span) -> None:
        """Read ``u { ... }``: an outline of an op, or its plan written out."""
        for name in self._names.planned(op):
            declaration = ast.PlanNode(name, ast.Path((name,), span=op.span), block, span=span)
            shape = cut_up(self._graph, self._cut).op(name).shape
            plan = self._written.read(OpCase(name, self._system, shape), declaration, None)
            if plan is None:
                raise self._report.stop()
            self._mode(OpMode(name, plan), span)

    def _template(self, op: ast.Expression, body: tuple[ast.Expression, ...], span: Span) -> None:
        """Read ``u = TEMPLATE(...)``, for each batch, or ``u[0] = TEMPLATE(...)``."""
        names = self._names.planned(op)
        choice = self._choices.choice(ast.TemplateNode("schedule", ast.Path((names[0],)), body, span=span))
        for name in names:
            self._mode(OpMode(name, choice), span)

    def _say(self, statement: ast.Say, seen: set[str]) -> None:
        head = known_head(statement, SCHEDULE_WORDS, "a schedule of ops", self._report)
        if head not in ("separate", "stream", "start"):
            self._report.once(head, seen, statement.span)
        words = behind(statement, self._report)
        match head:
            case "separate":
                self._separate(words, statement.span)
            case "order":
                self._said["order"] = self._names.distinct(words, parts=True)
            case "deferred":
                self._said["deferred"] = self._deferred(words, statement.span)
            case "chained":
                self._said["chained"] = self._chained(words)
            case "stream":
                stream = self._reading.count("a stream", 1, MAX_STREAMS - 1, words.take("a number"))
                self._streams |= dict.fromkeys(self._names.distinct(words), stream)
            case "start":
                self._start(words)
            case "priority":
                self._priority(words)
            case "prefetch":
                written = words.take("a number of layers")
                self._said["prefetch"] = self._reading.count("layers of prefetch", 0, MAX_PREFETCH, written)
            case "batches" | "groups":  # which are known already
                _ = words.take_list("experts") if words.take_word("of") else words.take("a number")
            case _:
                name, known = words.take_name("chunks or whole"), [each.value for each in HandOff]
                hint = f"a hand-off is by {listing(known)}"
                self._said["handoff"] = HandOff(one_of(known, name, "hand-off", self._report, hint))
        words.end()

    def _deferred(self, words: Words, span: Span) -> tuple[str, ...]:
        """Read ``deferred y, y_add``: parts that are issued among those of the next layer."""
        names = self._names.distinct(words, parts=True)
        if self._graph.repeat is None:
            message = f"{self._graph.name} repeats no layers: there is no next one for {listing(names)}"
            raise self._report.fail(Code.MGS509, message, span, "repeat N y as x, in the workload")
        return names

    def _chained(self, words: Words) -> tuple[str, ...]:
        """Read ``chained o, w``: GEMMs that are cut as the all_to_all that brings what they take."""
        spans, workload = self._names.spans(words), cut_up(self._graph, self._cut)
        for name, span in spans.items():
            if delivered_for(workload, workload.op(name), self._system.num_ranks) is None:
                message = f"{name} is {workload.op(name).label}, and takes no equal blocks that GEMM+A2A brings by rows"
                hint = "chained is for a GEMM whose first operand another kernel makes and an all_to_all moves, not x.t"
                raise self._report.fail(Code.MGS509, message, span, hint)
            self._check_once(name, span)
        return tuple(spans)

    def _start(self, words: Words) -> None:
        """Read ``start xg with dx``: in batches each with the kernel of its own, or all with one that is named."""
        others = self._names.distinct(words)
        words.need("with", "'with' is missing", "start xg with dx")
        value = words.take("an op with a kernel")
        kernels = self._names.of(value)
        for name in others:
            own = [kernel for kernel in kernels if self._names.number_of(kernel) == self._names.number_of(name)]
            if len(kernels) > 1 and not own:
                message = f"{name} is of no batch: with which of {listing(kernels)} does it start?"
                raise self._report.fail(Code.MGS116, message, value.span, f"start {name} with {kernels[0]}")
            self._starts_with[name] = (own or kernels)[0]

    def _separate(self, words: Words, span: Span) -> None:
        """Read ``separate dx, xg by dma(7)``; a lone collective is one already, and is carried out so."""
        names = self._names.distinct(words, planned=True)
        how = self._choices.whole(words.take("an engine, or a template") if words.take_word("by") else None)
        for name in names:
            lone = self._names[name].shape.is_collective
            self._mode(OpMode(name, how) if lone else OpMode(name, separate=how), span)

    def _mode(self, mode: OpMode, span: Span) -> None:
        self._check_once(mode.op, span)
        self._modes[mode.op] = mode

    def _check_once(self, name: str, span: Span) -> None:
        if name in self._modes or name in self._said.get("chained", ()):
            raise self._report.fail(Code.MGS206, f"how {name} is carried out is said twice", span)

    def _priority(self, words: Words) -> None:
        """Read ``priority sums, d_w low``."""
        while True:
            if words.take_word("sums"):
                self._said["sums_first"] = True
            else:
                value = words.take("sums, or an op")
                names = self._names.of(value)
                words.need("low", "'low' is missing", f"priority sums, {value.span.text} low")
                self._low |= dict.fromkeys(names)
            if not words.skip_comma():
                return


class OpNames:
    """The ops of ``workload``, cut up, by name."""

    def __init__(self, workload: Workload, cut: WorkloadCut, reading: Reading) -> None:
        self._graph, self._reading, self._report = workload, reading, reading.report
        self._names, self._axes = names_in(workload, cut), axes_in(workload, cut)
        self._ops = {name: op for op in workload.ops for name in self._names[op.name]}

    def __getitem__(self, name: str) -> Op:
        """The op of the file behind a name."""
        return self._ops[name]

    def distinct(self, words: Words, *, parts: bool = False, planned: bool = False) -> tuple[str, ...]:
        """Names of ops that ``words`` list, each once; with ``parts`` also of collectives of their own.

        If they are to be ``planned``, those that a name stands for there.
        """
        return tuple(self.spans(words, parts=parts, planned=planned))

    def spans(self, words: Words, *, parts: bool = False, planned: bool = False) -> dict[str, Span]:
        """The same, with the place of each."""
        names_of = self.planned if planned else self.of
        found: dict[str, Span] = {}
        for value in words.take_list("an op"):
            collective = parts and isinstance(value, ast.Member)
            for name in self._collectives_of(value) if collective else names_of(value):
                if name in found:
                    raise self._report.fail(Code.MGS206, f"{name} is listed twice", value.span)
                found[name] = value.span
        return found

    def of(self, value: ast.Expression) -> tuple[str, ...]:
        """The op that ``qkv[1]`` or, in groups too, ``h[1, 3]`` names, or those of each batch and group."""
        match value:
            case ast.Name():
                return self._names[self._op(value)]
            case ast.Index(base=ast.Name() as base, subscripts=subscripts):
                op = self._op(base)
                names, axes = self._names[op], self._axes[op]
                if len(subscripts) > len(axes):
                    message = f"{base.text} is not in batches" + (" and groups" if axes else ", nor in groups")
                    raise self._report.fail(Code.MGS203, message, value.span, f"say {base.text}, or batches 2")
                for subscript, size in zip(subscripts, axes, strict=False):
                    number = self._reading.count("a batch or group", 0, size - 1, subscript)
                    each = len(names) // size
                    names = names[number * each : (number + 1) * each]
                return names
            case _:
                message = "the name of an op is expected here"
                raise self._report.fail(Code.MGS116, message, value.span, "qkv, or qkv[0] of a batch")

    def planned(self, value: ast.Expression) -> tuple[str, ...]:
        """The ops that ``value`` says how to carry out: of sums over batches and ranks the last, if none is named."""
        names = self.of(value)
        return names[-1:] if isinstance(value, ast.Name) and is_summed_last(self._ops[names[0]]) else names

    def number_of(self, name: str) -> str:
        """The batch and group of an op, as its name has them; empty where it is of none."""
        return name.removeprefix(self._ops[name].name)

    def _collectives_of(self, value: ast.Expression) -> tuple[str, ...]:
        """The collectives of an op that is separated, by their names."""
        assert isinstance(value, ast.Member), "a collective is a part of an op"
        names = self.planned(value.base)
        own = tuple(collective_name(replace(self._ops[name], name=name)) for name in names)
        word = own[0].rpartition(".")[2]
        if value.name != word or not self._ops[names[0]].is_pair:
            hint = f"{names[0]}.{word}" if self._ops[names[0]].is_pair else "a pair has one: dh.all_gather"
            message = f"{value.base.span.text} has no collective '{value.name[:40]}'"
            raise self._report.fail(Code.MGS203, message, value.span, hint)
        return own

    def _op(self, name: ast.Name) -> str:
        if name.text not in self._names:
            part_of = {tensor: op for tensor, op, _ in self._graph.results}
            inside = f"{name.text} is made inside {part_of[name.text]}" if name.text in part_of else ""
            hint = inside or did_you_mean(name.text, self._names) or f"ops are {listing(self._names)}"
            raise self._report.fail(Code.MGS203, f"unknown op '{name.text[:64]}'", name.span, hint)
        return name.text
