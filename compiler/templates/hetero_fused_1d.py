"""hetero_fused_1d: the own shard is one kernel that needs no transfer; the steps are over remote slices alone.

For AG+GEMM it hides the first transfers, for GEMM+RS it hides the last ones (FiCCO, arXiv 2512.10236).
"""

from collections.abc import Iterator

from ..scenario import Pattern
from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of


def build(problem: Problem) -> Iterator[Step]:
    """Own shard first (AG+GEMM) or last (GEMM+RS), and one kernel per step over the slices of all other ranks."""
    yield from _gather(problem) if problem.pattern is Pattern.AG_GEMM else _scatter(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        for peer in problem.peers:
            yield put(f"x{step}_{peer}", problem.block(0, rows), peer)
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        blocks = tuple(problem.tiles(-peer, rows) for peer in problem.peers)
        yield TileGroup(f"g{step}", blocks, problem.all_inner, landed)


def _scatter(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        yield TileGroup(f"g{step}", tuple(problem.tiles(peer, rows) for peer in problem.peers), problem.all_inner)
        for peer in problem.peers:
            yield put(f"x{step}_{peer}", problem.block(peer, rows), peer, (f"g{step}",))
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step in range(problem.pieces):
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        rows = problem.row_piece(step)
        yield Reduction(f"r{step}", problem.block(0, rows), problem.num_ranks, ("own", *landed), stream=1)


TEMPLATE = Template("hetero_fused_1d", Cut.ROWS, True, 1, OVERLAPPED_PATTERNS, build)
