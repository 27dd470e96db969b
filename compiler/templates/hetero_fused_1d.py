"""hetero_fused_1d: the own shard is one kernel that needs no transfer; the steps are over remote slices alone.

For AG+GEMM and A2A+GEMM it hides the first transfers, for GEMM+RS and GEMM+AR those of the last parts (FiCCO, arXiv
2512.10236).
"""

from collections.abc import Iterator

from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of, spread


def build(problem: Problem) -> Iterator[Step]:
    """Own shard first (what is gathered) or last (what is summed), and one kernel a step over all others' slices."""
    yield from _scatter(problem) if problem.pattern.sums else _gather(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step)
        yield from (fetch.transfer for fetch in fetches)
        landed = tuple(fetch.transfer.signal for fetch in fetches)
        if fetches:
            yield TileGroup(f"g{step}", tuple(fetch.tiles for fetch in fetches), problem.all_inner, landed)


def _scatter(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        yield TileGroup(f"g{step}", tuple(problem.tiles(peer, rows) for peer in problem.peers), problem.all_inner)
        for peer in problem.peers:
            yield put(f"x{step}_{peer}", problem.block(peer, rows), peer, (f"g{step}",))
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step in range(problem.pieces):
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        mine = problem.block(0, problem.row_piece(step))
        yield Reduction(f"r{step}", mine, problem.num_ranks, ("own", *landed), stream=1)
        yield from spread(problem, f"y{step}", mine, f"r{step}")


TEMPLATE = Template("hetero_fused_1d", Cut.ROWS, True, 1, OVERLAPPED_PATTERNS, build)
