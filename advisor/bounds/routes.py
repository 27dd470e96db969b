"""The routes of a fabric as arrays: the edges on the routes from every rank r to r + k."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Edge, Fabric, checkpoint, network_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """The hops of several routes: indices of edges in the table, and the sending rank of each hop."""

    edge: Ints
    rank: Ints


@dataclass(frozen=True, eq=False, slots=True)
class RouteTable:
    """``onward`` [ranks, nodes] is the edge that leaves a node on the route to a rank, -1 without a route."""

    num_ranks: int
    edges: tuple[Edge, ...]
    onward: npt.NDArray[np.int32]
    target: Ints  # [E]

    def passes(self, peer: int) -> Passes:
        """Return the hops of the routes from every rank r to r + ``peer``."""
        checkpoint()
        ranks = np.arange(self.num_ranks)
        hops = list(self._hops(ranks, (ranks + peer) % self.num_ranks))
        return Passes(*(np.concatenate([hop[i] for hop in hops]) for i in (0, 1)))

    def times(self, passes: Passes) -> Ints:
        """Return [E] how often each edge is passed."""
        return np.bincount(passes.edge, minlength=len(self.edges))

    def _hops(self, rank: Ints, destination: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield for each hop number the edges, and the sending ranks."""
        node = rank
        while True:
            moving = node != destination
            rank, node, destination = rank[moving], node[moving], destination[moving]
            if not len(node):
                return
            edge = self.onward[destination, node].astype(np.int64)
            yield edge, rank
            node = self.target[edge]


@lru_cache(maxsize=4)
def routes_of(fabric: Fabric, num_ranks: int) -> RouteTable:
    """Return the table of a fabric whose ranks all reach each other."""
    network = network_of(fabric, num_ranks)
    index = {edge.ends: number for number, edge in enumerate(network.edges)}
    onward = np.full((num_ranks, network.num_nodes), -1, np.int32)
    for destination in range(num_ranks):
        checkpoint()
        row = onward[destination]
        known = {destination}
        for node in range(num_ranks):
            while node not in known:
                known.add(node)
                following = network.step(node, destination)
                row[node] = index[node, following]
                node = following
    target = np.array([edge.target for edge in network.edges], np.int64)
    return RouteTable(num_ranks, network.edges, onward, target)
