"""Schedules of trees for a lone collective on a network that is not the same for every rank, to be simulated."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, Pattern
from ...compiler.planning.build import reject_choice
from ...compiler.templates import forest
from ..solver.forest import packings

PIECES = (1, 4, 16, 64)
"""Chunks of a shard that are tried first; then half and twice as many as were best."""
LEAST_CHUNK_BYTES = 64 << 10
LEAST_BYTES = 1 << 20
"""Below this the protocol of copies by SMs decides, and no route."""
MOST_STEPS = 20_000
"""Of all ranks together, which each simulation lowers."""

Trees = tuple[tuple[int, ...], ...]


def forests(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield the choices of ``forest`` to try: trees of the solver, chunks of several sizes, engines for each link.

    There are none where the network looks the same from every rank, which the named algorithms load evenly, nor where
    the file explores other schedules or engines.
    """
    shape, explore = scenario.shape, scenario.explore
    engines = explore.values("engine")
    fits = shape.pattern in forest.PATTERNS and shape.moved is not None and shape.moved.num_bytes >= LEAST_BYTES
    excluded = explore.values("schedules") or (engines and all(each.kind is not EngineKind.DMA for each in engines))
    if not fits or excluded or scenario.network.symmetric or scenario.gpu.dma.engines < 1:
        return
    reverse = shape.pattern is Pattern.REDUCE_SCATTER
    for trees in packings(scenario.system.fabric, scenario.num_ranks, reverse=reverse):
        for pieces in PIECES:
            yield from _of(scenario, trees, pieces, reverse)


def neighbours_of(scenario: OpCase, best: OpChoice) -> Iterator[OpChoice]:
    """Yield ``best`` with half and twice as many chunks."""
    pieces = best.chunks // scenario.num_ranks
    reverse = scenario.shape.pattern is Pattern.REDUCE_SCATTER
    for other in (pieces // 2, pieces * 2):
        if other:
            yield from (one for one in _of(scenario, best.trees, other, reverse) if one.lanes == best.lanes)


def _of(scenario: OpCase, trees: Trees, pieces: int, reverse: bool) -> Iterator[OpChoice]:
    """The choices of so many chunks: with two engines for each link, or one, and with engines that are free first."""
    assert scenario.shape.moved is not None, "a collective moves a tensor"
    n, engines = scenario.num_ranks, scenario.gpu.dma.engines
    shard = scenario.shape.moved.num_bytes // n
    small = shard < pieces * LEAST_CHUNK_BYTES and pieces > 1
    if small or max(len(trees), n * pieces) * (n - 1) > MOST_STEPS:
        return
    links = _most_links(trees, reverse)
    lanes = 2 * links if 2 * links <= engines + 2 else links
    for count in dict.fromkeys((min(lanes, engines), 0)):
        engine = EngineChoice(EngineKind.DMA, count or engines)
        choice = OpChoice(forest.TEMPLATE.name, pieces * n, engine, lanes=count, trees=trees)
        if reject_choice(scenario, choice) is None:
            yield choice


def _most_links(trees: Sequence[tuple[int, ...]], reverse: bool) -> int:
    """To how many ranks one sends at most."""
    peers = defaultdict[int, set[int]](set)
    for _root, _weight, *parents in trees:
        for rank, above in enumerate(parents):
            if rank != above:
                source, target = (rank, above) if reverse else (above, rank)
                peers[source].add(target)
    return max(map(len, peers.values()))
