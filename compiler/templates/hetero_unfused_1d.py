"""hetero_unfused_1d: every slice is its own kernel, on several streams; finest start, smallest kernels.

Own shard as in hetero_fused_1d (FiCCO, arXiv 2512.10236). With one stream the small kernels leave most SMs idle, so
the number of streams decides whether this pays.
"""

from collections.abc import Iterator

from ..scenario import Pattern
from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of


def build(problem: Problem) -> Iterator[Step]:
    """A kernel per (step, peer), dealt to the streams in turn."""
    yield from _gather(problem) if problem.pattern is Pattern.AG_GEMM else _scatter(problem)


def _pieces(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """(step, peer, stream), peers innermost."""
    for index in range(problem.pieces * (problem.num_ranks - 1)):
        step, peer = divmod(index, problem.num_ranks - 1)
        yield step, peer + 1, index % problem.streams


def _gather(problem: Problem) -> Iterator[Step]:
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step, peer, stream in _pieces(problem):
        name, rows = f"x{step}_{peer}", problem.row_piece(step)
        yield put(name, problem.block(0, rows), peer)
        tiles = (problem.tiles(-peer, rows),)
        yield TileGroup(f"g{step}_{peer}", tiles, problem.all_inner, (signal_of(name),), stream)


def _scatter(problem: Problem) -> Iterator[Step]:
    for step, peer, stream in _pieces(problem):
        rows = problem.row_piece(step)
        yield TileGroup(f"g{step}_{peer}", (problem.tiles(peer, rows),), problem.all_inner, (), stream)
        yield put(f"x{step}_{peer}", problem.block(peer, rows), peer, (f"g{step}_{peer}",))
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step in range(problem.pieces):
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        rows = problem.row_piece(step)
        waits = ("own", *landed)
        yield Reduction(f"r{step}", problem.block(0, rows), problem.num_ranks, waits, stream=problem.streams)


TEMPLATE = Template("hetero_unfused_1d", Cut.ROWS, True, 1, OVERLAPPED_PATTERNS, build, default_streams=4)
