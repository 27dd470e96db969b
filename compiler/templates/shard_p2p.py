"""shard_p2p: one whole shard to one peer at a time, each computed when it is there (the classic ring-like pipeline)."""

from collections.abc import Iterator
from dataclasses import replace

from ..schedule import Reduction, Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Problem, Template, put, signal_of, spread


def build(problem: Problem) -> Iterator[Step]:
    """What is gathered: own shard first. What is summed: own shard last."""
    yield from _scatter(problem) if problem.pattern.sums else _gather(problem)


def _gather(problem: Problem) -> Iterator[Step]:
    own, fetches = problem.gathered(0), problem.fetches("x")
    if own.rows.size:
        yield TileGroup("g0", (own,), problem.all_inner)
    before: tuple[str, ...] = ()
    for fetch in fetches:
        yield replace(fetch.transfer, after=before, lane=0)
        before = (fetch.transfer.name,)
    for fetch in fetches:
        landed = (fetch.transfer.signal,)
        yield TileGroup(f"g{fetch.transfer.peer}", (fetch.tiles,), problem.all_inner, landed)


def _scatter(problem: Problem) -> Iterator[Step]:
    before: tuple[str, ...] = ()
    for peer in problem.peers:
        yield TileGroup(f"g{peer}", (problem.tiles(peer),), problem.all_inner)
        yield put(f"x{peer}", problem.block(peer), peer, (f"g{peer}", *before), lane=0)
        before = (f"x{peer}",)
    yield TileGroup("g0", (problem.tiles(0),), problem.all_inner)
    landed = tuple(signal_of(f"x{peer}") for peer in problem.peers)
    yield Reduction("r0", problem.block(0), problem.num_ranks, ("g0", *landed))
    yield from spread(problem, "y0", problem.block(0), "r0", lane=0)


TEMPLATE = Template("shard_p2p", Cut.SHARD, True, 1, OVERLAPPED_PATTERNS, build)
