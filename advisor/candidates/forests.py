"""Schedules of trees to be simulated, for a collective alone or beside a kernel where ranks see different networks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice
from ...compiler.planning.build import reject_choice
from ...compiler.templates import forest
from ..solver.forest import packings

PIECES = (1, 4, 16, 64)
"""Chunks of a shard that are tried first; then half and twice as many as were best."""
BESIDE = (4, 8, 16)
"""The same beside a kernel, where kernels of half a shard are tried first, then of half and twice as much."""
SUMS = 16
"""Streams of sums: one that waits for what a link brings holds up all behind it. 64 are not faster on six GPUs."""
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
    for trees in packings(scenario.system.fabric, scenario.num_ranks, reverse=shape.pattern.reduces):
        for pieces in BESIDE if shape.pattern.overlaps else PIECES:
            yield from _of(scenario, trees, pieces, pieces // 2 if shape.pattern.overlaps else 1)


def neighbours_of(scenario: OpCase, best: OpChoice) -> Iterator[OpChoice]:
    """Yield ``best`` with half and twice as many chunks, and with kernels of half and twice as many rows."""
    pieces, waves = best.chunks // scenario.num_ranks, best.waves
    others = [(pieces // 2, 1), (pieces * 2, 1)]
    if scenario.shape.pattern.overlaps:
        others = [(pieces // 2, waves // 2), (pieces * 2, waves * 2), (pieces, waves // 2), (pieces, waves * 2)]
    for other in others:
        if min(other):
            yield from (one for one in _of(scenario, best.trees, *other) if one.lanes == best.lanes)


def _of(scenario: OpCase, trees: Trees, pieces: int, waves: int) -> Iterator[OpChoice]:
    """The choices of so many chunks: with two engines for each link, or one, and with engines that are free first."""
    pattern, moved = scenario.shape.pattern, scenario.shape.moved
    assert moved is not None, "a collective moves a tensor"
    n, engines = scenario.num_ranks, scenario.gpu.dma.engines
    small = moved.num_bytes // n < pieces * LEAST_CHUNK_BYTES and pieces > 1
    if small or max(len(trees), n * pieces) * (n - 1) > MOST_STEPS:
        return
    links = _most_links(trees, pattern.reduces)
    lanes = min(2 * links if 2 * links <= engines + 2 else links, engines)
    for count in (lanes,) if pattern.overlaps else dict.fromkeys((lanes, 0)):
        engine = EngineChoice(EngineKind.DMA, count or engines)
        sums = SUMS if pattern.sums else 1
        choice = OpChoice(forest.TEMPLATE.name, pieces * n, engine, waves=waves, sums=sums, lanes=count, trees=trees)
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
