"""Schedules of trees to be simulated, for a collective alone or beside a kernel where ranks see different networks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from ...compiler.ir import EngineChoice, EngineKind, EngineMode, OpCase, OpChoice, Pattern
from ...compiler.planning.build import reject_choice
from ...compiler.templates import forest
from ..solver.forest import FEW_RANKS, TreeFlow, packings

PIECES = (1, 3, 8, 24, 64)
"""Chunks of a shard that are tried first, of many ranks those in the middle; then around what was best."""
AROUND = ((1, 2), (3, 4), (3, 2), (2, 1))
"""Parts of that number that are tried then."""
BESIDE = (4, 8, 16)
"""The same beside a kernel, where kernels of half a shard are tried first, then of half and twice as much."""
SUMS = 16
"""Streams of sums: one that waits for what a link brings holds up all behind it. 64 are not faster on six GPUs."""
LEAST_CHUNK_BYTES = 64 << 10
LEAST_BYTES = 1 << 20
"""Below this the protocol of copies by SMs decides, and no route."""
MOST_STEPS = 25_000
"""Of all ranks together, which each simulation lowers."""
MOST_RANKS = 64
"""Of a torus. Beyond ``FEW_RANKS`` a plan is simulated for seconds, so that few are tried."""

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
    torus, many = bool(_sides(scenario)), scenario.num_ranks > FEW_RANKS
    for trees in trees_of(scenario):
        least = len(trees) // scenario.num_ranks  # fewer chunks are the same plan
        alone = PIECES if not many else PIECES[:1] if torus else PIECES[1:3]
        counts = BESIDE if shape.pattern.overlaps and not many else alone
        for pieces in dict.fromkeys(max(least, each) for each in counts):
            yield from _of(scenario, trees, pieces, max(1, pieces // 2) if shape.pattern.overlaps else 1)


def trees_of(scenario: OpCase) -> Sequence[Trees]:
    """The sets of trees to try: on a torus of equal sides, or of many ranks, its own, else those of the solver."""
    grid, few = _sides(scenario), scenario.num_ranks <= FEW_RANKS
    if grid and min(grid) > 2 and (len(set(grid)) == 1 or not few):
        return _buckets(grid) if scenario.num_ranks <= MOST_RANKS else ()
    if not few and scenario.system.fabric.node_size:
        return ()  # there are algorithms for nodes that are all alike
    pattern = scenario.shape.pattern
    flow = TreeFlow.UP if pattern.reduces else TreeFlow.BOTH if pattern.sums else TreeFlow.DOWN
    return packings(scenario.system.fabric, scenario.num_ranks, flow)


def _sides(scenario: OpCase) -> tuple[int, ...]:
    """The sides of a torus that are longer than 1, none of another network."""
    return tuple(side for side in scenario.system.fabric.topology.grid(scenario.system.fabric) if side > 1)


def _buckets(grid: tuple[int, ...]) -> Sequence[Trees]:
    """Trees of the bucket algorithm: along one dimension after the other, beginning with each, either way round.

    With all 2 d trees of each root all links carry as much at any time, if all sides are equal. With one or two,
    roots side by side begin with different dimensions, which loads links nearly evenly: fewer copies, each larger.
    """
    places = list(product(*map(range, grid)))
    numbers, dimensions = {place: number for number, place in enumerate(places)}, len(grid)

    def tree(root: tuple[int, ...], first: int, sign: int) -> tuple[int, ...]:
        above, reached = {root: root}, [root]
        for dimension in (*range(first, dimensions), *range(first)):
            ahead = grid[dimension] // 2  # with an even side the rank across the ring is reached one way alone
            for start, (way, hops) in product(tuple(reached), ((sign, ahead), (-sign, grid[dimension] - 1 - ahead))):
                for _ in range(hops):
                    at = (start[dimension] + way) % grid[dimension]
                    above[(*start[:dimension], at, *start[dimension + 1 :])] = start
                    start = (*start[:dimension], at, *start[dimension + 1 :])
                    reached.append(start)
        return numbers[root], 1, *(numbers[above[place]] for place in places)

    whole = tuple(tree(root, first, sign) for root in places for first in range(dimensions) for sign in (1, -1))
    two = tuple(tree(root, sum(root) % dimensions, sign) for root in places for sign in (1, -1))
    one = tuple(tree(root, sum(root) % dimensions, (-1) ** (sum(root) // dimensions)) for root in places)
    return one, two, whole


def neighbours_of(scenario: OpCase, best: OpChoice) -> Iterator[OpChoice]:
    """Yield ``best`` with half and twice as many chunks, and with kernels of half and twice as many rows."""
    pieces, waves = best.chunks // scenario.num_ranks, best.waves
    others = [(each, 1) for each in dict.fromkeys(pieces * part // whole for part, whole in AROUND)]
    if scenario.shape.pattern.overlaps:
        others = [(pieces // 2, waves // 2), (pieces * 2, waves * 2), (pieces, waves // 2), (pieces, waves * 2)]
    for other in others:
        if min(other):
            yield from _of(scenario, best.trees, *other)


def _of(scenario: OpCase, trees: Trees, pieces: int, waves: int) -> Iterator[OpChoice]:
    """The choice of so many chunks, with a channel for each link, which two engines serve in turn if there are enough.

    On six machines lanes of engines of their own take up to 21 % longer, engines that are free first up to 43 %.
    """
    pattern, moved = scenario.shape.pattern, scenario.shape.moved
    assert moved is not None, "a collective moves a tensor"
    n, engines = scenario.num_ranks, scenario.gpu.dma.engines
    cut = max(pieces, len(trees) // n)
    if (cut > 1 and moved.num_bytes // n < cut * LEAST_CHUNK_BYTES) or max(len(trees), n * pieces) * (
        n - 1
    ) > MOST_STEPS:
        return
    lanes = min(_most_links(trees, pattern), engines)
    engine = EngineChoice(EngineKind.DMA, min(2 * lanes, engines), EngineMode.CHANNELS)
    sums = SUMS if pattern.sums else 1
    choice = OpChoice(forest.TEMPLATE.name, pieces * n, engine, waves=waves, sums=sums, lanes=lanes, trees=trees)
    if reject_choice(scenario, choice) is None:
        yield choice


def _most_links(trees: Sequence[tuple[int, ...]], pattern: Pattern) -> int:
    """To how many ranks one sends at most: down the trees, up them, or both."""
    peers = defaultdict[int, set[int]](set)
    for _root, _weight, *parents in trees:
        for rank, above in enumerate(parents):
            if rank != above and not pattern.reduces:
                peers[above].add(rank)
            if rank != above and pattern.sums:
                peers[rank].add(above)
    return max(map(len, peers.values()))
