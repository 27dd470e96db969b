"""Single steps of a plan that is written out: ``t1 = put x.shard(0) to 1 signal s1``.

Their clauses are a peer, steps and signals that they wait for, a queue; their regions are such as
``xg.shard(2)[0:1024, 0:8192]``, rows and columns inside the row block of rank r+2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...codes import Code
from ...ir import (
    Direction,
    EngineChoice,
    EngineKind,
    IndexRange,
    OpShape,
    Reach,
    Reduction,
    Region,
    Step,
    System,
    TileGroup,
    Transfer,
    inner_size,
    moved_rows,
    tile_cols,
    tile_rows,
)
from ...planning.knobs.engine import reject_loop
from ...planning.staging import reject_reach
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.vocabulary import MAX_EXTENT, MAX_STREAMS, PLAN_ACTIONS, PLAN_CLAUSES
from ..values.evaluate import Reading
from ..values.words import Words, one_of


@dataclass(frozen=True, slots=True)
class Extent:
    """A tensor as a plan sees it: one row block per rank, that of rank r + k of ``rows(k)`` by ``cols``."""

    name: str
    rows: Callable[[int], int]
    cols: int


Expressions = tuple[ast.Expression, ...]


def shards_in(expression: ast.Expression) -> tuple[ast.Name, Expressions, Expressions] | None:
    """The tensor, the shards and the subscripts of ``x.shard(1, 2)[0:64]``; None of anything else."""
    base, subscripts = expression, Expressions()
    if isinstance(expression, ast.Index):
        base, subscripts = expression.base, expression.subscripts
    match base:
        case ast.Call(function=ast.Member(base=ast.Name() as tensor, name="shard"), arguments=arguments):
            shards = tuple(each.values[0] for each in arguments if each.name is None and len(each.values) == 1)
            return (tensor, shards, subscripts) if arguments and len(shards) == len(arguments) else None
    return None


def shard_in(expression: ast.Expression) -> tuple[ast.Name, ast.Expression, Expressions] | None:
    """The same of one shard, ``x.shard(1)[0:64]``; None of anything else."""
    found = shards_in(expression)
    return (found[0], found[1][0], found[2]) if found is not None and len(found[1]) == 1 else None


class RegionReader:
    """Reads numbers, slices and regions on a system of ``num_ranks`` ranks."""

    def __init__(self, num_ranks: int, reading: Reading) -> None:
        self.num_ranks, self.reading, self._report = num_ranks, reading, reading.report

    def relative(self, expression: ast.Expression, what: str, itself: bool) -> int:
        """Evaluate a rank relative to this one, which ``itself`` allows to be 0; negative ones count backwards."""
        value = self.reading.value(expression).amount
        ranks = self.num_ranks
        if value.denominator != 1 or not -ranks < value < ranks:
            message = f"{what} is from 0 to {ranks - 1}, counted from this rank; got {expression.span.text}"
            raise self._report.fail(Code.MGS504, message, expression.span)
        if value == 0 and not itself:
            hint = "1 is the next rank, -1 the one before"
            raise self._report.fail(Code.MGS504, f"{what} 0 is this rank itself", expression.span, hint)
        return int(value) % ranks

    def slice(self, expression: ast.Expression, what: str, size: int) -> IndexRange:
        """Read ``start:stop`` inside ``size``."""
        if not isinstance(expression, ast.Slice):
            raise self._report.fail(Code.MGS116, f"{what} are a slice", expression.span, f"for instance 0:{size}")
        ends = (expression.start, expression.stop)
        start, stop = (self.reading.count("an index", 0, MAX_EXTENT, end) for end in ends)
        if start >= stop:
            raise self._report.fail(Code.MGS306, f"the slice {start}:{stop} is empty", expression.span)
        if stop > size:
            raise self._report.fail(
                Code.MGS504, f"{what} {start}:{stop} do not exist, there are {size}", expression.span
            )
        return IndexRange(start, stop)

    def region(self, expression: ast.Expression, extent: Extent) -> Region:
        """Read a region of ``extent``; what is not said is whole."""
        found = shards_in(expression)
        if found is None or len(found[2]) > 2:
            hint = f"for instance {extent.name}.shard(1)[0:{extent.rows(1)}, 0:{extent.cols}]"
            raise self._report.fail(Code.MGS116, "a region of a tensor is expected here", expression.span, hint)
        tensor, shards, subscripts = found
        if tensor.text != extent.name:
            message = f"this step works on {extent.name}, not on '{tensor.text[:64]}'"
            raise self._report.fail(Code.MGS504, message, tensor.span)
        owners = [self.relative(each, "shard", itself=True) for each in shards]
        twice = next((shard for place, shard in enumerate(shards) if owners[place] in owners[:place]), None)
        if twice is not None:
            raise self._report.fail(Code.MGS504, "this shard is named twice", twice.span)
        sizes = {extent.rows(owner) for owner in owners}
        rows, cols = IndexRange(0, min(sizes)), IndexRange(0, extent.cols)
        if subscripts:
            rows = self.slice(subscripts[0], "rows", min(sizes))
        elif len(sizes) > 1:
            hint = f"for instance [0:{min(sizes)}]"
            raise self._report.fail(Code.MGS504, "these shards differ in their rows", expression.span, hint)
        if len(subscripts) > 1:
            cols = self.slice(subscripts[1], "columns", extent.cols)
        return Region(owners[0], rows, cols, tuple(owners[1:]))


@dataclass(slots=True)
class Clauses:
    """The clauses of one step, with the default of each."""

    rank: int | None = None
    origin: int = 0
    reach: Reach = Reach.PEER
    signal: str = ""
    after: tuple[str, ...] = ()
    lane: int | None = None
    stream: int = 0
    k: tuple[IndexRange, ...] = ()
    parts: int | None = None
    peer_after: tuple[str, ...] = ()
    flags: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


class ClauseReader:
    """Reads the clauses of all steps of one plan, and keeps the names that steps and signals have."""

    def __init__(self, engine: EngineChoice, regions: RegionReader, report: Report) -> None:
        self._engine, self._regions, self._report = engine, regions, report
        self._count = regions.reading.count
        self._waits: list[tuple[str, Span, dict[str, Span]]] = []
        self._names: dict[str, Span] = {}
        self._of_any_rank: dict[str, Span] = {}
        self._signals: dict[str, Span] = {}
        self._by_rank = False

    def begin_rank(self) -> None:
        """Begin the steps of another rank: names start anew, but a signal that one rank sets arrives at another."""
        self._names, self._by_rank = {}, True

    def read(self, action: str, words: Words, statement: ast.Define, override: bool, inner: int = 0) -> Clauses:
        """Read what is left of ``statement``, a step that does ``action``; ``inner`` is the size that k cuts."""
        said, known = Clauses(), PLAN_CLAUSES[action]
        while word := words.take_word(*known):
            self._report.once(word, said.seen, statement.span)
            self._clause(word, words, said, override, inner)
        words.end(known)
        return said

    def _clause(self, word: str, words: Words, said: Clauses, override: bool, inner: int) -> None:
        match word:
            case "to" | "from" if words.take_word("all"):
                said.rank, said.reach = 0, Reach.ALL
            case "to" | "from":
                said.rank = self._regions.relative(words.take("a rank"), "a peer", itself=False)
            case "of":
                said.origin = self._regions.relative(words.take("a rank"), "an origin", itself=False)
            case "signal":
                signal = words.take_name("a signal")
                self._signals[signal.text] = signal.span
                # Ranks may set signals of one name at each other; that no two arrive at one rank is checked later.
                if not self._by_rank and (not override or signal.text not in self._names):
                    self.name(signal.text, signal.span)
                said.signal = signal.text
            case "after":
                said.after = tuple([self._wait(each, self._names) for each in words.take_list("a step or a signal")])
            case "peer_after":
                waits = words.take_list("a step or a signal")
                said.peer_after = tuple([self._wait(each, self._of_any_rank) for each in waits])
            case "lane":
                said.lane = self._lane(words.take("a number"))
            case "stream":
                said.stream = self._count("a stream", 0, MAX_STREAMS - 1, words.take("a number"))
            case "k":
                said.k = tuple([self._regions.slice(each, "k", inner) for each in words.take_list("a slice")])
            case "parts":
                said.parts = self._count("parts", 2, self._regions.num_ranks, words.take("a number"))
            case _:
                said.flags.add(word)

    def _lane(self, expression: ast.Expression) -> int:
        lane = self._count("a lane", 0, 1 << 20, expression)
        if lane >= self._engine.count:
            message = f"lane {lane} does not exist: {self._engine} has lanes 0 to {self._engine.count - 1}"
            raise self._report.fail(Code.MGS401, message, expression.span)
        return lane

    def name(self, name: str, span: Span) -> None:
        """Note the name of a step or a signal, which is new."""
        if name in self._names:
            hint = f"the first is on line {self._names[name].location.line}"
            raise self._report.fail(Code.MGS206, f"'{name}' is defined twice", span, hint)
        self._names[name] = self._of_any_rank[name] = span

    def _wait(self, expression: ast.Expression, names: dict[str, Span]) -> str:
        if not isinstance(expression, ast.Name):
            raise self._report.fail(Code.MGS116, "a step or a signal is expected here", expression.span)
        self._waits.append((expression.text, expression.span, names))
        return expression.text

    def check_waits(self) -> None:
        """Report waits for what the plan does not do."""
        for name, span, names in self._waits:
            known = {**names, **self._signals}
            if name not in known:
                hint = did_you_mean(name, known) or "after names steps of this plan and their signals"
                self._report.error(Code.MGS502, f"nobody does '{name[:64]}'", span, hint)


class StepReader:
    """Reads the steps of one plan, whose transfers ``engine`` makes."""

    def __init__(
        self, system: System, shape: OpShape, engine: EngineChoice, regions: RegionReader, report: Report
    ) -> None:
        self._system, self._workload, self._engine, self._report = system, shape, engine, report
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
        match one_of(PLAN_ACTIONS, action, "step", self._report, f"a step is one of {listing(PLAN_ACTIONS)}"):
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
        source = said.rank if direction is Direction.GET else said.origin
        extent = Extent(moved.name, lambda owner: moved_rows(workload, ranks, owner, source), moved.cols)
        region = self._regions.region(where, extent)
        reduce = "reduce" in said.flags
        self._check_switched(statement, direction, said, reduce)
        self._report.require(reject_loop(self._engine, direction), statement.span)
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
            said.origin,
            said.peer_after,
        )

    def _check_switched(self, statement: ast.Define, direction: Direction, said: Clauses, reduce: bool) -> None:
        """A switch copies what is put to all, and sums what is got from all."""
        if said.reach is Reach.PEER:
            return
        sums = direction is Direction.GET
        if sums is not reduce:
            message = "a get from all is a sum: reduce" if sums else "a put to all copies and cannot reduce"
            raise self._report.fail(Code.MGS504, message, statement.span)
        self._report.require(reject_reach(self._system, sums=sums), statement.span)

    def _tiles(self, statement: ast.Define, words: Words) -> TileGroup:
        if not self._workload.num_kernels:
            raise self._report.fail(Code.MGS504, f"{self._workload.name} computes nothing", statement.span)
        written, ranks, then = words.take_list("a region"), self._system.num_ranks, self._workload.then
        # Of two kernels a region says which it is by the name of its tensor.
        found = shards_in(written[0])
        tensor = found[0].text if found is not None else ""
        kernel = int(then is not None and tensor == then.output)
        if then is not None and tensor not in ("", self._workload.output, then.output):
            message = f"a kernel computes {self._workload.output} or {then.output}, not '{tensor[:64]}'"
            raise self._report.fail(Code.MGS504, message, written[0].span)
        workload = self._workload.stage(kernel)
        extent = Extent(workload.output, lambda owner: tile_rows(workload, ranks, owner), tile_cols(workload))
        regions = tuple([one for each in written for one in self._regions.region(each, extent).each])
        inner = inner_size(workload)
        said = self.clauses.read("compute", words, statement, override=False, inner=inner)
        first, *more = said.k or (IndexRange(0, inner),)
        adds = "accumulate" in said.flags
        return TileGroup(statement.name, regions, first, said.after, said.stream, adds, kernel, tuple(more))

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
