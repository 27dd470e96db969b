"""The links of a fabric as a directed graph, and the one route between any two ranks.

Nodes 0 to ``num_ranks - 1`` are GPUs, those after them switches. Routing is fixed, with the fewest links, and the same
in every run; the module of a topology defines it. The next node of a route depends on the node and the destination
alone, so all routes to one rank form a tree.

Most fabrics look the same after a *shift*, by which every rank goes up by a multiple of ``period``: nodes of rails,
rows of a torus, leaves of a fat tree. Only the edges of the first ``period`` ranks are kept, the others are those,
shifted.

A switch is a crossbar whose output ports serve at its rate: an edge that leaves a switch goes at the lower rate of
port and link, and has the latencies of both.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
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


@dataclass(frozen=True, slots=True)
class Symmetry:
    """The shifts that map a network and its routes onto themselves: by multiples of ``period``, a divisor of the ranks.

    ``turned`` is the number of a switch after a shift by so many ranks. ``shift_of`` says by how many ranks it is
    shifted from the first of the switches that take each other's places; None if fewer shifts than all lead back to it.
    ``alike``: the links are the same around every rank, and only routes half around a torus differ.
    """

    period: int
    turned: Callable[[int, int], int] = lambda switch, ranks: switch
    shift_of: Callable[[int], int | None] = lambda switch: None
    alike: bool = False

    def of_edge(self, source: int, target: int, num_ranks: int) -> int:
        """Return the ranks by which an edge is shifted from the first of those that take each other's places."""
        for end in (source, target):
            if end < num_ranks:
                return end - end % self.period
        return next((ranks for end in (source, target) if (ranks := self.shift_of(end)) is not None), 0)


@dataclass(frozen=True, eq=False)
class Network:
    """The graph of a fabric. ``step`` gives the next node on the way from a node to another rank.

    ``own`` are the edges of the first ``symmetry.period`` ranks, and of the switches that move with them, one of each
    that a shift maps onto each other: a mesh of 1,024 ranks has a thousand in place of a million. An edge belongs to
    the rank at its source, else at its target; between switches to those of the first that is not shifted.
    """

    num_ranks: int
    own: tuple[Edge, ...]
    step: StepFn
    symmetry: Symmetry
    # By destination, from each node known so far.
    _distances: dict[int, dict[int, _Distance]] = field(default_factory=dict)
    # By source and destination.
    _ways: dict[Ends, tuple[Ends, ...]] = field(default_factory=dict)
    # By source and target, neighbours that were passed.
    _passed: dict[Ends, Ends] = field(default_factory=dict)

    @property
    def period(self) -> int:
        """The least shift that maps the network onto itself, in ranks; all of them if there is no other."""
        return self.symmetry.period

    @property
    def symmetric(self) -> bool:
        """Whether its links look the same from every rank."""
        return self.period == 1 or self.symmetry.alike

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, shift by shift."""
        shifts = range(0, self.num_ranks, self.period)
        return tuple(self.shifted(edge, ranks) for ranks in shifts for edge in self.own)

    @cached_property
    def num_nodes(self) -> int:
        """Number of GPUs and switches."""
        return max([self.num_ranks, *(max(edge.ends) + 1 for edge in self.edges)])

    @cached_property
    def first_nodes(self) -> tuple[tuple[int, ...], ...]:
        """[from][to] The first node on the way from each rank: ways with the same one begin with the same link."""
        ranks = range(self.num_ranks)
        return tuple(tuple(a if a == b else self.step(a, b) for b in ranks) for a in ranks)

    def shifted(self, edge: Edge, ranks: int) -> Edge:
        """Return ``edge`` after a shift by so many ranks, a multiple of ``period``."""
        return Edge(*self.shifted_ends(edge.ends, ranks), edge.name, edge.bytes_per_s, edge.latency_ticks)

    def shifted_ends(self, ends: Ends, ranks: int) -> Ends:
        """Return two nodes after a shift by so many ranks, a multiple of ``period``."""
        return self._turned(ends[0], ranks), self._turned(ends[1], ranks)

    def edge(self, source: int, target: int) -> Edge:
        """Return the edge between two neighbours."""
        number, ranks = self._own_at(source, target)
        return self.shifted(self.own[number], ranks)

    def home(self, number: int) -> int:
        """Return the rank, below ``period``, at which the edge ``number`` of ``own`` counts.

        That is its source, else its target, if this is a GPU; between switches a fixed rank.
        """
        ends = self.own[number].ends
        return next((end for end in ends if end < self.num_ranks), sum(ends)) % self.period

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

    def way(self, source: int, destination: int) -> tuple[Ends, ...]:
        """Return the route between two ranks as hops: the number of an edge in ``own``, and ranks it is shifted by.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        shift = source - source % self.period
        ends = source - shift, (destination - shift) % self.num_ranks
        if ends not in self._ways:
            checkpoint()
            self._ways[ends] = tuple(self._own_at(*passed) for passed in pairwise(self.path(*ends)))
        way = self._ways[ends]
        return tuple((number, (ranks + shift) % self.num_ranks) for number, ranks in way) if shift else way

    def tree_to(self, destination: int) -> dict[int, tuple[int, Ends]]:
        """Return the next node on the way from each node to rank ``destination``, and the hop there as in ``way``.

        Nodes are those on the ways of all ranks. Each link is walked once.
        """
        checkpoint()
        tree = dict[int, tuple[int, Ends]]()
        for node in range(self.num_ranks):
            while node != destination and node not in tree:
                following = self.step(node, destination)
                tree[node] = following, self._own_at(node, following)
                node = following
        return tree

    def route(self, source: int, destination: int) -> tuple[Edge, ...]:
        """Return the edges from rank ``source`` to rank ``destination``; none from a rank to itself.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        return tuple(self.edge(*ends) for ends in pairwise(self.path(source, destination)))

    def slowest_bytes_per_s(self, source: int, destination: int) -> int:
        """Return the rate of the slowest link from rank ``source`` to another rank.

        Raises
        ------
        NoRoute
            If there is no way.
        """
        return min(self.own[number].bytes_per_s for number, _ in self.way(source, destination))

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
        """Check that all ranks reach each other: it is enough that rank 0 reaches all, and all reach it.

        Raises
        ------
        NoRoute
            If one does not.
        """
        onward = defaultdict[int, list[int]](list)
        for edge in self.edges:
            onward[edge.source].append(edge.target)
        reached, todo = {0}, [0]
        while todo:
            new = set(onward[todo.pop()]) - reached
            reached |= new
            todo.extend(new)
        for rank in range(1, self.num_ranks):
            checkpoint()
            if rank not in reached:
                raise NoRoute(0, rank)
            self.num_links(rank, 0)

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
        """Sum the rates of ``own`` by ``nodes``; ranks that a shift maps onto each other have the same sum."""
        rates = Counter[int]()
        for node, edge in zip(nodes, self.own, strict=True):
            if node < self.num_ranks:
                rates[node % self.period] += edge.bytes_per_s
        return tuple(rates[rank % self.period] for rank in range(self.num_ranks))

    def _distance(self, source: int, destination: int) -> _Distance:
        """Return links and latency from ``source``.

        Each link is walked once per destination, so all pairs of ranks together take time in proportion to the pairs of
        nodes; all routes are shifted to one of the first destinations.
        """
        shift = destination - destination % self.period
        source, destination = (source - shift) % self.num_ranks, destination - shift
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

    def _own_at(self, source: int, target: int) -> Ends:
        """Return the number in ``own`` of the edge between two neighbours, and the ranks it is shifted by."""
        ends = source, target
        if ends not in self._passed:
            ranks = self.symmetry.of_edge(source, target, self.num_ranks)
            self._passed[ends] = self._number[self._turned(source, -ranks), self._turned(target, -ranks)], ranks
        return self._passed[ends]

    def _turned(self, node: int, ranks: int) -> int:
        return (node + ranks) % self.num_ranks if node < self.num_ranks else self.symmetry.turned(node, ranks)
