"""shard_p2p: one whole shard to one peer at a time, each computed when it is there (the classic ring-like pipeline)."""

from collections.abc import Iterator

from ..scenario import Pattern
from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of


def build(problem: Problem) -> Iterator[Step]:
    """AG+GEMM: own shard first. GEMM+RS: own shard last."""
    yield from _gather(problem) if problem.pattern is Pattern.AG_GEMM else _scatter(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    yield TileGroup("g0", (problem.tiles(0),), problem.all_inner)
    before: tuple[str, ...] = ()
    for peer in problem.peers:
        yield put(f"x{peer}", problem.block(0), peer, before, lane=0)
        before = (f"x{peer}",)
    for peer in problem.peers:
        yield TileGroup(f"g{peer}", (problem.tiles(-peer),), problem.all_inner, (signal_of(f"x{peer}"),))


def _scatter(problem: Problem) -> Iterator[Step]:
    before: tuple[str, ...] = ()
    for peer in problem.peers:
        yield TileGroup(f"g{peer}", (problem.tiles(peer),), problem.all_inner)
        yield put(f"x{peer}", problem.block(peer), peer, (f"g{peer}", *before), lane=0)
        before = (f"x{peer}",)
    yield TileGroup("g0", (problem.tiles(0),), problem.all_inner)
    landed = tuple(signal_of(f"x{peer}") for peer in problem.peers)
    yield Reduction("r0", problem.block(0), problem.num_ranks, ("g0", *landed))


TEMPLATE = Template("shard_p2p", Cut.SHARD, True, 1, OVERLAPPED_PATTERNS, build)
