"""hetero_unfused_1d: every slice is its own kernel, on several streams; finest start, smallest kernels.

Own shard as in hetero_fused_1d (FiCCO, arXiv 2512.10236). With one stream the small kernels leave most SMs idle, so
the number of streams decides whether this pays.
"""

from collections.abc import Iterator

from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of, spread


def build(problem: Problem) -> Iterator[Step]:
    """A kernel per (step, peer), dealt to the streams in turn."""
    yield from _scatter(problem) if problem.pattern.sums else _gather(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    fetches = [fetch for step in range(problem.pieces) for fetch in problem.fetches(f"x{step}_", step)]
    for index, fetch in enumerate(fetches):
        yield fetch.transfer
        name, landed = "g" + fetch.transfer.name.removeprefix("x"), (fetch.transfer.signal,)
        yield TileGroup(name, (fetch.tiles,), problem.all_inner, landed, index % problem.streams)


def _scatter(problem: Problem) -> Iterator[Step]:
    index = 0
    for step in range(problem.pieces):
        rows = problem.row_piece(step)
        for peer in problem.peers:
            group, stream = f"g{step}_{peer}", index % problem.streams
            yield TileGroup(group, (problem.tiles(peer, rows),), problem.all_inner, (), stream)
            yield put(f"x{step}_{peer}", problem.block(peer, rows), peer, (group,))
            index += 1
    yield TileGroup("own", (problem.tiles(0),), problem.all_inner)
    for step in range(problem.pieces):
        landed = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        mine = problem.block(0, problem.row_piece(step))
        yield Reduction(f"r{step}", mine, problem.num_ranks, ("own", *landed), stream=problem.streams)
        yield from spread(problem, f"y{step}", mine, f"r{step}")


TEMPLATE = Template("hetero_unfused_1d", Cut.ROWS, True, 1, OVERLAPPED_PATTERNS, build, default_streams=4)
