"""The links of a fabric as a directed graph, and the one route between any two ranks.

Nodes 0 to ``num_ranks - 1`` are GPUs, those after them switches. Routing is fixed, shortest by links, and the same in
every run:

- torus: one dimension after the other, the last (fastest) first; halfway around, the way up is taken.
- fat tree: the spine is ``destination mod spines``, "D-mod-K" (Zahavi, "Fat-Trees Routing and Node Ordering Providing
  Contention Free Traffic for MPI Global Collectives", 2010), in place of hashing flows to equal paths.
- rails: to the GPU of the own node on the destination's rail, then over that rail.
- edges: of the shortest paths the one whose nodes have the lowest numbers, the first that differs deciding.

Where a route goes on depends on the node and the destination alone, so all routes to one rank make a tree.

A switch is a crossbar whose output ports serve at its rate: an edge that leaves a switch goes at the lower rate of
port and link, and has the latencies of both.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise

from .fabric import Fabric, FabricKind, FatTree, Graph, Rails, Torus
from .hardware import Link, Switch
from .stopping import checkpoint

Path = tuple[int, ...]
"""Nodes from source to destination, both included."""

StepFn = Callable[[int, int], int]
"""The next node on the way from a node to another rank."""


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
    """The graph of a fabric. ``step`` gives the next node on the way from a node to another rank."""

    num_ranks: int
    num_nodes: int
    edges: tuple[Edge, ...]
    step: StepFn
    by_ends: dict[tuple[int, int], Edge]
    _far: dict[int, dict[int, int]] = field(default_factory=dict)  # by destination, links from each node known so far

    @classmethod
    def of_edges(cls, num_ranks: int, edges: Iterator[Edge], step: StepFn) -> "Topology":
        """Make one of its edges, each pair of nodes joined once."""
        found = tuple(edges)
        num_nodes = max([num_ranks, *(edge.target + 1 for edge in found)])
        return cls(num_ranks, num_nodes, found, step, {edge.ends: edge for edge in found})

    def path(self, source: int, destination: int) -> Path:
        """Nodes from rank ``source`` to rank ``destination``.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        nodes = [source]
        while nodes[-1] != destination:
            nodes.append(self.step(nodes[-1], destination))
        return tuple(nodes)

    def num_links(self, source: int, destination: int) -> int:
        """Links from rank ``source`` to rank ``destination``.

        No link is walked twice to one destination, so that all pairs of ranks together take no longer than there are
        pairs of nodes.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        far = self._far.get(destination)
        if far is None:
            checkpoint()
            far = self._far[destination] = {destination: 0}
        trail, node = list[int](), source
        while node not in far:
            trail.append(node)
            node = self.step(node, destination)
        for number, passed in enumerate(reversed(trail), far[node] + 1):
            far[passed] = number
        return far[source]

    def route(self, source: int, destination: int) -> tuple[Edge, ...]:
        """Edges from rank ``source`` to rank ``destination``; none from a rank to itself.

        Raises
        ------
        NoRoute
            If there is no way.
        """
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
        return Topology.of_edges(n, edges, lambda node, destination: destination)
    if fabric.kind is FabricKind.SWITCH:
        up = [_edge(rank, n, "up", link) for rank in range(n)]
        down = [_edge(n, rank, "down", link, fabric.switch) for rank in range(n)]
        return Topology.of_edges(n, iter(up + down), lambda node, destination: destination if node == n else n)
    right = [_edge(rank, (rank + 1) % n, "right", link) for rank in range(n) if n > 1]
    left = [_edge(rank, (rank - 1) % n, "left", link) for rank in range(n) if n > 2 and fabric.both_ways]

    def around(node: int, destination: int) -> int:
        ahead = (destination - node) % n
        return (node + (1 if ahead <= n // 2 or not fabric.both_ways else -1)) % n

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

    def step(node: int, destination: int) -> int:
        for dimension in reversed(range(len(shape))):
            stride, side = strides[dimension], shape[dimension]
            ahead = (destination // stride - node // stride) % side
            if ahead:
                return moved(node, dimension, 1 if ahead <= side // 2 else -1)
        return destination

    return Topology.of_edges(n, edges(), step)


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

    def step(node: int, destination: int) -> int:
        if node < n:
            return n + node // tree.leaf
        above = n + destination // tree.leaf
        if node >= first_spine:
            return above
        return destination if node == above else first_spine + destination % tree.spines

    return Topology.of_edges(n, edges(), step)


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

    def step(at: int, destination: int) -> int:
        rail = destination % node
        if at >= first_rail:
            return destination
        if at >= n:
            return (at - n) * node + rail
        return first_rail + rail if at % node == rail else n + at // node

    return Topology.of_edges(n, edges(), step)


def _graph(graph: Graph, n: int) -> Topology:
    """The graph as it is given, with a breadth-first search from each destination that is asked for."""
    ends = [end for wire in graph.wires for end in (wire.ends, wire.ends[::-1])]
    neighbours: list[list[int]] = [[] for _ in range(n + graph.switches)]
    for source, target in sorted(ends):
        neighbours[source].append(target)

    @cache
    def distances(destination: int) -> dict[int, int]:
        checkpoint()
        found, todo = {destination: 0}, deque([destination])
        while todo:
            node = todo.popleft()
            for other in neighbours[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    todo.append(other)
        return found

    def step(node: int, destination: int) -> int:
        far = distances(destination)
        if node not in far:
            raise NoRoute(node, destination)
        return next(other for other in neighbours[node] if far.get(other) == far[node] - 1)

    links = {end: wire.link for wire in graph.wires for end in (wire.ends, wire.ends[::-1])}
    edges = (_edge(source, target, links[source, target].name, links[source, target]) for source, target in ends)
    return Topology.of_edges(n, edges, step)


def check_reachable(topology: Topology) -> None:
    """Check that all ranks reach each other; links go both ways, so it is enough that rank 0 reaches them.

    Raises
    ------
    NoRoute
        If one does not.
    """
    for rank in range(1, topology.num_ranks):
        try:
            topology.num_links(rank, 0)
        except NoRoute:
            raise NoRoute(0, rank) from None


def num_links(fabric: Fabric, num_ranks: int, source: int, destination: int) -> int:
    """Links from one rank to another; of symmetric fabrics, which may have a million links, without the graph.

    Raises
    ------
    NoRoute
        If there is no way.
    """
    ahead = (destination - source) % num_ranks
    match fabric.kind:
        case FabricKind.FULL_MESH:
            return min(ahead, 1)
        case FabricKind.SWITCH:
            return 2 * min(ahead, 1)
        case FabricKind.RING:
            return min(ahead, num_ranks - ahead) if fabric.both_ways else ahead
        case _:
            return topology_of(fabric, num_ranks).num_links(source % num_ranks, destination % num_ranks)
