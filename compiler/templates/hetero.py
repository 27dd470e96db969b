"""hetero_fused_1d and hetero_unfused_1d: the own shard is one kernel that needs no transfer.

Where the kernel follows the collective it hides the first transfers, where it comes first those of the last parts
(FiCCO, arXiv 2512.10236). Both need rows of a shard that divide by p, and a kernel whose rows do without each other
(not attention behind an all_to_all). Per rank there are p (n - 1) transfers, twice as many for GEMM+AR.

- fused: a kernel a step, over the slices of all other ranks: p + 1 kernels.
- unfused: every slice is its own kernel, p (n - 1) + 1 in all, on several streams; finest start, smallest kernels. With
  one stream the small kernels leave most SMs idle, so the number of streams decides whether this pays; there has to be
  one where kernels add to one output (attention behind an all_gather).
"""

from collections.abc import Iterator
from dataclasses import replace

from ..collectives import signal_of
from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, put, summed


def build_fused(problem: TemplateInput) -> Iterator[Step]:
    """Own shard first (what is gathered) or last (what is sent), and one kernel a step over all others' slices."""
    yield from _scatter_fused(problem) if problem.pattern.produces else _gather_fused(problem)


def _gather_fused(problem: TemplateInput) -> Iterator[Step]:
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        if arrived:
            tiles, adds = tuple(fetch.tiles for fetch in fetches if fetch.arrives), problem.adds_ranks
            yield TileGroup(f"g{step}", tiles, problem.all_inner, arrived, accumulate=adds)


def _scatter_fused(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        blocks = tuple(block for block in problem.all_gathered(step) if block.owner)
        if blocks:
            yield TileGroup(f"g{step}", blocks, problem.all_inner)
        yield from problem.sends(f"x{step}_", (f"g{step}",), step)
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    for step in range(problem.pieces):
        arrived = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        mine = problem.block(0, problem.row_piece(step))
        yield from summed(problem, f"{step}", mine, ("own", *arrived), stream=1)


FUSED = Template(
    "hetero_fused_1d",
    Cut.ROWS,
    True,
    1,
    OVERLAPPED_PATTERNS,
    build_fused,
    knobs=("order", "depth"),
    any_engine=True,
    words=("own rows first, then {rounds} over others'", "{rounds} over others' rows, own rows last"),
)


def build_unfused(problem: TemplateInput) -> Iterator[Step]:
    """A kernel per (step, peer), dealt to the streams in turn."""
    yield from _scatter_unfused(problem) if problem.pattern.produces else _gather_unfused(problem)


def _gather_unfused(problem: TemplateInput) -> Iterator[Step]:
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    fetches = [(step, fetch) for step in range(problem.pieces) for fetch in problem.fetches(f"x{step}_", step)]
    for index, (step, fetch) in enumerate(fetches):
        if fetch.moves:
            yield replace(fetch.transfer, after=problem.freed_by(step, f"_{fetch.transfer.peer}"))
        name, arrived = "g" + fetch.transfer.name.removeprefix("x"), (fetch.transfer.signal,)
        stream, adds = index % problem.streams, problem.adds_ranks
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
    own = problem.gathered(0)
    if own.rows.size:
        yield TileGroup("own", (own,), problem.all_inner)
    for step in range(problem.pieces):
        arrived = tuple(signal_of(f"x{step}_{peer}") for peer in problem.peers)
        mine = problem.block(0, problem.row_piece(step))
        yield from summed(problem, f"{step}", mine, ("own", *arrived), stream=problem.streams)


UNFUSED = Template(
    "hetero_unfused_1d",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=OVERLAPPED_PATTERNS,
    build=build_unfused,
    default_streams=4,
    knobs=("streams", "order", "depth"),
    any_engine=True,
    words=("own rows first, then {slices} of others' rows", "{slices} of others' rows, own rows last"),
)
