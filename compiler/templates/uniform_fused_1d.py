"""uniform_fused_1d: slices of rows from every rank at once, own included, one kernel per step over all of them.

FiCCO (arXiv 2512.10236) names the family: uniform (every step does equal work), fused (one kernel a step), 1D (rows).
"""

from collections.abc import Iterator

from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of, spread


def build(problem: Problem) -> Iterator[Step]:
    """Step i moves row slice i of each shard over all links and computes row slice i of every shard."""
    yield from _scatter(problem) if problem.pattern.sums else _gather(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step)
        yield from (fetch.transfer for fetch in fetches)
        landed = tuple(fetch.transfer.signal for fetch in fetches)
        yield TileGroup(f"g{step}", problem.all_gathered(step), problem.all_inner, landed)


def _scatter(problem: Problem) -> Iterator[Step]:
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        names = [f"x{step}_{peer}" for peer in problem.peers]
        landed = tuple(signal_of(name) for name in names)
        blocks = tuple(problem.tiles(owner, rows) for owner in range(problem.num_ranks))
        group, mine = f"g{step}", problem.block(0, rows)
        yield TileGroup(group, blocks, problem.all_inner)
        for name, peer in zip(names, problem.peers, strict=True):
            yield put(name, problem.block(peer, rows), peer, (group,))
        yield Reduction(f"r{step}", mine, problem.num_ranks, (group, *landed), stream=1)
        yield from spread(problem, f"y{step}", mine, f"r{step}")


TEMPLATE = Template("uniform_fused_1d", Cut.ROWS, True, 2, OVERLAPPED_PATTERNS, build)
