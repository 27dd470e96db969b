"""shard_p2p: one whole shard to one peer at a time, each computed when it is there (the classic ring-like pipeline).

Per rank n kernels and n - 1 transfers, all in lane 0; twice as many for GEMM+AR. It cuts no shard, and is illegal only
for attention behind an all_to_all, where a query needs the keys of all rows.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..collectives import signal_of
from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, put, summed


def build(problem: TemplateInput) -> Iterator[Step]:
    """Own shard first where shards are gathered, last where they are sent."""
    yield from _scatter(problem) if problem.pattern.produces else _gather(problem)


def _gather(problem: TemplateInput) -> Iterator[Step]:
    own, fetches = problem.gathered(0), problem.fetches("x")
    if own.rows.size:
        yield TileGroup("g0", (own,), problem.all_inner)
    before: tuple[str, ...] = ()
    for fetch in fetches:
        if fetch.moves:
            yield replace(fetch.transfer, after=before, lane=0)
            before = (fetch.transfer.name,)
    for fetch in (each for each in fetches if each.arrives):
        name, arrived = f"g{fetch.transfer.peer}", (fetch.transfer.signal,)
        yield TileGroup(name, (fetch.tiles,), problem.all_inner, arrived, accumulate=problem.adds_ranks)


def _scatter(problem: TemplateInput) -> Iterator[Step]:
    before: tuple[str, ...] = ()
    for peer in problem.served:
        tiles = problem.gathered(peer)
        if tiles.rows.size:
            yield TileGroup(f"g{peer}", (tiles,), problem.all_inner)
            yield put(f"x{peer}", problem.block(peer, tiles.rows), peer, (f"g{peer}", *before), lane=0)
            before = (f"x{peer}",)
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("g0", (own,), problem.all_inner)
    arrived = tuple(signal_of(f"x{peer}") for peer in problem.peers)
    yield from summed(problem, "0", problem.block(0), ("g0", *arrived), lane=0)


TEMPLATE = Template(
    "shard_p2p",
    Cut.SHARD,
    True,
    1,
    OVERLAPPED_PATTERNS,
    build,
    knobs=("order",),
    any_engine=True,
    words=("own rows first, then a shard at a time", "a shard at a time, own rows last"),
)
