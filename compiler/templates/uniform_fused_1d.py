"""uniform_fused_1d: slices of rows from every rank at once, own included, one kernel per step over all of them.

FiCCO (arXiv 2512.10236) names the family: uniform (every step does equal work), fused (one kernel a step), 1D (rows).

Per rank p kernels and p (n - 1) transfers, twice as many for GEMM+AR. It needs two pieces or more, rows of a shard that
divide by p, and a kernel whose rows do without each other (not attention behind an all_to_all).
"""

from collections.abc import Iterator

from ..ir import Step, TileGroup
from .base import OVERLAPPED_PATTERNS, Cut, Template, TemplateInput, summed


def build(problem: TemplateInput) -> Iterator[Step]:
    """Step i moves row slice i of each shard over all links and computes row slice i of every shard."""
    yield from _scatter(problem) if problem.pattern.produces else _gather(problem)


def _gather(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        fetches = problem.fetches(f"x{step}_", step, after=problem.freed_by(step))
        yield from (fetch.transfer for fetch in fetches if fetch.moves)
        arrived = tuple(fetch.transfer.signal for fetch in fetches if fetch.arrives)
        adds = problem.adds_rows and step > 0
        blocks = problem.all_gathered(step)
        if blocks:
            yield TileGroup(f"g{step}", blocks, problem.all_inner, arrived, accumulate=adds)


def _scatter(problem: TemplateInput) -> Iterator[Step]:
    for step in range(problem.pieces):
        group, blocks = f"g{step}", problem.all_gathered(step)
        if blocks:
            yield TileGroup(group, blocks, problem.all_inner)
        sent = problem.sends(f"x{step}_", (group,), step)
        yield from sent
        mine, arrived = problem.block(0, problem.row_piece(step)), tuple(each.signal for each in sent)
        yield from summed(problem, f"{step}", mine, (group, *arrived), stream=1)


TEMPLATE = Template(
    "uniform_fused_1d",
    Cut.ROWS,
    overlaps=True,
    min_pieces=2,
    patterns=OVERLAPPED_PATTERNS,
    build=build,
    knobs=("order", "depth"),
    rows_from_all_ranks=True,
    any_engine=True,
)
