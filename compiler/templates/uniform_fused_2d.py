"""uniform_fused_2d: slices of columns, so that every kernel keeps all rows.

For AG+GEMM and A2A+GEMM the slices divide the inner dimension and each kernel adds to the output of the one before,
which costs reading it back; it pays where M is small against K (FiCCO, arXiv 2512.10236). For GEMM+RS and GEMM+AR they
divide the output's columns, where nothing is added.
"""

from collections.abc import Iterator

from ..schedule import Reduction, Span, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of, spread


def build(problem: Problem) -> Iterator[Step]:
    """Step i moves column slice i of whole shards over all links and computes with it."""
    yield from _scatter(problem) if problem.pattern.sums else _gather(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        inner = problem.col_piece(step)
        fetches = problem.fetches(f"x{step}_", cols=inner)
        yield from (fetch.transfer for fetch in fetches)
        landed = tuple(fetch.transfer.signal for fetch in fetches)
        span = Span(inner.start, inner.stop)
        yield TileGroup(f"g{step}", problem.all_gathered(), span, landed, accumulate=step > 0)


def _scatter(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        cols = problem.col_piece(step)
        blocks = tuple(problem.tiles(owner, cols=cols) for owner in range(problem.num_ranks))
        yield TileGroup(f"g{step}", blocks, problem.all_inner)
        for peer in problem.peers:
            yield put(f"x{step}_{peer}", problem.block(peer, cols=cols), peer, (f"g{step}",))
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        waits, mine = (f"g{step}", *landed), problem.block(0, cols=cols)
        yield Reduction(f"r{step}", mine, problem.num_ranks, waits, stream=1)
        yield from spread(problem, f"y{step}", mine, f"r{step}")


TEMPLATE = Template("uniform_fused_2d", Cut.COLUMNS, True, 2, OVERLAPPED_PATTERNS, build)
