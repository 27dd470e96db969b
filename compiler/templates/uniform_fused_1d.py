"""uniform_fused_1d: slices of rows from every rank at once, own included, one kernel per step over all of them.

FiCCO (arXiv 2512.10236) names the family: uniform (every step does equal work), fused (one kernel a step), 1D (rows).
"""

from collections.abc import Iterator

from ..scenario import Pattern
from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of


def build(problem: Problem) -> Iterator[Step]:
    """Step i moves row slice i of each shard over all links and computes row slice i of every shard."""
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        names = [f"x{step}_{peer}" for peer in problem.peers]
        landed = tuple(signal_of(name) for name in names)
        blocks = tuple(problem.tiles(owner, rows) for owner in range(problem.num_ranks))
        group, gathers = f"g{step}", problem.pattern is Pattern.AG_GEMM
        compute = TileGroup(group, blocks, problem.all_inner, landed if gathers else ())
        if not gathers:
            yield compute
        for name, peer in zip(names, problem.peers, strict=True):
            yield put(name, problem.block(0 if gathers else peer, rows), peer, () if gathers else (group,))
        if gathers:
            yield compute
        else:
            yield Reduction(f"r{step}", problem.block(0, rows), problem.num_ranks, (group, *landed), stream=1)


TEMPLATE = Template("uniform_fused_1d", Cut.ROWS, True, 2, OVERLAPPED_PATTERNS, build)
