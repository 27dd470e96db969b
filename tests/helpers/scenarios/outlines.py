"""Random outlines, and outlines read from their text."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    Pattern,
    PeerOrder,
    Wait,
    WaitPer,
)
from magus.compiler.outline.outline import By, Grouping, KernelGroup, Ordering, Outline, Split, SplitAxis, Sums, Turn
from magus.compiler.resolve.schedules.outline import OutlineReader
from magus.compiler.resolve.schedules.schedule import ChoiceReader
from magus.compiler.resolve.values.evaluate import ExpressionEvaluator, Place, Reading
from magus.compiler.text import syntax as ast
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.names import Scope
from magus.compiler.text.parsing.parse import parse_file
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather, lone_scatter

DMA3, SM8 = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8)
ROWS, COLS = 96, 256


def read(scenario: OpCase, text: str) -> Outline:
    """The outline that ``schedule NAME for WORKLOAD { ... }`` says."""
    report = Report()
    (plan,) = parse_file(Source("<text>", text), report).declarations
    assert isinstance(plan, ast.PlanNode)
    reading = Reading(Place(Scope()), ExpressionEvaluator(report, {}), report)
    outline = OutlineReader(scenario.system, ChoiceReader(scenario.system, reading), reading).read(plan)
    assert not report.diagnostics
    return outline


def scenarios() -> tuple[OpCase, ...]:
    """Small scenarios of all patterns that move a tensor: 4 shards of 96 rows and 256 columns, once 3 of them."""
    gather, scatter = (
        (ag_gemm(ranks * ROWS, 512, COLS, ranks=ranks) for ranks in (4, 3)),
        gemm_rs(4 * ROWS, COLS, 512, ranks=4),
    )
    found = [*gather, scatter, lone_gather(4 * ROWS, COLS, ranks=4), lone_scatter(4 * ROWS, COLS, ranks=4)]
    alike = {
        Pattern.AG_GEMM: (Pattern.A2A_GEMM,),
        Pattern.GEMM_RS: (Pattern.GEMM_AR, Pattern.GEMM_A2A),
        Pattern.REDUCE_SCATTER: (Pattern.ALL_REDUCE, Pattern.ALL_TO_ALL, Pattern.BROADCAST, Pattern.SEND_RECV),
    }
    more = [
        replace(each, shape=replace(each.shape, pattern=pattern))
        for each in found
        for pattern in alike.get(each.shape.pattern, ())
    ]
    uneven = replace(more[0], shape=replace(more[0].shape, split=(192, 96, 0, 96)))
    return (*found, *more, uneven)


@st.composite
def splits(draw: st.DrawFn, whole: bool = True) -> Split:
    """Cuts of 96 rows or 256 columns; those that are not ``whole`` may not add up."""
    axis = draw(st.sampled_from(SplitAxis))
    if axis is SplitAxis.SHARDS:
        return Split()
    size, step = (ROWS, 1) if axis is SplitAxis.ROWS else (COLS, 64)
    if not whole:
        size += draw(st.sampled_from((0, 0, -step, 7)))
    kind = draw(st.sampled_from(("into", "at", "sizes")))
    if kind == "into":
        parts = draw(st.sampled_from([n for n in (1, 2, 3, 4, 6) if not whole or size // step % n == 0]))
        return Split(axis, parts)
    places = st.integers(1, max(1, size // step - 1)).map(lambda at: at * step)
    cuts = tuple(sorted(draw(st.sets(places, min_size=1, max_size=4))))
    return Split(axis, len(cuts) + 1, cuts, size if kind == "sizes" else 0)


@st.composite
def own_rows(draw: st.DrawFn, parts: int) -> tuple[int, ...]:
    """96 rows in as many parts, some of which may be none."""
    edges = [0, *sorted(draw(st.lists(st.integers(0, ROWS), min_size=parts - 1, max_size=parts - 1))), ROWS]
    return tuple(high - low for low, high in pairwise(edges))


@st.composite
def groupings(draw: st.DrawFn, parts: int) -> Grouping:
    """Pieces one after the other in batches, or all in one way."""
    alone = draw(st.booleans())
    if draw(st.booleans()):
        return Grouping(alone, draw(st.sampled_from(By)))
    edges = [0, *sorted(draw(st.sets(st.integers(1, max(1, parts - 1)), max_size=3)) & set(range(1, parts))), parts]
    batches = [KernelGroup(low, high - 1, draw(st.sampled_from(By))) for low, high in pairwise(edges)]
    return Grouping(alone, By.PIECE, tuple(draw(st.permutations(batches))))


@st.composite
def orderings(draw: st.DrawFn, parts: int, num_ranks: int, free: bool) -> Ordering:
    """Any order; ``free`` says that peers may come in any."""
    pieces = tuple(draw(st.permutations(range(parts)))) if draw(st.booleans()) else ()
    own = draw(st.none() | st.sampled_from(Turn))
    if not free:
        return Ordering(own, pieces)
    peers = tuple(draw(st.permutations(range(1, num_ranks)))) if draw(st.booleans()) else ()
    peers = () if peers == tuple(range(1, num_ranks)) else peers
    order = (
        PeerOrder.ROTATED
        if peers
        else draw(st.sampled_from((PeerOrder.ROTATED, PeerOrder.REVERSED, PeerOrder.ABSOLUTE)))
    )
    return Ordering(own, pieces, peers, order, draw(st.booleans()))


_seldom = st.integers(0, 4).map(lambda number: number == 4)
_TACTICS = (
    ExecutionOptions(),
    ExecutionOptions(launch=LaunchMode.GRAPH),
    ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE),
)


@st.composite
def outlines(draw: st.DrawFn, num_ranks: int, whole: bool = True) -> Outline:
    """Outlines of which most fit a scenario of ``scenarios``; fewer if they need not be ``whole``."""
    split = draw(splits(whole))
    others = [name for name in ALGORITHM_BY_NAME if name != "direct"]
    algorithm = draw(st.sampled_from(others)) if draw(_seldom) else ""
    free = algorithm in ("", "one_shot")
    tactics, get = draw(st.sampled_from(_TACTICS)), draw(_seldom)
    grouping = draw(groupings(split.parts)) if draw(st.booleans()) else Grouping()
    own = draw(own_rows(split.parts)) if split.axis is SplitAxis.ROWS and draw(_seldom) else ()
    return Outline(
        draw(st.sampled_from((DMA3, SM8))),
        split,
        replace(tactics, direction=Direction.GET) if get else tactics,
        algorithm,
        free and draw(_seldom),
        draw(st.integers(0, 3)) if free and draw(_seldom) else 0,
        draw(st.sampled_from((0, 1, 2))) if get else 0,
        own,
        replace(grouping, own_alone=False) if own else grouping,
        draw(orderings(split.parts, num_ranks, free)) if draw(st.booleans()) else Ordering(),
        draw(st.integers(1, 3)) if draw(st.booleans()) else 1,
        Sums.BEHIND if draw(_seldom) else Sums.PARALLEL,
    )
