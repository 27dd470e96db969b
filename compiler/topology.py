"""The links of a fabric as a directed graph, and the one route between any two ranks.

Nodes 0 to ``num_ranks - 1`` are GPUs, those after them switches. Routing is fixed, shortest by links, and the same in
every run:

- torus: one dimension after the other, the last (fastest) first; halfway around, the way up is taken.
- fat tree: the spine is ``destination mod spines``, "D-mod-K" (Zahavi, "Fat-Trees Routing and Node Ordering Providing
  Contention Free Traffic for MPI Global Collectives", 2010), in place of hashing flows to equal paths.
- rails: to the GPU of the own node on the destination's rail, then over that rail.
- edges: of the shortest paths the one whose nodes have the lowest numbers, the first that differs deciding.

A switch is a crossbar whose output ports serve at its rate: an edge that leaves a switch goes at the lower rate of
port and link, and has the latencies of both.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from .scenario import Fabric, FabricKind, FatTree, Graph, Link, Rails, Switch, Torus

Path = tuple[int, ...]
"""Nodes from source to destination, both included."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One direction of a link. Edges of one ``name`` have the same rate and latency."""

    source: int
    target: int
    name: str
    bytes_per_s: int
    latency_ticks: int

    @property
    def ends(self) -> tuple[int, int]:
        """Source and target."""
        return self.source, self.target


class NoRoute(ValueError):
    """A rank cannot reach another; ``source`` and ``destination`` say which."""

    def __init__(self, source: int, destination: int) -> None:
        super().__init__(f"rank {source} cannot reach rank {destination}")
        self.source, self.destination = source, destination


@dataclass(frozen=True, eq=False, slots=True)
class Topology:
    """The graph of a fabric. ``path`` gives the nodes between two different ranks."""

    num_ranks: int
    num_nodes: int
    edges: tuple[Edge, ...]
    path: Callable[[int, int], Path]
    by_ends: dict[tuple[int, int], Edge]

    @classmethod
    def of_edges(cls, num_ranks: int, edges: Iterator[Edge], path: Callable[[int, int], Path]) -> "Topology":
        """Make one of its edges, each pair of nodes joined once."""
        found = tuple(edges)
        num_nodes = max([num_ranks, *(edge.target + 1 for edge in found)])
        return cls(num_ranks, num_nodes, found, path, {edge.ends: edge for edge in found})

    def route(self, source: int, destination: int) -> tuple[Edge, ...]:
        """Edges from rank ``source`` to rank ``destination``; none from a rank to itself.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        if source == destination:
            return ()
        return tuple(self.by_ends[ends] for ends in pairwise(self.path(source, destination)))

    def latency_ticks(self, source: int, destination: int) -> int:
        """Time on the way between two ranks with nothing else there."""
        return sum(edge.latency_ticks for edge in self.route(source, destination))


@lru_cache(maxsize=64)
def topology_of(fabric: Fabric, num_ranks: int) -> Topology:
    """The graph of ``fabric`` with ``num_ranks`` GPUs, checked before to fit them."""
    match fabric.layout:
        case Torus():
            return _torus(fabric.link, fabric.layout)
        case FatTree():
            assert fabric.switch is not None, "the compiler gives every fat tree its switch"
            return _fat_tree(fabric.link, fabric.switch, fabric.layout, num_ranks)
        case Rails():
            assert fabric.switch is not None, "the compiler gives every fabric of rails its switch"
            return _rails(fabric.link, fabric.switch, fabric.layout, num_ranks)
        case Graph():
            return _graph(fabric.layout, num_ranks)
        case None:
            return _symmetric(fabric, num_ranks)


def _edge(source: int, target: int, name: str, link: Link, switch: Switch | None = None) -> Edge:
    """An edge over ``link``; ``switch`` is the one it leaves, if it does."""
    if switch is None:
        return Edge(source, target, name, link.achieved_bytes_per_s, link.latency_ticks)
    rate = min(switch.bytes_per_s, link.achieved_bytes_per_s)
    return Edge(source, target, name, rate, link.latency_ticks + switch.latency_ticks)


def _symmetric(fabric: Fabric, n: int) -> Topology:
    """Mesh, ring and single switch."""
    link = fabric.link
    if fabric.kind is FabricKind.FULL_MESH:
        edges = (_edge(r, (r + k) % n, f"link+{k}", link) for r in range(n) for k in range(1, n))
        return Topology.of_edges(n, edges, lambda source, destination: (source, destination))
    if fabric.kind is FabricKind.SWITCH:
        up = [_edge(rank, n, "up", link) for rank in range(n)]
        down = [_edge(n, rank, "down", link, fabric.switch) for rank in range(n)]
        return Topology.of_edges(n, iter(up + down), lambda source, destination: (source, n, destination))
    right = [_edge(rank, (rank + 1) % n, "right", link) for rank in range(n) if n > 1]
    left = [_edge(rank, (rank - 1) % n, "left", link) for rank in range(n) if n > 2 and fabric.both_ways]

    def around(source: int, destination: int) -> Path:
        ahead = (destination - source) % n
        steps = range(ahead + 1) if ahead <= n // 2 or not fabric.both_ways else range(0, ahead - n - 1, -1)
        return tuple((source + step) % n for step in steps)

    return Topology.of_edges(n, iter(right + left), around)


def _torus(link: Link, torus: Torus) -> Topology:
    shape = torus.shape
    strides = [1] * len(shape)
    for dimension in reversed(range(len(shape) - 1)):
        strides[dimension] = strides[dimension + 1] * shape[dimension + 1]
    n = strides[0] * shape[0]

    def moved(rank: int, dimension: int, step: int) -> int:
        stride, side = strides[dimension], shape[dimension]
        at = rank // stride % side
        return rank + ((at + step) % side - at) * stride

    def edges() -> Iterator[Edge]:
        for rank in range(n):
            for dimension, side in enumerate(shape):
                if side > 1:
                    yield _edge(rank, moved(rank, dimension, 1), f"torus{dimension}+", link)
                if side > 2:  # with two, up and down lead to the same neighbour, over the same link
                    yield _edge(rank, moved(rank, dimension, -1), f"torus{dimension}-", link)

    def path(source: int, destination: int) -> Path:
        nodes = [source]
        for dimension in reversed(range(len(shape))):
            stride, side = strides[dimension], shape[dimension]
            ahead = (destination // stride - source // stride) % side
            step, count = (1, ahead) if ahead <= side // 2 else (-1, side - ahead)
            for _ in range(count):
                nodes.append(moved(nodes[-1], dimension, step))
        return tuple(nodes)

    return Topology.of_edges(n, edges(), path)


def _fat_tree(link: Link, switch: Switch, tree: FatTree, n: int) -> Topology:
    leaves = n // tree.leaf
    first_spine = n + leaves

    def edges() -> Iterator[Edge]:
        for rank in range(n):
            yield _edge(rank, n + rank // tree.leaf, "up", link)
            yield _edge(n + rank // tree.leaf, rank, "down", link, switch)
        for leaf in range(n, n + leaves):
            for spine in range(first_spine, first_spine + tree.spines):
                yield _edge(leaf, spine, "leaf-spine", link, switch)
                yield _edge(spine, leaf, "spine-leaf", link, switch)

    def path(source: int, destination: int) -> Path:
        below, above = n + source // tree.leaf, n + destination // tree.leaf
        if below == above:
            return source, below, destination
        return source, below, first_spine + destination % tree.spines, above, destination

    return Topology.of_edges(n, edges(), path)


def _rails(link: Link, switch: Switch, rails: Rails, n: int) -> Topology:
    node = rails.node
    first_rail = n + n // node

    def edges() -> Iterator[Edge]:
        for rank in range(n):
            inside, rail = n + rank // node, first_rail + rank % node
            yield _edge(rank, inside, "up", link)
            yield _edge(inside, rank, "down", link, switch)
            if n > node:
                yield _edge(rank, rail, "nic-out", rails.nic)
                yield _edge(rail, rank, "nic-in", rails.nic)

    def path(source: int, destination: int) -> Path:
        inside, relay = n + source // node, source - source % node + destination % node
        near = (source,) if relay == source else (source, inside, relay)
        return near if relay == destination else (*near, first_rail + destination % node, destination)

    return Topology.of_edges(n, edges(), path)


def _graph(graph: Graph, n: int) -> Topology:
    """The graph as it is given, with a breadth-first search from each destination that is asked for."""
    ends = [end for wire in graph.wires for end in (wire.ends, wire.ends[::-1])]
    neighbours = [sorted(b for a, b in ends if a == node) for node in range(n + graph.switches)]

    @cache
    def distances(destination: int) -> dict[int, int]:
        found, todo = {destination: 0}, deque([destination])
        while todo:
            node = todo.popleft()
            for other in neighbours[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    todo.append(other)
        return found

    def path(source: int, destination: int) -> Path:
        far = distances(destination)
        if source not in far:
            raise NoRoute(source, destination)
        nodes = [source]
        while nodes[-1] != destination:
            nodes.append(next(other for other in neighbours[nodes[-1]] if far.get(other) == far[nodes[-1]] - 1))
        return tuple(nodes)

    links = {end: wire.link for wire in graph.wires for end in (wire.ends, wire.ends[::-1])}
    edges = (_edge(source, target, links[source, target].name, links[source, target]) for source, target in ends)
    return Topology.of_edges(n, edges, path)


def check_reachable(topology: Topology) -> None:
    """Check that all ranks reach each other; links go both ways, so it is enough that rank 0 reaches them.

    Raises
    ------
    NoRoute
        If one does not.
    """
    for rank in range(1, topology.num_ranks):
        topology.route(0, rank)
