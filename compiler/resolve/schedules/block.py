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

from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...codes import Code
from ...ir import HandOff, Op, OpCase, OpMode, Schedule, System, Workload
from ...planning.handoff import delivered_for
from ...planning.parts import collective_name, in_batches, is_summed_last, op_names
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.units import NUMBER
from ...text.vocabulary import MAX_BATCHES, MAX_PREFETCH, MAX_STREAMS, SCHEDULE_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, head_of, known_head
from .plan import WrittenReader
from .schedule import ChoiceReader


@dataclass(slots=True)
class _Said:
    """What a block has said so far."""

    modes: dict[str, OpMode] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    streams: dict[str, int] = field(default_factory=dict)
    starts_with: dict[str, str] = field(default_factory=dict)
    low: dict[str, None] = field(default_factory=dict)
    sums_first: bool = False
    handoff: HandOff = HandOff.CHUNKS
    batches: int = 1
    prefetch: int = 0
    deferred: tuple[str, ...] = ()
    chained: tuple[str, ...] = ()
    seen: set[str] = field(default_factory=set)


class ScheduleBlockReader:
    """Reads the schedules of one workload that are blocks of ops."""

    def __init__(
        self,
        system: System,
        workload: Workload,
        choices: ChoiceReader,
        place: Place,
        evaluator: ExpressionEvaluator,
        report: Report,
        *,
        as_written: bool,
    ) -> None:
        self._system, self._graph = system, workload
        self._choices, self._place, self._report = choices, place, report
        self._written = WrittenReader(choices, place, evaluator, report, as_written=as_written)
        self._numbers = FigureReader(report, evaluator)
        self._names = OpNames(workload, 1, self._numbers, place, report)

    def read(self, declaration: ast.Plan) -> Schedule:
        """Read a schedule."""
        said, failures = _Said(), self._report.num_failures
        said.batches = self._batches(declaration.block)
        self._names = OpNames(self._graph, said.batches, self._numbers, self._place, self._report)
        for statement in declaration.block.statements:
            with self._report.attempt():
                self._statement(statement, said)
        if self._report.num_failures > failures:
            raise self._report.stop()
        return Schedule(
            declaration.name,
            tuple(said.modes.values()),
            said.order,
            tuple(said.streams.items()),
            tuple(said.starts_with.items()),
            tuple(said.low),
            said.sums_first,
            said.handoff,
            said.batches,
            said.prefetch,
            said.deferred,
            said.chained,
        )

    def _batches(self, block: ast.Block) -> int:
        """Read ``batches 2``, wherever it stands: names of ops depend on it."""
        for statement in block.statements:
            head = head_of(statement) if isinstance(statement, ast.Say) else None
            if head is not None and head.text == "batches" and isinstance(statement, ast.Say):
                words = Words(statement.phrase, self._report)
                words.take("batches")
                number = Property("a number of batches", NUMBER, Fraction(1), Fraction(MAX_BATCHES), whole=True)
                with self._report.attempt():
                    return int(self._numbers.value(number, (words.take("a number of batches"),), self._place).amount)
        return 1

    def _statement(self, statement: ast.Define | ast.Say, said: _Said) -> None:
        match statement:
            case ast.Define(name=word):
                if word in SCHEDULE_WORDS:
                    known_head(statement, SCHEDULE_WORDS, "a schedule of ops", self._report)
                span = Span(statement.span.source, statement.span.start, statement.span.start + len(word))
                self._template(ast.Name(word, span=span), statement.phrase[0].parts, said, statement.span)
            case ast.Say(phrase=(ast.Group(parts=(ast.Compare(left=op, operator="=", right=body), *rest)), *_)):
                self._template(op, (body, *rest), said, statement.span)
            case ast.Say(phrase=(ast.Group(parts=(op,)),), block=ast.Block() as block):
                self._block(op, block, said, statement.span)
            case ast.Say():
                self._say(statement, said)

    def _block(self, op: ast.Expression, block: ast.Block, said: _Said, span: Span) -> None:
        """Read ``u { ... }``: an outline of an op, or its plan written out."""
        for name in self._names.planned(op):
            declaration = ast.Plan(name, ast.Path((name,), span=op.span), block, span=span)
            shape = in_batches(self._graph, said.batches).op(name).shape
            plan = self._written.read(OpCase(name, self._system, shape), declaration, None)
            if plan is None:
                raise self._report.stop()
            self._mode(OpMode(name, plan), said, span)

    def _template(self, op: ast.Expression, body: tuple[ast.Expression, ...], said: _Said, span: Span) -> None:
        """Read ``u = TEMPLATE(...)``, for each batch, or ``u[0] = TEMPLATE(...)``."""
        names = self._names.planned(op)
        choice = self._choices.choice(ast.Template("schedule", ast.Path((names[0],)), body, span=span))
        for name in names:
            self._mode(OpMode(name, choice), said, span)

    def _say(self, statement: ast.Say, said: _Said) -> None:
        head = known_head(statement, SCHEDULE_WORDS, "a schedule of ops", self._report)
        if head in said.seen and head not in ("separate", "stream", "start"):
            raise self._report.fail(Code.MGS206, f"{head} is said twice", statement.span)
        said.seen.add(head)
        words = Words(statement.phrase, self._report)
        words.take(head)
        match head:
            case "separate":
                self._separate(words, said, statement.span)
            case "order":
                said.order = self._names.distinct(words, parts=True)
            case "deferred":
                said.deferred = self._deferred(words, statement.span)
            case "chained":
                said.chained = self._chained(words, said)
            case "stream":
                number = Property("a stream", NUMBER, Fraction(1), Fraction(MAX_STREAMS - 1), whole=True)
                stream = int(self._numbers.value(number, (words.take("a number"),), self._place).amount)
                said.streams |= dict.fromkeys(self._names.distinct(words), stream)
            case "start":
                self._start(words, said)
            case "priority":
                self._priority(words, said)
            case "prefetch":
                number = Property("layers of prefetch", NUMBER, Fraction(0), Fraction(MAX_PREFETCH), whole=True)
                said.prefetch = int(
                    self._numbers.value(number, (words.take("a number of layers"),), self._place).amount
                )
            case "batches":
                words.take("a number of batches")  # which is known already
            case _:
                self._handoff(words, said)
        words.end()

    def _deferred(self, words: Words, span: Span) -> tuple[str, ...]:
        """Read ``deferred y, y_add``: parts that are issued among those of the next layer."""
        names = self._names.distinct(words, parts=True)
        if self._graph.repeat is None:
            message = f"{self._graph.name} repeats no layers: there is no next one for {listing(names)}"
            raise self._report.fail(Code.MGS509, message, span, "repeat N y as x, in the workload")
        return names

    def _chained(self, words: Words, said: _Said) -> tuple[str, ...]:
        """Read ``chained o, w``: GEMMs that are cut as the all_to_all that brings what they take."""
        spans, workload = self._names.spans(words), in_batches(self._graph, said.batches)
        for name, span in spans.items():
            if delivered_for(workload, workload.op(name), self._system.num_ranks) is None:
                message = f"{name} is {workload.op(name).label}, and takes no equal blocks that GEMM+A2A brings by rows"
                hint = "chained is for a GEMM whose first operand another kernel makes and an all_to_all moves, not x.t"
                raise self._report.fail(Code.MGS509, message, span, hint)
            self._said_once(name, said, span)
        return tuple(spans)

    def _start(self, words: Words, said: _Said) -> None:
        """Read ``start xg with dx``: in batches each with the kernel of its own, or all with one that is named."""
        others = self._names.distinct(words)
        if words.take_word("with") is None:
            raise self._report.fail(Code.MGS116, "'with' is missing", words.span, "start xg with dx")
        value = words.take("an op with a kernel")
        kernels = self._names.of(value)
        for name in others:
            own = [kernel for kernel in kernels if self._names.number_of(kernel) == self._names.number_of(name)]
            if len(kernels) > 1 and not own:
                message = f"{name} is of no batch: with which of {listing(kernels)} does it start?"
                raise self._report.fail(Code.MGS116, message, value.span, f"start {name} with {kernels[0]}")
            said.starts_with[name] = (own or kernels)[0]

    def _handoff(self, words: Words, said: _Said) -> None:
        name, known = words.take_name("chunks or whole"), {each.value: each for each in HandOff}
        if name.text not in known:
            hint = did_you_mean(name.text, known) or f"a hand-off is by {listing(known)}"
            raise self._report.fail(Code.MGS204, f"unknown hand-off '{name.text[:40]}'", name.span, hint)
        said.handoff = known[name.text]

    def _separate(self, words: Words, said: _Said, span: Span) -> None:
        """Read ``separate dx, xg by dma(7)``; a lone collective is one already, and is carried out so."""
        names = self._names.distinct(words, planned=True)
        how = self._choices.whole(words.take("an engine, or a template") if words.take_word("by") else None)
        for name in names:
            lone = self._names[name].shape.is_collective
            self._mode(OpMode(name, how) if lone else OpMode(name, separate=how), said, span)

    def _mode(self, mode: OpMode, said: _Said, span: Span) -> None:
        self._said_once(mode.op, said, span)
        said.modes[mode.op] = mode

    def _said_once(self, name: str, said: _Said, span: Span) -> None:
        if name in said.modes or name in said.chained:
            raise self._report.fail(Code.MGS206, f"how {name} is carried out is said twice", span)

    def _priority(self, words: Words, said: _Said) -> None:
        """Read ``priority sums, d_w low``."""
        while True:
            if words.take_word("sums"):
                said.sums_first = True
            else:
                value = words.take("sums, or an op")
                names = self._names.of(value)
                if words.take_word("low") is None:
                    hint = f"priority sums, {value.span.text} low"
                    raise self._report.fail(Code.MGS116, "'low' is missing", words.span, hint)
                said.low |= dict.fromkeys(names)
            if not words.skip_comma():
                return


class OpNames:
    """The ops of ``workload`` in so many batches, by name."""

    def __init__(self, workload: Workload, batches: int, numbers: FigureReader, place: Place, report: Report) -> None:
        self._graph, self._numbers, self._place, self._report = workload, numbers, place, report
        self._names = op_names(workload, batches)
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
        """The op that ``qkv[1]`` names, or that of each batch."""
        match value:
            case ast.Name():
                return self._names[self._op(value)]
            case ast.Index(base=ast.Name() as base, subscripts=(subscript,)):
                names = self._names[self._op(base)]
                if len(names) == 1:
                    message = f"{base.text} is not in batches"
                    raise self._report.fail(Code.MGS203, message, value.span, f"say {base.text}, or batches 2")
                last = Property("a batch", NUMBER, Fraction(0), Fraction(len(names) - 1), whole=True)
                return (names[int(self._numbers.value(last, (subscript,), self._place).amount)],)
            case _:
                message = "the name of an op is expected here"
                raise self._report.fail(Code.MGS116, message, value.span, "qkv, or qkv[0] of a batch")

    def planned(self, value: ast.Expression) -> tuple[str, ...]:
        """The ops that ``value`` says how to carry out: of sums over batches and ranks the last, if none is named."""
        names = self.of(value)
        return names[-1:] if isinstance(value, ast.Name) and is_summed_last(self._ops[names[0]]) else names

    def number_of(self, name: str) -> int:
        """The batch of an op; -1 where it is of none."""
        names = self._names[self._ops[name].name]
        return names.index(name) if len(names) > 1 else -1

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
