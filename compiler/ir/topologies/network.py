"""The links of a fabric as a directed graph, and the one route between any two ranks.

Nodes 0 to ``num_ranks - 1`` are GPUs, those after them switches. Routing is fixed, with the fewest links, and the same
in every run; the module of a topology defines it. The next node of a route depends on the node and the destination
alone, so all routes to one rank form a tree.

A switch is a crossbar whose output ports serve at its rate: an edge that leaves a switch goes at the lower rate of
port and link, and has the latencies of both.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ..hardware import Link, Switch
from ..stopping import checkpoint

Path = tuple[int, ...]
"""Nodes from source to destination, both included."""

Ends = tuple[int, int]
"""Source and target of an edge."""

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
    def ends(self) -> Ends:
        """Source and target."""
        return self.source, self.target


def edge_over(link: Link, source: int, target: int, name: str, switch: Switch | None = None) -> Edge:
    """An edge over ``link``; ``switch`` is the one it leaves, if it does."""
    if switch is None:
        return Edge(source, target, name, link.achieved_bytes_per_s, link.latency_ticks)
    rate = min(switch.bytes_per_s, link.achieved_bytes_per_s)
    return Edge(source, target, name, rate, link.latency_ticks + switch.latency_ticks)


class NoRoute(ValueError):
    """A rank cannot reach another; ``source`` and ``destination`` say which."""

    def __init__(self, source: int, destination: int) -> None:
        super().__init__(f"rank {source} cannot reach rank {destination}")
        self.source, self.destination = source, destination


@dataclass(frozen=True, slots=True)
class _Distance:
    """Number of links and latency of the route from a node to a rank."""

    num_links: int
    latency_ticks: int


@dataclass(frozen=True, eq=False)
class Network:
    """The graph of a fabric. ``step`` gives the next node on the way from a node to another rank.

    ``own`` are all edges, or of a ``symmetric`` network only those of rank 0, from which the others follow: a mesh of
    1,024 ranks has a thousand in place of a million.
    """

    num_ranks: int
    own: tuple[Edge, ...]
    step: StepFn
    symmetric: bool = False
    _distances: dict[int, dict[int, _Distance]] = field(
        default_factory=dict
    )  # by destination, from each node known so distances

    @classmethod
    def of_edges(cls, num_ranks: int, edges: Iterable[Edge], step: StepFn) -> "Network":
        """Make a network of all its edges; each pair of nodes is joined once."""
        return cls(num_ranks, tuple(edges), step)

    @classmethod
    def of_rank_0(cls, num_ranks: int, edges: Iterable[Edge], step: StepFn) -> "Network":
        """Make a symmetric network of the edges of rank 0.

        These have different names and leave rank 0 or come to it from a switch; every rank has its own of each.
        """
        return cls(num_ranks, tuple(edges), step, symmetric=True)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, in a symmetric network rank by rank."""
        if not self.symmetric:
            return self.own
        return tuple(self._at(edge, rank) for rank in range(self.num_ranks) for edge in self.own)

    @cached_property
    def num_nodes(self) -> int:
        """Number of GPUs and switches."""
        return max([self.num_ranks, *(max(edge.ends) + 1 for edge in self.own)])

    @cached_property
    def ways(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Routes of a symmetric network to each relative peer, as hops: (index in ``own``, relative rank)."""
        assert self.symmetric, "routes from rank 0 are those from every rank only in a symmetric network"
        return tuple(
            tuple(self._own_at(*ends) for ends in pairwise(self.path(0, peer))) for peer in range(self.num_ranks)
        )

    def edge(self, source: int, target: int) -> Edge:
        """Return the edge between two neighbours."""
        number, rank = self._own_at(source, target)
        return self._at(self.own[number], rank) if self.symmetric else self.own[number]

    def home(self, edge: Edge) -> int:
        """Return the rank of ``edge``: its source, else its target, if that is a GPU; between switches a fixed rank."""
        return self._home(*edge.ends)

    def path(self, source: int, destination: int) -> Path:
        """Return the nodes from rank ``source`` to rank ``destination``.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        nodes = [source]
        while nodes[-1] != destination:
            nodes.append(self.step(nodes[-1], destination))
        return tuple(nodes)

    def route(self, source: int, destination: int) -> tuple[Edge, ...]:
        """Return the edges from rank ``source`` to rank ``destination``; none from a rank to itself.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        return tuple(self.edge(*ends) for ends in pairwise(self.path(source, destination)))

    def num_links(self, source: int, destination: int) -> int:
        """Return the number of links from rank ``source`` to rank ``destination``.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        return self._distance(source, destination).num_links

    def latency_ticks(self, source: int, destination: int) -> int:
        """Return the latency between two ranks without contention.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        return self._distance(source, destination).latency_ticks

    def check_reachable(self) -> None:
        """Check that all ranks reach each other. Links go both ways, so it is enough that all reach rank 0.

        Raises
        ------
        NoRoute
            If one does not.
        """
        for rank in range(1, self.num_ranks):
            try:
                self.num_links(rank, 0)
            except NoRoute:
                raise NoRoute(0, rank) from None

    @cached_property
    def bytes_per_s_into(self) -> tuple[int, ...]:
        """Bytes per second of all links together into each rank."""
        return self._port_rates([edge.target for edge in self.own])

    @cached_property
    def bytes_per_s_out(self) -> tuple[int, ...]:
        """Bytes per second of all links together out of each rank."""
        return self._port_rates([edge.source for edge in self.own])

    @cached_property
    def _number(self) -> dict[Ends, int]:
        return {edge.ends: number for number, edge in enumerate(self.own)}

    def _port_rates(self, nodes: list[int]) -> tuple[int, ...]:
        """Sum the rates of ``own`` by ``nodes``; in a symmetric network all ranks have the same sum."""
        rates = Counter[int]()
        for node, edge in zip(nodes, self.own, strict=True):
            rates[0 if self.symmetric and node < self.num_ranks else node] += edge.bytes_per_s
        return tuple(rates[0 if self.symmetric else rank] for rank in range(self.num_ranks))

    def _distance(self, source: int, destination: int) -> _Distance:
        """Return links and latency from ``source``.

        Each link is walked once per destination, so all pairs of ranks together take time in proportion to the pairs of
        nodes; in a symmetric network all routes are shifted to destination 0.
        """
        if self.symmetric:
            source, destination = (source - destination) % self.num_ranks, 0
        distances = self._distances.get(destination)
        if distances is None:
            checkpoint()
            distances = self._distances[destination] = {destination: _Distance(0, 0)}
        trail, node = list[int](), source
        while node not in distances:
            trail.append(node)
            node = self.step(node, destination)
        for passed in reversed(trail):
            beyond, number = distances[node], self._own_at(passed, node)[0]
            distances[passed] = _Distance(beyond.num_links + 1, beyond.latency_ticks + self.own[number].latency_ticks)
            node = passed
        return distances[source]

    def _own_at(self, source: int, target: int) -> tuple[int, int]:
        """Return the index in ``own`` of the edge between two neighbours, and the rank that it belongs to."""
        rank = self._home(source, target)
        if not self.symmetric:
            return self._number[source, target], rank
        return self._number[self._turned(source, -rank), self._turned(target, -rank)], rank

    def _at(self, edge: Edge, rank: int) -> Edge:
        """Shift ``edge`` from rank 0 to ``rank``."""
        ends = self._turned(edge.source, rank), self._turned(edge.target, rank)
        return Edge(*ends, edge.name, edge.bytes_per_s, edge.latency_ticks)

    def _turned(self, node: int, ranks: int) -> int:
        """Shift a node by a number of ranks; switches stay."""
        return (node + ranks) % self.num_ranks if node < self.num_ranks else node

    def _home(self, source: int, target: int) -> int:
        for end in (source, target):
            if end < self.num_ranks:
                return end
        return (source + target) % self.num_ranks
