"""Plans written out: every transfer, every group of tiles, and what each waits for.

Here a plan is read and its names are checked. Whether it moves every byte that is needed, and whether its waits can
end, is checked where plans are lowered.
"""

from dataclasses import dataclass, field

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .phrases import Words, head_of, known_head
from .regions import Extent, RegionReader
from .resolve_schedule import ChoiceReader
from .scenario import System, Workload
from .schedule import Direction, EngineChoice, EngineKind, Override, Plan, Reduction, Span, Step, TileGroup, Transfer
from .source import Span as TextSpan
from .tables import MAX_STREAMS, PLAN_ACTIONS, PLAN_CLAUSES

_WORDS = ("plan", "override")


@dataclass(slots=True)
class _Clauses:
    """The clauses of one step, with the default of each."""

    rank: int | None = None
    signal: str = ""
    after: tuple[str, ...] = ()
    lane: int | None = None
    stream: int = 0
    k: Span | None = None
    parts: int | None = None
    flags: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


class PlanReader:
    """Reads one plan."""

    def __init__(
        self,
        system: System,
        workload: Workload,
        choices: ChoiceReader,
        place: Place,
        evaluator: Evaluator,
        report: Report,
    ) -> None:
        self._system, self._workload, self._choices, self._report = system, workload, choices, report
        self._regions = RegionReader(system.num_ranks, place, evaluator, report)
        self._engine = choices.default_engine()
        self._waits: list[tuple[str, TextSpan]] = []
        self._names: dict[str, TextSpan] = {}

    def read(self, plan: ast.Plan) -> Plan:
        """Return the plan; steps are in the order of the text."""
        statements = plan.block.statements
        self._engine = self._pool(statements, plan)
        steps: list[Step] = []
        overrides: list[Override] = []
        for statement in statements:
            with self._report.attempt():
                if isinstance(statement, ast.Define):
                    steps.append(self._step(statement, override=False))
        by_name = {step.name: step for step in steps}
        for statement in statements:
            with self._report.attempt():
                if isinstance(statement, ast.Say) and self._word(statement) == "override":
                    overrides += self._override(statement, by_name)
        self._check_waits()
        return Plan(self._engine, tuple(steps), tuple(overrides))

    def _word(self, statement: ast.Say) -> str:
        head = head_of(statement)
        if head is not None and head.text in PLAN_ACTIONS:
            hint = f"t1 = {statement.span.text[:40]}"
            raise self._report.fail(Code.MGS116, "a step has a name", statement.span, hint)
        return known_head(statement, _WORDS, "a plan", self._report)

    def _pool(self, statements: tuple[ast.Define | ast.Say, ...], plan: ast.Plan) -> EngineChoice:
        """Read ``plan by dma(7)``, which stands first."""
        first = statements[0] if statements else None
        if not isinstance(first, ast.Say) or self._word(first) != "plan":
            span = first.span if first is not None else plan.span
            raise self._report.fail(Code.MGS116, "a plan begins with its engines", span, "plan by dma(7)")
        for other in statements[1:]:
            if isinstance(other, ast.Say) and head_of(other) == first.phrase[0].parts[0]:
                self._report.error(Code.MGS206, "plan is said twice", other.span)
        words = Words(first.phrase, self._report)
        words.take("plan")
        if not words.take_word("by"):
            words.end(("by",))
            return self._choices.default_engine()
        engine = self._choices.engine(words.take("an engine"))
        words.end()
        return engine

    def _step(self, statement: ast.Define, override: bool) -> Step:
        if not override:
            self._name(statement.name, statement.span)
        words = Words(statement.phrase, self._report)
        action = words.take_name("put, get, compute or reduce")
        if action.text not in PLAN_ACTIONS:
            hint = did_you_mean(action.text, PLAN_ACTIONS) or f"a step is one of {listing(PLAN_ACTIONS)}"
            raise self._report.fail(Code.MGS204, f"unknown step '{action.text[:64]}'", action.span, hint)
        match action.text:
            case "put" | "get":
                return self._transfer(statement, Direction(action.text), words, override)
            case "compute":
                return self._tiles(statement, words)
            case _:
                return self._reduction(statement, words)

    def _transfer(self, statement: ast.Define, direction: Direction, words: Words, override: bool) -> Transfer:
        moved = self._workload.moved
        if moved is None:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} moves no tensor", statement.span)
        extent = Extent(moved.name, moved.rows // self._system.num_ranks, moved.cols)
        region = self._regions.region(words.take("a region"), extent)
        said = self._clauses(direction.value, words, statement, override)
        side = "to" if direction is Direction.PUT else "from"
        if said.rank is None or not said.signal:
            missing = side if said.rank is None else "signal"
            hint = f"{direction.value} {moved.name}.shard(0) {side} 1 signal s1"
            raise self._report.fail(Code.MGS209, f"a {direction.value} says '{missing}'", statement.span, hint)
        reduce = "reduce" in said.flags
        if reduce and self._engine.kind is EngineKind.DMA:
            hint = "use 'plan by sm(8)', or a reduce step at the destination"
            raise self._report.fail(Code.MGS403, "a DMA engine cannot reduce", statement.span, hint)
        return Transfer(statement.name, direction, region, said.rank, said.signal, said.after, said.lane, reduce)

    def _tiles(self, statement: ast.Define, words: Words) -> TileGroup:
        gemm = self._workload.gemm
        if gemm is None:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} computes nothing", statement.span)
        blocks = 1 if self._workload.moved is None else self._system.num_ranks
        extent = Extent(self._workload.output, gemm.m // blocks, gemm.n)
        regions = tuple([self._regions.region(each, extent) for each in words.take_list("a region")])
        said = self._clauses("compute", words, statement, override=False)
        k = said.k or Span(0, gemm.k)
        return TileGroup(statement.name, regions, k, said.after, said.stream, "accumulate" in said.flags)

    def _reduction(self, statement: ast.Define, words: Words) -> Reduction:
        moved = self._workload.moved
        if moved is None or not self._workload.pattern.reduces:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} reduces nothing", statement.span)
        extent = Extent(moved.name, moved.rows // self._system.num_ranks, moved.cols)
        where = words.take("a region")
        region = self._regions.region(where, extent)
        if region.owner:
            raise self._report.fail(Code.MGS504, "a rank reduces its own block", where.span, f"{moved.name}.shard(0)")
        said = self._clauses("reduce", words, statement, override=False)
        parts = said.parts if said.parts is not None else self._system.num_ranks
        return Reduction(statement.name, region, parts, said.after, said.stream)

    def _clauses(self, action: str, words: Words, statement: ast.Define, override: bool) -> _Clauses:
        said, known = _Clauses(), PLAN_CLAUSES[action]
        while word := words.take_word(*known):
            if word in said.seen:
                raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
            said.seen.add(word)
            self._clause(word, words, said, override)
        words.end(known)
        return said

    def _clause(self, word: str, words: Words, said: _Clauses, override: bool) -> None:
        match word:
            case "to" | "from":
                said.rank = self._regions.relative(words.take("a rank"), "a peer", itself=False)
            case "signal":
                signal = words.take_name("a signal")
                if not override or signal.text not in self._names:
                    self._name(signal.text, signal.span)
                said.signal = signal.text
            case "after":
                said.after = tuple([self._wait(each) for each in words.take_list("a step or a signal")])
            case "lane":
                said.lane = self._lane(words.take("a number"))
            case "stream":
                said.stream = self._regions.number(words.take("a number"), "a stream", 0, MAX_STREAMS - 1)
            case "k":
                gemm = self._workload.gemm
                said.k = self._regions.slice(words.take("a slice"), "k", gemm.k if gemm is not None else 0)
            case "parts":
                said.parts = self._regions.number(words.take("a number"), "parts", 2, self._system.num_ranks)
            case _:
                said.flags.add(word)

    def _lane(self, expression: ast.Expression) -> int:
        lane = self._regions.number(expression, "a lane", 0, 1 << 20)
        if lane >= self._engine.count:
            message = f"lane {lane} does not exist: {self._engine} has lanes 0 to {self._engine.count - 1}"
            raise self._report.fail(Code.MGS401, message, expression.span)
        return lane

    def _override(self, statement: ast.Say, steps: dict[str, Step]) -> list[Override]:
        """Read ``override rank 3 { t1 = put ... }``."""
        words = Words(statement.phrase, self._report)
        words.take("override")
        if not words.take_word("rank") or statement.block is None:
            hint = "override rank 3 { t1 = put ... }"
            raise self._report.fail(Code.MGS116, "override says a rank and its steps", statement.span, hint)
        where = words.take("a rank")
        words.end()
        rank = self._regions.number(where, "a rank", 0, 1 << 20)
        if rank >= self._system.num_ranks:
            message = f"rank {rank} does not exist, ranks are 0 to {self._system.num_ranks - 1}"
            raise self._report.fail(Code.MGS504, message, where.span)
        found: dict[str, Override] = {}
        for inner in statement.block.statements:
            with self._report.attempt():
                if not isinstance(inner, ast.Define):
                    raise self._report.fail(Code.MGS116, "override holds steps", inner.span, "t1 = put ...")
                if inner.name not in steps:
                    hint = did_you_mean(inner.name, steps) or f"steps are {listing(steps)}"
                    raise self._report.fail(Code.MGS506, f"the plan has no step '{inner.name[:64]}'", inner.span, hint)
                if inner.name in found:
                    raise self._report.fail(Code.MGS206, f"'{inner.name}' is overridden twice", inner.span)
                found[inner.name] = Override(rank, self._step(inner, override=True))
        return list(found.values())

    def _name(self, name: str, span: TextSpan) -> None:
        if name in self._names:
            hint = f"the first is on line {self._names[name].location.line}"
            raise self._report.fail(Code.MGS206, f"'{name}' is defined twice", span, hint)
        self._names[name] = span

    def _wait(self, expression: ast.Expression) -> str:
        if not isinstance(expression, ast.Name):
            raise self._report.fail(Code.MGS116, "a step or a signal is expected here", expression.span)
        self._waits.append((expression.text, expression.span))
        return expression.text

    def _check_waits(self) -> None:
        for name, span in self._waits:
            if name not in self._names:
                hint = did_you_mean(name, self._names) or "after names steps of this plan and their signals"
                self._report.error(Code.MGS502, f"nobody does '{name[:64]}'", span, hint)
