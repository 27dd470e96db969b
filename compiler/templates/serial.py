"""serial: the whole collective, then the whole kernel, or the other way round. The baseline, and often the answer."""

from collections.abc import Iterator

from ..scenario import Pattern
from ..schedule import Reduction, Step, TileGroup
from .base import Cut, Problem, Template, put, signal_of


def build(problem: Problem) -> Iterator[Step]:
    """Direct transfers to every peer at once, with one kernel before or after them."""
    blocks = tuple(problem.tiles(owner) for owner in range(problem.num_ranks))
    names = [f"x{peer}" for peer in problem.peers]
    landed = tuple(signal_of(name) for name in names)
    if problem.pattern.gathers or problem.pattern is Pattern.GEMM:
        if problem.pattern.gathers:
            yield from (put(name, problem.block(0), peer) for name, peer in zip(names, problem.peers, strict=True))
        if problem.pattern is not Pattern.ALL_GATHER:
            yield TileGroup("g0", blocks, problem.all_inner, landed if problem.pattern.gathers else ())
        return
    computed: tuple[str, ...] = ()
    if problem.pattern is Pattern.GEMM_RS:
        yield TileGroup("g0", blocks, problem.all_inner)
        computed = ("g0",)
    for name, peer in zip(names, problem.peers, strict=True):
        yield put(name, problem.block(peer), peer, computed)
    yield Reduction("r0", problem.block(0), problem.num_ranks, (*computed, *landed))


TEMPLATE = Template("serial", Cut.SHARD, False, 1, tuple(Pattern), build)
