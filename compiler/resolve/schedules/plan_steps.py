"""Single steps of a plan that is written out: ``t1 = put x.shard(0) to 1 signal s1``."""

from ...codes import Code
from ...ir import (
    Direction,
    EngineChoice,
    EngineKind,
    IndexRange,
    Reach,
    Reduction,
    Step,
    System,
    TileGroup,
    Transfer,
    Workload,
    inner_size,
    moved_rows,
    tile_cols,
    tile_rows,
)
from ...planning.reach import reject_reach
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.vocabulary import PLAN_ACTIONS
from ..values.sentences import Words
from .plan_clauses import ClauseReader, Clauses
from .regions import Extent, RegionReader


class StepReader:
    """Reads the steps of one plan, whose transfers ``engine`` makes."""

    def __init__(
        self, system: System, workload: Workload, engine: EngineChoice, regions: RegionReader, report: Report
    ) -> None:
        self._system, self._workload, self._engine, self._report = system, workload, engine, report
        self._regions = regions
        self.clauses = ClauseReader(engine, regions, report)

    def at(self, rank: int) -> None:
        """Read the steps of an absolute rank from now on."""
        self._workload = self._workload.at(rank)

    def read(self, statement: ast.Define, override: bool = False) -> Step:
        """Read one step; one that replaces another keeps its name."""
        if not override:
            self.clauses.name(statement.name, statement.span)
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
        said = self.clauses.read(direction.value, words, statement, override)
        side = "to" if direction is Direction.PUT else "from"
        if said.rank is None or not said.signal:
            missing = side if said.rank is None else "signal"
            hint = f"{direction.value} {moved.name}.shard(0) {side} 1 signal s1"
            raise self._report.fail(Code.MGS209, f"a {direction.value} says '{missing}'", statement.span, hint)
        source = said.rank if direction is Direction.GET else 0
        extent = Extent(moved.name, lambda owner: moved_rows(workload, ranks, owner, source), moved.cols)
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
        unfit = reject_reach(self._system, sums=sums)
        if unfit is not None:
            raise self._report.fail(unfit.code, unfit.message, statement.span, unfit.hint)

    def _tiles(self, statement: ast.Define, words: Words) -> TileGroup:
        if not self._workload.num_kernels:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} computes nothing", statement.span)
        written, ranks, then = words.take_list("a region"), self._system.num_ranks, self._workload.then
        # Of two kernels a region says which it is by the name of its tensor.
        tensor = self._regions.tensor_of(written[0])
        kernel = int(then is not None and tensor == then.output)
        if then is not None and tensor not in ("", self._workload.output, then.output):
            message = f"a kernel computes {self._workload.output} or {then.output}, not '{tensor[:64]}'"
            raise self._report.fail(Code.MGS504, message, written[0].span)
        workload = self._workload.stage(kernel)
        extent = Extent(workload.output, lambda owner: tile_rows(workload, ranks, owner), tile_cols(workload))
        regions = tuple([self._regions.region(each, extent) for each in written])
        inner = inner_size(workload)
        said = self.clauses.read("compute", words, statement, override=False, inner=inner)
        k, accumulates = said.k or IndexRange(0, inner), "accumulate" in said.flags
        return TileGroup(statement.name, regions, k, said.after, said.stream, accumulates, kernel)

    def _reduction(self, statement: ast.Define, words: Words) -> Reduction:
        moved = self._workload.moved
        if moved is None or not self._workload.pattern.sums:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} reduces nothing", statement.span)
        workload, ranks = self._workload, self._system.num_ranks
        extent = Extent(moved.name, lambda owner: moved_rows(workload, ranks, owner), moved.cols)
        region = self._regions.region(words.take("a region"), extent)
        said = self.clauses.read("reduce", words, statement, override=False)
        parts = said.parts if said.parts is not None else self._system.num_ranks
        return Reduction(statement.name, region, parts, said.after, said.stream)
