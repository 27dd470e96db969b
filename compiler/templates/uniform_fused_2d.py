"""uniform_fused_2d: slices of columns, so that every kernel keeps all rows.

For a GEMM after a collective the slices divide the inner dimension and each kernel adds to the output of the one
before, which costs reading it back; it pays where M is small against K (FiCCO, arXiv 2512.10236). For attention after a
collective they divide heads, and where the kernel comes first the output's columns: there nothing is added.

Per rank p kernels and p (n - 1) transfers, twice as many for GEMM+AR. It needs two pieces or more, and columns of the
moved tensor that divide into p pieces of a multiple of 64, or of whole heads of keys.
"""

from collections.abc import Iterator

from ..collectives import signal_of
from ..ir import Adds, IndexRange, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, summed


def build(problem: TemplateInput) -> Iterator[Step]:
    """Step i moves column slice i of whole shards over all links and computes with it."""
    yield from _scatter(problem) if problem.pattern.produces else _gather(problem)


def _gather(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        inner = problem.col_piece(step)
        fetches = problem.fetches(f"x{step}_", cols=inner, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        span = IndexRange(inner.start, inner.stop)
        adds = problem.cutting.adds in (Adds.COLUMNS, Adds.BLOCKS) and step > 0
        yield TileGroup(f"g{step}", problem.all_gathered(), span, arrived, accumulate=adds)


def _scatter(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        cols = problem.col_piece(step)
        yield TileGroup(f"g{step}", problem.all_gathered(cols=cols), problem.all_inner)
        yield from problem.sends(f"x{step}_", (f"g{step}",), cols=cols)
        arrived = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        waits, mine = (f"g{step}", *arrived), problem.block(0, cols=cols)
        yield from summed(problem, f"{step}", mine, waits, stream=1)


TEMPLATE = Template(
    "uniform_fused_2d", Cut.COLUMNS, True, 2, OVERLAPPED_PATTERNS, build, knobs=("order", "depth"), any_engine=True
)
