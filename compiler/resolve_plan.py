"""Plans written out: every transfer, every group of tiles, and what each waits for.

Here a plan is read and its names are checked. Whether it moves every byte that is needed, and whether its waits can
end, is checked where plans are lowered.
"""

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .extents import inner_size, moved_rows, tile_cols, tile_rows
from .phrases import Words, head_of, known_head
from .plan_clauses import ClauseReader, Clauses
from .regions import Extent, RegionReader
from .resolve_schedule import ChoiceReader
from .scenario import System, Workload
from .schedule import (
    Direction,
    EngineChoice,
    EngineKind,
    Override,
    Plan,
    Reach,
    Reduction,
    Span,
    Step,
    Tactics,
    TileGroup,
    Transfer,
)
from .tables import PLAN_ACTIONS, TACTICS
from .tactics import VALUES, tactics_from, why_no_reach, words_of

_WORDS = ("plan", "override")


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
        self._clauses = ClauseReader(workload, self._engine, self._regions, report)

    def read(self, plan: ast.Plan) -> Plan:
        """Return the plan; steps are in the order of the text."""
        statements = plan.block.statements
        self._engine, tactics = self._head(statements, plan)
        self._clauses = ClauseReader(self._workload, self._engine, self._regions, self._report)
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
        self._clauses.check_waits()
        return Plan(self._engine, tuple(steps), tuple(overrides), tactics)

    def _word(self, statement: ast.Say) -> str:
        head = head_of(statement)
        if head is not None and head.text in PLAN_ACTIONS:
            hint = f"t1 = {statement.span.text[:40]}"
            raise self._report.fail(Code.MGS116, "a step has a name", statement.span, hint)
        return known_head(statement, _WORDS, "a plan", self._report)

    def _head(self, statements: tuple[ast.Define | ast.Say, ...], plan: ast.Plan) -> tuple[EngineChoice, Tactics]:
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
            return self._choices.default_engine(), Tactics()
        engine = self._choices.engine(words.take("an engine"))
        return engine, self._tactics(words, first)

    def _tactics(self, words: Words, statement: ast.Say) -> Tactics:
        """Read ``transfer get protocol ll``, in any order."""
        given: dict[str, str] = {}
        while word := words.take_word(*TACTICS):
            if word in given:
                raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
            given[word] = self._choices.word(word, words.take(f"{word} of a plan"), words_of(VALUES[word]))
        words.end(TACTICS)
        return tactics_from(given)

    def _step(self, statement: ast.Define, override: bool) -> Step:
        if not override:
            self._clauses.name(statement.name, statement.span)
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
        workload, ranks = self._workload, self._system.num_ranks
        moved = workload.moved
        if moved is None:
            raise self._report.fail(Code.MGS504, f"{workload.name} moves no tensor", statement.span)
        where = words.take("a region")
        said = self._clauses.read(direction.value, words, statement, override)
        side = "to" if direction is Direction.PUT else "from"
        if said.rank is None or not said.signal:
            missing = side if said.rank is None else "signal"
            hint = f"{direction.value} {moved.name}.shard(0) {side} 1 signal s1"
            raise self._report.fail(Code.MGS209, f"a {direction.value} says '{missing}'", statement.span, hint)
        source = said.rank if direction is Direction.GET else 0
        extent = Extent(moved.name, lambda owner: moved_rows(workload, ranks, owner - source), moved.cols)
        region = self._regions.region(where, extent)
        reduce = "reduce" in said.flags
        self._check_switched(statement, direction, said, reduce)
        if reduce and self._engine.kind is EngineKind.DMA:
            hint = "use 'plan by sm(8)', or a reduce step at the destination"
            raise self._report.fail(Code.MGS403, "a DMA engine cannot reduce", statement.span, hint)
        return Transfer(
            statement.name,
            direction,
            region,
            said.rank,
            said.signal,
            said.after,
            said.lane,
            reduce,
            said.reach,
        )

    def _check_switched(self, statement: ast.Define, direction: Direction, said: Clauses, reduce: bool) -> None:
        """A switch copies what is put to all, and sums what is got from all."""
        if said.reach is Reach.PEER:
            return
        sums = direction is Direction.GET
        if sums is not reduce:
            message = "a get from all is a sum: reduce" if sums else "a put to all copies and cannot reduce"
            raise self._report.fail(Code.MGS504, message, statement.span)
        misfit = why_no_reach(self._system, sums=sums)
        if misfit is not None:
            code, message, hint = misfit
            raise self._report.fail(code, message, statement.span, hint)

    def _tiles(self, statement: ast.Define, words: Words) -> TileGroup:
        workload, ranks = self._workload, self._system.num_ranks
        inner = inner_size(workload)
        if not inner:
            raise self._report.fail(Code.MGS504, f"{workload.name} computes nothing", statement.span)
        extent = Extent(workload.output, lambda owner: tile_rows(workload, ranks, owner), tile_cols(workload))
        regions = tuple([self._regions.region(each, extent) for each in words.take_list("a region")])
        said = self._clauses.read("compute", words, statement, override=False)
        k = said.k or Span(0, inner)
        return TileGroup(statement.name, regions, k, said.after, said.stream, "accumulate" in said.flags)

    def _reduction(self, statement: ast.Define, words: Words) -> Reduction:
        moved = self._workload.moved
        if moved is None or not self._workload.pattern.sums:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} reduces nothing", statement.span)
        rows = moved_rows(self._workload, self._system.num_ranks)
        extent = Extent(moved.name, lambda owner: rows, moved.cols)
        region = self._regions.region(words.take("a region"), extent)
        said = self._clauses.read("reduce", words, statement, override=False)
        parts = said.parts if said.parts is not None else self._system.num_ranks
        return Reduction(statement.name, region, parts, said.after, said.stream)

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
