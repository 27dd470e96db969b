"""Few trees of equal weight for each root, by a local search, where packings have many.

A packing has as many trees of a root as links are full: eight of each rank on a hypercube of 16. Each is a chunk at
least, and chunks of a small shard are then set up more slowly than they are sent.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np

from ...compiler.ir import checkpoint
from .trees import Column, Floats, TreeGraph, level_tree, shortest_tree

TRIES, ROUNDS = 32, 6
"""Searches, divided by the roots that are not alike, and how often each replaces all trees."""
POWER = 8
"""Loads count by this power: nearly the busiest link alone, and yet less elsewhere is better."""
LEVEL = 0.005
"""What a level is worth, in times of the busiest link: it decides among trees that load links alike."""
NOISY, NOISE, IDLE = 3, 0.3, 0.05
"""Rounds in which prices differ between searches, by how much, and the load that an idle link is priced for."""


def even_packing(graph: TreeGraph, count: int, least: float) -> list[tuple[Column, float]]:
    """Return ``count`` trees of each root with their shares; ``least`` is the least time of any packing, in us per MB.

    Of all searches the one whose busiest link is least busy.
    """
    seeds = range(max(1, TRIES // len(graph.images)))
    _, trees = min((_searched(graph, count, least, Random(seed)) for seed in seeds), key=lambda found: found[0])
    return [(column, number / count) for column, number in Counter(trees).items()]


def _searched(graph: TreeGraph, count: int, least: float, random: Random) -> tuple[float, list[Column]]:
    """Replace one tree after the other by the best for the loads of all others, until none is better."""
    checkpoint()
    slots = [root for root in graph.images for _ in range(count)]
    trees, known = dict[int, Column](), dict[Column, Floats]()
    total = np.zeros(graph.loads.shape[1])

    def loads(column: Column) -> Floats:
        if column not in known:
            known[column] = graph.loads_of(*column) / (count * least)
        return known[column]

    def disadvantage(column: Column) -> float:
        norm: float = ((total + loads(column)) ** POWER).sum() ** (1 / POWER)
        return norm + LEVEL * graph.levels_of(*column) / len(slots)

    for number in range(ROUNDS):
        before = dict(trees)
        for slot, root in enumerate(slots):
            total = total - loads(trees[slot]) if slot in trees else total
            noise = NOISE if number < NOISY else 0.0
            prices = (total + IDLE) ** (POWER - 1) * [random.uniform(1 - noise, 1 + noise) for _ in total]
            found = [*_cheap(graph, root, prices / prices.sum()), *([trees[slot]] if slot in trees else [])]
            trees[slot] = min(sorted(found), key=disadvantage)
            total = total + loads(trees[slot])
        if trees == before:
            break
    return float(total.max()) + LEVEL * max(graph.levels_of(*each) for each in trees.values()), list(trees.values())


def _cheap(graph: TreeGraph, root: int, prices: Floats) -> Iterator[Column]:
    """Trees of a root that cost little by ``prices`` of the links, from few levels to many."""
    costs = graph.costs_of(root, prices)
    hop = costs.mean()
    yield root, level_tree(graph, root, costs)
    yield root, shortest_tree(graph, root, costs + hop)
    yield root, shortest_tree(graph, root, costs + 0.3 * hop)
    yield root, graph.best_tree(root, costs + 1e-9 * hop)
