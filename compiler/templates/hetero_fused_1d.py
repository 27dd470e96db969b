"""hetero_fused_1d: the own shard is one kernel that needs no transfer; the steps are over remote slices alone.

Where the kernel follows the collective it hides the first transfers, where it comes first those of the last parts
(FiCCO, arXiv 2512.10236).

Per rank p + 1 kernels and p (n - 1) transfers, twice as many for GEMM+AR. It needs rows of a shard that divide by p,
and a kernel whose rows do without each other (not attention behind an all_to_all).
"""

from collections.abc import Iterator

from ..collectives import signal_of
from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, summed


def build(problem: TemplateInput) -> Iterator[Step]:
    """Own shard first (what is gathered) or last (what is sent), and one kernel a step over all others' slices."""
    yield from _scatter(problem) if problem.pattern.produces else _gather(problem)


def _gather(problem: TemplateInput) -> Iterator[Step]:
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


def _scatter(problem: TemplateInput) -> Iterator[Step]:
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


TEMPLATE = Template(
    "hetero_fused_1d", Cut.ROWS, True, 1, OVERLAPPED_PATTERNS, build, knobs=("order", "depth"), any_engine=True
)
