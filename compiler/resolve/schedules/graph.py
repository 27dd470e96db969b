"""Schedules of a graph: a template for each op, which collectives are apart, and who runs when and beside whom.

schedule late for layer {
  dh = hetero_fused_1d(chunks=32, engine=dma(7))
  apart dx, xg by dma(7)
  order dh, dx, d_wdn, d_wup
  stream 1 d_wup
  beside d_wdn xg
  priority sums, d_wdn low
  seams rows
}
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...codes import Code
from ...ir import Choice, Graph, GraphChoice, GraphScenario, OpMode, Seams
from ...planning.graph_build import build_graph_plan
from ...planning.graph_order import GraphPlanError
from ...templates import BASELINE
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Kind, Scope
from ...text.soundness import Soundness
from ...text.source import Span
from ...text.units import NUMBER
from ...text.vocabulary import GRAPH_SCHEDULE_WORDS, MAX_STREAMS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, known_head
from .template import ChoiceReader

_EXAMPLE = "schedule NAME for LAYER { u = hetero_fused_1d(chunks=16); apart y by dma(7); order u, y }"


@dataclass(slots=True)
class _Said:
    """What a block has said so far."""

    modes: dict[str, OpMode] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    streams: dict[str, int] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    low: dict[str, None] = field(default_factory=dict)
    sums_first: bool = False
    seams: Seams = Seams.ROWS
    seen: set[str] = field(default_factory=set)


class GraphScheduleReader:
    """Reads the schedules of one graph."""

    def __init__(
        self, graph: Graph, choices: ChoiceReader, place: Place, evaluator: ExpressionEvaluator, report: Report
    ) -> None:
        self._graph, self._choices, self._place, self._report = graph, choices, place, report
        self._numbers = FigureReader(report, evaluator)
        self._ops = {op.name: op for op in graph.ops}

    def read(self, declaration: ast.Template | ast.Plan) -> GraphChoice:
        """Read a schedule."""
        if isinstance(declaration, ast.Template):
            message = f"{self._graph.name} is a graph of {len(self._ops)} ops, whose schedule is a block"
            raise self._report.fail(Code.MGS116, message, declaration.values[0].span, _EXAMPLE)
        said, failures = _Said(), self._report.num_failures
        for statement in declaration.block.statements:
            with self._report.attempt():
                self._statement(statement, said)
        if self._report.num_failures > failures:
            raise self._report.stop()
        return GraphChoice(
            declaration.name,
            tuple(said.modes.values()),
            said.order,
            tuple(said.streams.items()),
            tuple(said.beside.items()),
            tuple(said.low),
            said.sums_first,
            said.seams,
        )

    def _statement(self, statement: ast.Define | ast.Say, said: _Said) -> None:
        if isinstance(statement, ast.Define):
            if statement.name in GRAPH_SCHEDULE_WORDS:
                known_head(statement, GRAPH_SCHEDULE_WORDS, "a schedule of a graph", self._report)
            span = Span(statement.span.source, statement.span.start, statement.span.start + len(statement.name))
            name = self._op(ast.Name(statement.name, span=span))
            template = ast.Template("schedule", ast.Path((name,)), statement.phrase[0].parts, span=statement.span)
            self._mode(OpMode(name, self._choices.choice(template)), said, statement.span)
            return
        head = known_head(statement, GRAPH_SCHEDULE_WORDS, "a schedule of a graph", self._report)
        if head in said.seen and head not in ("apart", "stream", "beside"):
            raise self._report.fail(Code.MGS206, f"{head} is said twice", statement.span)
        said.seen.add(head)
        words = Words(statement.phrase, self._report)
        words.take(head)
        match head:
            case "apart":
                self._apart(words, said, statement.span)
            case "order":
                said.order = self._distinct(words)
            case "stream":
                number = Property("a stream", NUMBER, Fraction(1), Fraction(MAX_STREAMS - 1), whole=True)
                stream = int(self._numbers.value(number, (words.take("a number"),), self._place).amount)
                said.streams |= dict.fromkeys(self._distinct(words), stream)
            case "beside":
                kernel = self._op(words.take_name("an op with a kernel"))
                said.beside |= dict.fromkeys(self._distinct(words), kernel)
            case "priority":
                self._priority(words, said)
            case _:
                self._seams(words, said)
        words.end()

    def _seams(self, words: Words, said: _Said) -> None:
        name, known = words.take_name("rows or whole"), {seams.value: seams for seams in Seams}
        if name.text not in known:
            hint = did_you_mean(name.text, known) or f"seams are {listing(known)}"
            raise self._report.fail(Code.MGS204, f"unknown seams '{name.text[:40]}'", name.span, hint)
        said.seams = known[name.text]

    def _apart(self, words: Words, said: _Said, span: Span) -> None:
        """Read ``apart dx, xg by dma(7)``; a lone collective is one already, and has the engine."""
        names = self._distinct(words)
        engine = (
            self._choices.engine(words.take("an engine")) if words.take_word("by") else self._choices.default_engine()
        )
        for name in names:
            if self._ops[name].workload.is_collective:
                body = Choice(BASELINE.name, self._choices.num_ranks, engine)
                self._mode(OpMode(name, body), said, span)
            else:
                self._mode(OpMode(name, apart=engine), said, span)

    def _mode(self, mode: OpMode, said: _Said, span: Span) -> None:
        if mode.op in said.modes:
            raise self._report.fail(Code.MGS206, f"how {mode.op} is carried out is said twice", span)
        said.modes[mode.op] = mode

    def _priority(self, words: Words, said: _Said) -> None:
        """Read ``priority sums, d_w low``."""
        while True:
            if words.take_word("sums"):
                said.sums_first = True
            else:
                name = self._op(words.take_name("sums, or an op"))
                if words.take_word("low") is None:
                    hint = f"priority sums, {name} low"
                    raise self._report.fail(Code.MGS116, "'low' is missing", words.span, hint)
                said.low[name] = None
            if not words.skip_comma():
                return

    def _distinct(self, words: Words) -> tuple[str, ...]:
        """Names of ops, each once."""
        found: dict[str, None] = {}
        for value in words.take_list("an op"):
            if not isinstance(value, ast.Name):
                raise self._report.fail(Code.MGS116, "the name of an op is expected here", value.span)
            name = self._op(value)
            if name in found:
                raise self._report.fail(Code.MGS206, f"{name} is listed twice", value.span)
            found[name] = None
        return tuple(found)

    def _op(self, name: ast.Name) -> str:
        if name.text not in self._ops:
            part_of = {tensor: op for tensor, op, _ in self._graph.results}
            inside = f"{name.text} is made inside {part_of[name.text]}" if name.text in part_of else ""
            hint = inside or did_you_mean(name.text, self._ops) or f"ops are {listing(self._ops)}"
            raise self._report.fail(Code.MGS203, f"unknown op '{name.text[:64]}'", name.span, hint)
        return name.text


def check_graph_schedules(
    scope: Scope, graphs: tuple[GraphScenario, ...], report: Report, *, as_written: bool
) -> tuple[GraphScenario, ...]:
    """Report what is wrong with the schedules of graphs, and keep those that can be carried out.

    ``as_written`` is as in ``check_schedules``.
    """
    sound, say = Soundness(scope, report), report.error if as_written else report.warn
    places = {entry.name: entry.declaration for entry in scope.of_kind(Kind.SCHEDULE)}
    kept = []
    for one in graphs:
        legal = []
        for choice in one.schedules:
            declaration = places[choice.name]
            assert isinstance(declaration, ast.Plan), "a schedule of a graph is a block"
            if not sound.of_name(choice.name):
                continue
            try:
                build_graph_plan(one.system, one.graph, choice)
                legal.append(choice)
            except GraphPlanError as error:
                unfit = error.rejection
                message = unfit.message if as_written else f"{choice.name} is left out: {unfit.message}"
                say(unfit.code, message, _place(declaration, error.at), unfit.hint)
        kept.append(replace(one, schedules=tuple(legal)))
    return tuple(kept)


def _place(declaration: ast.Plan, at: str) -> Span:
    """The statement that defines the op ``at``, begins with that word or names it; else the head of the schedule."""
    for statement in declaration.block.statements:
        if isinstance(statement, ast.Define) and statement.name == at:
            return statement.span
    for statement in declaration.block.statements:
        names = (part for group in statement.phrase for part in group.parts if isinstance(part, ast.Name))
        if isinstance(statement, ast.Say) and any(name.text == at for name in names):
            return statement.span
    return declaration.workload.span
