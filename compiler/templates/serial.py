"""serial and bulk: the whole kernel and the whole collective, one after the other or side by side.

``serial`` is the baseline, and often the answer. Per rank one kernel and the transfers of its algorithm, in one piece
(the table in docs/schedules.md). It schedules every pattern, and is illegal only where the algorithm is.

``bulk`` begins with a kernel and a collective that need nothing of each other together; they share what the machine
has. It cuts the transfers into p pieces, and is for the ``||`` patterns alone. So FSDP prefetches the weights of the
next layer.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..collectives import signal_of
from ..ir import Adds, IndexRange, Pattern, Region, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, on_either_side, summed
from .collective import DEFAULT_ALGORITHM, collective_in, emit, period


def build(problem: TemplateInput) -> Iterator[Step]:
    """The collective by its algorithm, with one kernel before or after it where there is a kernel."""
    pattern = problem.pattern
    if collective_in(pattern) is pattern:
        yield from emit(problem).steps
    elif pattern.consumes:
        moved = emit(problem)
        yield from moved.steps
        yield kernel(problem, moved.all_done)
    else:
        yield kernel(problem)
        if collective_in(pattern) is not None:
            steps = emit(problem, lambda block, piece: ("g0",)).steps
            # A block to pass on may arrive before the own kernel is done, and does not depend on it.
            yield from map(_after_kernel, steps) if pattern.independent else steps


def _after_kernel(step: Step) -> Step:
    return step if "g0" in step.after else replace(step, after=(*step.after, "g0"))


def kernel(problem: TemplateInput, after: tuple[str, ...] = ()) -> TileGroup:
    """The whole compute of a rank as one kernel."""
    if problem.pattern.independent:
        regions: tuple[Region, ...] = (problem.tiles(0, IndexRange(0, problem.output_rows)),)
    elif problem.pattern is Pattern.KERNEL:
        regions = (Region(0, IndexRange(0, 1), IndexRange(0, 1)),)
    else:
        regions = problem.all_gathered()
    inner = IndexRange(0, 1) if problem.pattern is Pattern.KERNEL else problem.all_inner
    return TileGroup("g0", regions, inner, after)


def _period(problem: TemplateInput) -> int:
    return 1 if collective_in(problem.pattern) is None else period(problem)


SERIAL = Template(
    "serial",
    Cut.SHARD,
    overlaps=False,
    min_pieces=1,
    patterns=tuple(Pattern),
    build=build,
    period=_period,
    knobs=("algorithm",),
    default_algorithm=DEFAULT_ALGORITHM,
    words=("all data first, then the kernel", "the kernel first, then all data"),
)


def bulk(problem: TemplateInput) -> Iterator[Step]:
    """One kernel, and the transfers of the collective beside it."""
    yield kernel(problem)
    yield from emit(problem).steps


BULK = Template(
    "bulk",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=tuple(pattern for pattern in Pattern if pattern.independent),
    build=bulk,
    period=period,
    knobs=("algorithm",),
    default_algorithm=DEFAULT_ALGORITHM,
    default_pieces=1,
    explored=False,
    words=("the kernel and the collective side by side",) * 2,
)


# uniform_fused_1d and uniform_fused_2d: every step moves a slice, of rows or of columns, over all links and computes
# with it in one kernel.
#
# FiCCO (arXiv 2512.10236) names the family: uniform (every step does equal work), fused (one kernel a step), 1D (rows)
# or 2D (columns, so that every kernel keeps all rows). Per rank there are p kernels and p (n - 1) transfers, twice as
# many for GEMM+AR, with two pieces or more.
#
# - rows: they take the own slice with those of all others, and need rows of a shard that divide by p and a kernel whose
#   rows do without each other (not attention behind an all_to_all).
# - columns: for a GEMM after a collective the slices divide the inner dimension and each kernel adds to the output of
#   the one before, which costs reading it back; it pays where M is small against K. For attention after a collective
#   they divide heads, and where the kernel comes first the output's columns: there nothing is added. They need columns
#   of the moved tensor that divide into p pieces of a multiple of 64, or of whole heads of keys.


def _gather_rows(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        adds = problem.adds_rows and step > 0
        blocks = problem.all_gathered(step)
        if blocks:
            yield TileGroup(f"g{step}", blocks, problem.all_inner, arrived, accumulate=adds)


def _scatter_rows(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        group, blocks = f"g{step}", problem.all_gathered(step)
        if blocks:
            yield TileGroup(group, blocks, problem.all_inner)
        sent = problem.sends(f"x{step}_", (group,), step)
        yield from sent
        mine, arrived = problem.block(0, problem.row_piece(step)), tuple(each.signal for each in sent)
        yield from summed(problem, f"{step}", mine, (group, *arrived), stream=1)


ROWS = Template(
    "uniform_fused_1d",
    Cut.ROWS,
    overlaps=True,
    min_pieces=2,
    patterns=OVERLAPPED_PATTERNS,
    build=on_either_side(_gather_rows, _scatter_rows),
    knobs=("order", "depth"),
    rows_from_all_ranks=True,
    any_engine=True,
    words=("{rounds}, each over some rows of every rank",) * 2,
)


def _gather_columns(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        inner = problem.col_piece(step)
        fetches = problem.fetches(f"x{step}_", cols=inner, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        span = IndexRange(inner.start, inner.stop)
        adds = problem.cutting.adds in (Adds.COLUMNS, Adds.BLOCKS) and step > 0
        yield TileGroup(f"g{step}", problem.all_gathered(), span, arrived, accumulate=adds)


def _scatter_columns(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        cols = problem.col_piece(step)
        yield TileGroup(f"g{step}", problem.all_gathered(cols=cols), problem.all_inner)
        yield from problem.sends(f"x{step}_", (f"g{step}",), cols=cols)
        arrived = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        waits, mine = (f"g{step}", *arrived), problem.block(0, cols=cols)
        yield from summed(problem, f"{step}", mine, waits, stream=1)


COLUMNS = Template(
    "uniform_fused_2d",
    Cut.COLUMNS,
    True,
    2,
    OVERLAPPED_PATTERNS,
    on_either_side(_gather_columns, _scatter_columns),
    knobs=("order", "depth"),
    any_engine=True,
    words=("{rounds}, each over some columns of all rows",) * 2,
)
