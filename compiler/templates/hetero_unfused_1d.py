"""hetero_unfused_1d: every slice is its own kernel, on several streams; finest start, smallest kernels.

Own shard as in hetero_fused_1d (FiCCO, arXiv 2512.10236). With one stream the small kernels leave most SMs idle, so
the number of streams decides whether this pays.

Per rank p (n - 1) + 1 kernels and p (n - 1) transfers, twice as many for GEMM+AR. It needs rows of a shard that divide
by p and a kernel whose rows do without each other (not attention behind an all_to_all), and one stream where kernels
add to one output (attention behind an all_gather).
"""

from collections.abc import Iterator
from dataclasses import replace

from ..collectives import signal_of
from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, put, summed


def build(problem: TemplateInput) -> Iterator[Step]:
    """A kernel per (step, peer), dealt to the streams in turn."""
    yield from _scatter(problem) if problem.pattern.produces else _gather(problem)


def _gather(problem: TemplateInput) -> Iterator[Step]:
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


def _scatter(problem: TemplateInput) -> Iterator[Step]:
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


TEMPLATE = Template(
    "hetero_unfused_1d",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=OVERLAPPED_PATTERNS,
    build=build,
    default_streams=4,
    knobs=("streams", "order", "depth"),
    any_engine=True,
)
