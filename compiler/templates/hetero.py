"""shard_p2p, hetero_fused_1d and hetero_unfused_1d: the own shard is one kernel that needs no transfer.

Where the kernel follows the collective it hides the first transfers, where it comes first those of the last parts
(FiCCO, arXiv 2512.10236). None is for attention behind an all_to_all, where a query needs the keys of all rows.

- shards: one whole shard to one peer at a time, each computed when it is there (the classic ring-like pipeline). Per
  rank n kernels and n - 1 transfers, all in lane 0; twice as many for GEMM+AR.
- fused: a kernel a step, over the slices of all other ranks: p + 1 kernels and p (n - 1) transfers, twice as many for
  GEMM+AR. It needs rows of a shard that divide by p.
- unfused: as fused, but every slice is its own kernel, p (n - 1) + 1 in all, on several streams; finest start, smallest
  kernels. With one stream the small kernels leave most SMs idle, so the number of streams decides whether this pays;
  there has to be one where kernels add to one output (attention behind an all_gather).
"""

from collections.abc import Iterator
from dataclasses import replace

from ..collectives import signal_of
from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, on_either_side, put, summed


def _own(problem: TemplateInput) -> Iterator[Step]:
    """The kernel of the own shard, if that has rows."""
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)


def _sums(problem: TemplateInput, stream: int) -> Iterator[Step]:
    """The sums of the own block, piece by piece, where parts are summed."""
    for step in range(problem.pieces):
        arrived = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        mine = problem.block(0, problem.row_piece(step))
        yield from summed(problem, f"{step}", mine, ("own", *arrived), stream=stream)


def _gather_fused(problem: TemplateInput) -> Iterator[Step]:
    yield from _own(problem)
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        if arrived:
            tiles, adds = tuple(fetch.tiles for fetch in fetches if fetch.arrives), problem.cutting.adds_ranks
            yield TileGroup(f"g{step}", tiles, problem.all_inner, arrived, accumulate=adds)


def _scatter_fused(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        blocks = tuple(block for block in problem.all_gathered(step) if block.owner)
        if blocks:
            yield TileGroup(f"g{step}", blocks, problem.all_inner)
        yield from problem.sends(f"x{step}_", (f"g{step}",), step)
    yield from _own(problem)
    yield from _sums(problem, stream=1)


FUSED = Template(
    "hetero_fused_1d",
    Cut.ROWS,
    True,
    1,
    OVERLAPPED_PATTERNS,
    on_either_side(_gather_fused, _scatter_fused),
    knobs=("order", "depth"),
    any_engine=True,
    words=("own rows first, then {rounds} over others'", "{rounds} over others' rows, own rows last"),
)


def _gather_unfused(problem: TemplateInput) -> Iterator[Step]:
    yield from _own(problem)
    fetches = [(step, fetch) for step in range(problem.pieces) for fetch in problem.fetches(f"x{step}_", step)]
    for index, (step, fetch) in enumerate(fetches):
        if fetch.moves:
            yield replace(fetch.transfer, after=problem.freed_by(step, f"_{fetch.transfer.peer}"))
        name, arrived = "g" + fetch.transfer.name.removeprefix("x"), (fetch.transfer.signal,)
        stream, adds = index % problem.streams, problem.cutting.adds_ranks
        if fetch.arrives:
            yield TileGroup(name, (fetch.tiles,), problem.all_inner, arrived, stream, adds)


def _scatter_unfused(problem: TemplateInput) -> Iterator[Step]:
    index = 0
    for step in range(problem.pieces):
        for peer in problem.served:
            tiles, group = problem.gathered(peer, step), f"g{step}_{peer}"
            if tiles.rows.size:
                yield TileGroup(group, (tiles,), problem.all_inner, (), index % problem.streams)
                yield put(f"x{step}_{peer}", problem.block(peer, tiles.rows), peer, (group,))
                index += 1
    yield from _own(problem)
    yield from _sums(problem, stream=problem.streams)


UNFUSED = Template(
    "hetero_unfused_1d",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=OVERLAPPED_PATTERNS,
    build=on_either_side(_gather_unfused, _scatter_unfused),
    default_streams=4,
    knobs=("streams", "order", "depth"),
    any_engine=True,
    words=("own rows first, then {slices} of others' rows", "{slices} of others' rows, own rows last"),
)


def _gather_shards(problem: TemplateInput) -> Iterator[Step]:
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
        yield TileGroup(name, (fetch.tiles,), problem.all_inner, arrived, accumulate=problem.cutting.adds_ranks)


def _scatter_shards(problem: TemplateInput) -> Iterator[Step]:
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


SHARDS = Template(
    "shard_p2p",
    Cut.SHARD,
    True,
    1,
    OVERLAPPED_PATTERNS,
    on_either_side(_gather_shards, _scatter_shards),
    knobs=("order",),
    any_engine=True,
    words=("own rows first, then a shard at a time", "a shard at a time, own rows last"),
)
