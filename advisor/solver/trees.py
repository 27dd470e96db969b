"""Trees of the ranks of a network: its edges between ranks, what they load, and trees that are cheap or of few levels.

An edge of a tree is a route between two ranks without a rank in between, and loads the links of that route: so switches
need nothing of their own, and the routes are those that are simulated.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from heapq import heappop, heappush
from itertools import permutations

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Fabric, network_of
from .images import Ends, Image, images_of_ranks

SLOW = 0.25
"""Which part of a level is the time of the slowest link of an edge, of the median one, and not a setup: a chunk holds
up what is below it that long. With 0 an all_gather on an irregular graph of eight ranks takes 11 % longer, with 0.5 one
on a cube mesh 7 %; on others either takes 3 % less to 5 % more."""
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Parents = tuple[int, ...]
"""The parent of each rank, at the root the root itself; behind them those on the way up, where these differ."""
Column = tuple[int, Parents]
"""A root and a tree."""


class TreeFlow(Enum):
    """What goes along the trees: data from the root, to the root, to it and down again, or all data from rank 0.

    EACH: data from the root to each rank of its own, so that an edge carries as much as there are ranks below.
    """

    DOWN = "all_gather"
    UP = "reduce_scatter"
    BOTH = "all_reduce"
    FIRST = "broadcast"
    EACH = "all_to_all"


@dataclass(frozen=True, eq=False, slots=True)
class Images:
    """What the trees of a root are at all ranks that are like it: what each rank, link and edge is mapped onto.

    ``links`` [images, links] and ``edges`` [images, edges] hold numbers of links and edges; the first image is itself.
    """

    ranks: tuple[Image, ...]
    links: Numbers
    edges: Numbers

    def of_tree(self, root: int, parents: Parents, num_ranks: int) -> Iterator[Column]:
        """The tree of each rank."""
        for image in self.ranks:
            whole = list[int]()
            for first in range(0, len(parents), num_ranks):
                above = dict(zip(image, (image[rank] for rank in parents[first : first + num_ranks]), strict=False))
                whole += [above[rank] for rank in range(num_ranks)]
            yield image[root], tuple(whole)


def summed(numbers: Numbers, values: Floats) -> Floats:
    """What all images of ``values`` come to."""
    total: Floats = np.bincount(numbers.ravel(), np.tile(values, len(numbers)), len(values)).astype(np.float64)
    return total


@dataclass(frozen=True, eq=False, slots=True)
class TreeGraph:
    """Edges between ranks; ``loads`` [edges, links] is how long a byte on an edge holds each link, in us per MB.
    ``levels`` [edges] is for how many levels an edge counts.

    ``images`` are those of each root of trees. With ``one_pool`` it does not matter which is the root of how much, with
    ``to_each`` edges carry the data of each rank below.
    ``place`` has the number of an edge by its ends, ``ports`` [2, edges] the links of its route at either end,
    ``onward`` the targets and numbers of the edges from each rank.
    With ``halves`` a tree is two, one down and one up, each of edges of its own; all edges are those of both.
    """

    num_ranks: int
    images: dict[int, Images]
    one_pool: bool
    to_each: bool
    ends: tuple[tuple[int, int], ...]
    loads: Floats
    levels: Floats
    place: dict[tuple[int, int], int]
    ports: Numbers
    onward: tuple[tuple[tuple[int, int], ...], ...]
    halves: tuple["TreeGraph", ...] = ()

    def _halves(self, parents: Parents) -> Iterator[tuple["TreeGraph", Parents, int]]:
        """Each half with its part of a tree, and the number of its first edge."""
        for number, half in enumerate(self.halves):
            part = parents[number * self.num_ranks : (number + 1) * self.num_ranks]
            yield half, part, number * len(self.halves[0].ends)

    def edges_of(self, root: int, parents: Parents) -> list[int]:
        """The numbers of the edges of a tree."""
        if self.halves:
            return [first + edge for half, part, first in self._halves(parents) for edge in half.edges_of(root, part)]
        return [self.place[above, rank] for rank, above in enumerate(parents) if rank != root]

    def loads_of(self, root: int, parents: Parents, early: float = 0.0) -> Floats:
        """How long a byte from each rank like ``root``, down its image of a tree, holds each link."""
        return summed(self.images[root].links, self.used(root, parents, self.loads, early))

    def used(self, root: int, parents: Parents, of_edges: Floats, early: float = 0.0) -> Floats:
        """The sum over the edges of a tree of ``of_edges`` [edges, ...], each as often as it passes data of a rank.

        An edge counts by the part ``early`` more for each level below it.
        """
        edges = self.edges_of(root, parents)
        times = np.ones(len(edges))
        if self.to_each:
            below = Counter(rank for target in range(len(parents)) for rank in _ranks_above(root, parents, target))
            times = np.array([below[rank] for rank in range(len(parents)) if rank != root])
        if early:
            times *= 1 + early * self._levels_below(root, parents)
        total: Floats = times @ of_edges[edges]
        return total

    def _levels_below(self, root: int, parents: Parents) -> Numbers:
        """How many levels of ranks are below the end of each edge of a tree."""
        if self.halves:
            return np.concatenate([half._levels_below(root, part) for half, part, _ in self._halves(parents)])
        below = np.zeros(len(parents), np.int64)
        for rank in range(len(parents)):
            for levels, at in enumerate(_ranks_above(root, parents, rank)):
                below[at] = max(below[at], levels)
        return np.delete(below, root)

    def best_tree(self, root: int, costs: Floats) -> Parents:
        """The tree that costs least: the shortest ways, or the cheapest edges where data passes each once."""
        return shortest_tree(self, root, costs) if self.to_each else cheapest_tree(self, root, costs)

    def levels_of(self, root: int, parents: Parents) -> float:
        """How deep a tree is, its halves on average: its deepest rank, or the mean where each has data of its own."""
        if self.halves:
            return sum(half.levels_of(root, part) for half, part, _ in self._halves(parents)) / 2
        ranks, levels = range(len(parents)), iter(self.levels[self.edges_of(root, parents)].tolist())
        of_rank = [0.0 if rank == root else next(levels) for rank in ranks]
        hops: list[float] = [sum(of_rank[each] for each in _ranks_above(root, parents, rank)) for rank in ranks]
        return sum(hops) / (len(hops) - 1) if self.to_each else max(hops)

    def costs_of(self, root: int, prices: Floats) -> Floats:
        """What an edge of the trees of ``root`` and its images cost together, by ``prices`` of the links."""
        costs: Floats = self.loads @ prices[self.images[root].links].sum(axis=0)
        return costs


def graph_of(fabric: Fabric, num_ranks: int, flow: TreeFlow) -> TreeGraph:
    """The edges between ranks for what goes along the trees.

    What goes down and up takes the same ways, but where links go one way or the ways differ in their rates.
    """
    network = network_of(fabric, num_ranks)
    numbers = {edge.ends: number for number, edge in enumerate(network.edges)}
    one_way, routes = dict[Ends, Floats](), dict[Ends, tuple[Ends, ...]]()
    for source, target in permutations(range(num_ranks), 2):
        if all(node >= num_ranks for node in network.path(source, target)[1:-1]):
            row, route = np.zeros(len(numbers)), network.route(source, target)
            for edge in route:
                row[numbers[edge.ends]] = 1e12 / edge.bytes_per_s
            one_way[source, target], routes[source, target] = row, tuple(edge.ends for edge in route)
    if flow is TreeFlow.BOTH:
        if any((b, a) not in one_way or one_way[b, a].max() != row.max() for (a, b), row in one_way.items()):
            return _of_halves(*(graph_of(fabric, num_ranks, each) for each in (TreeFlow.DOWN, TreeFlow.UP)))
        one_way = {(a, b): row + one_way[b, a] for (a, b), row in one_way.items()}
    ends = tuple((b, a) if flow is TreeFlow.UP else (a, b) for a, b in one_way)
    place = {each: at for at, each in enumerate(ends)}
    onward = tuple(tuple((b, at) for at, (a, b) in enumerate(ends) if a == rank) for rank in range(num_ranks))
    kinds = {edge.ends: (edge.bytes_per_s, edge.latency_ticks) for edge in network.edges}
    itself = tuple(range(network.num_nodes))
    if flow is TreeFlow.FIRST:
        images: dict[int, tuple[Image, ...]] = {0: (itself,)}
    elif (
        flow is TreeFlow.EACH
    ):  # prices of links prove a bound of any ways, so that links that are alike need their own
        images = dict.fromkeys(range(num_ranks), (itself,))
    else:
        images = images_of_ranks(num_ranks, kinds, lambda image: _follow(routes, image))
    alike = {
        root: Images(known, *(np.array([_mapped(each, image) for image in known]) for each in (numbers, place)))
        for root, known in images.items()
    }
    one_pool, to_each = flow in (TreeFlow.BOTH, TreeFlow.FIRST), flow is TreeFlow.EACH
    rows = np.array(list(one_way.values())).reshape(len(ends), len(numbers))
    slowest = rows.max(axis=1, initial=0)
    levels = 1 - SLOW + SLOW * slowest / np.median(slowest)
    at_ends = (-1, 0) if flow is TreeFlow.UP else (0, -1)
    ports = np.array([[numbers[route[at]] for route in routes.values()] for at in at_ends])
    return TreeGraph(num_ranks, alike, one_pool, to_each, ends, rows, levels, place, ports, onward)


def _of_halves(down: TreeGraph, up: TreeGraph) -> TreeGraph:
    """The graph whose trees go down by the edges of one graph, and up by those of the other."""
    images = {
        root: replace(known, edges=np.hstack([known.edges, up.images[root].edges + len(down.ends)]))
        for root, known in down.images.items()
    }
    ends = (*down.ends, *(pair[::-1] for pair in up.ends))  # up a tree a child sends
    loads, levels = np.vstack([down.loads, up.loads]), np.concatenate([down.levels, up.levels])
    ports = np.hstack([down.ports, up.ports[::-1]])
    return replace(
        down, images=images, one_pool=True, ends=ends, loads=loads, levels=levels, ports=ports, halves=(down, up)
    )


FindTree = Callable[[TreeGraph, int, Floats], Parents]


def _of_each_half(find: FindTree) -> FindTree:
    """``find`` for each half of a graph that has halves."""

    @wraps(find)
    def found(graph: TreeGraph, root: int, costs: Floats) -> Parents:
        if not graph.halves:
            return find(graph, root, costs)
        parts = np.split(costs, [len(graph.halves[0].ends)])
        return tuple(above for half, part in zip(graph.halves, parts, strict=True) for above in find(half, root, part))

    return found


def _follow(routes: Mapping[Ends, tuple[Ends, ...]], image: Image) -> bool:
    """Whether the route between two ranks, and no rank between them, is mapped onto that between their images."""
    return all(
        routes.get((image[a], image[b])) == tuple((image[c], image[d]) for c, d in route)
        for (a, b), route in routes.items()
    )


def _mapped(numbers: Mapping[Ends, int], image: Image) -> list[int]:
    return [numbers[image[a], image[b]] for a, b in numbers]


def _ranks_above(root: int, parents: Parents, rank: int) -> list[int]:
    """The ranks from ``rank`` up to the root, without the root."""
    way = list[int]()
    while rank != root:
        way.append(rank)
        rank = parents[rank]
    return way


@_of_each_half
def shortest_tree(graph: TreeGraph, root: int, costs: Floats) -> Parents:
    """The tree of the shortest ways from ``root`` (Dijkstra)."""
    weights, parents, waiting = costs.tolist(), [-1] * graph.num_ranks, [(0.0, root, root)]
    while waiting:
        away, rank, above = heappop(waiting)
        if parents[rank] < 0:
            parents[rank] = above
            for target, edge in graph.onward[rank]:
                if parents[target] < 0:
                    heappush(waiting, (away + weights[edge], target, rank))
    return tuple(parents)


@_of_each_half
def level_tree(graph: TreeGraph, root: int, costs: Floats) -> Parents:
    """The cheapest tree of the fewest levels from ``root``: each rank is below the cheapest of those a level nearer."""
    weights, parents, level = costs.tolist(), [root] * graph.num_ranks, [root]
    seen = {root}
    while level:
        best = dict[int, tuple[float, int]]()
        for rank in level:
            for target, edge in graph.onward[rank]:
                if target not in seen:
                    best[target] = min(best.get(target, (np.inf, 0)), (weights[edge], rank))
        for target, (_, rank) in best.items():
            parents[target] = rank
        level = list(best)
        seen |= best.keys()
    return tuple(parents)


@_of_each_half
def cheapest_tree(graph: TreeGraph, root: int, costs: Floats) -> Parents:
    """The cheapest arborescence from ``root`` (Chu and Liu, Edmonds)."""
    edges = [(*ends, cost, ends) for ends, cost in zip(graph.ends, costs.tolist(), strict=True)]
    parents = [root] * graph.num_ranks
    for source, target in _arborescence(list(range(graph.num_ranks)), root, edges):
        parents[target] = source
    return tuple(parents)


Weighed = tuple[int, int, float, tuple[int, int]]
"""An edge between contracted nodes, its cost, and the edge of the graph that it is."""


def _arborescence(nodes: Sequence[int], root: int, edges: Sequence[Weighed]) -> Iterator[tuple[int, int]]:
    best = dict[int, Weighed]()
    for edge in edges:
        if edge[1] != root and (edge[1] not in best or edge[2] < best[edge[1]][2]):
            best[edge[1]] = edge
    circle = _circle(nodes, root, best)
    if not circle:
        yield from (edge[3] for edge in best.values())
        return
    whole, inside = max(nodes) + 1, set(circle)
    cheapest, enters = dict[tuple[int, int], Weighed](), dict[tuple[int, int], int]()
    for source, target, cost, ends in edges:
        if source in inside and target in inside:
            continue
        if target in inside:
            edge = source, whole, cost - best[target][2], ends
        else:
            edge = whole if source in inside else source, target, cost, ends
        if edge[:2] not in cheapest or edge[2] < cheapest[edge[:2]][2]:
            cheapest[edge[:2]] = edge
            enters[edge[:2]] = target
    rest = [node for node in nodes if node not in inside]
    entered = {edge[3]: enters[pair] for pair, edge in cheapest.items() if pair[1] == whole}
    broken = None
    for ends in _arborescence([*rest, whole], root, list(cheapest.values())):
        broken = entered.get(ends, broken)
        yield ends
    yield from (best[node][3] for node in circle if node != broken)


def _circle(nodes: Sequence[int], root: int, best: dict[int, Weighed]) -> list[int]:
    """Nodes whose cheapest edges lead round, none if there are none."""
    seen = dict[int, int]()
    for start in nodes:
        node, way = start, list[int]()
        while node != root and node not in seen:
            seen[node] = start
            way.append(node)
            node = best[node][0]
        if node != root and seen[node] == start:
            return way[way.index(node) :]
    return []
