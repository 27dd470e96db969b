"""The routes of a fabric as arrays: which edges are passed where every rank sends to the rank so much further."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Edge, Fabric, checkpoint, network_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """Edges that are passed, as places in the table, and the rank that sends there; one entry for each hop."""

    edge: Ints
    rank: Ints


@dataclass(frozen=True, eq=False, slots=True)
class RouteTable:
    """``onward`` [ranks, nodes] is the edge that leaves a node on the way to a rank, -1 where no route passes."""

    num_ranks: int
    edges: tuple[Edge, ...]
    onward: npt.NDArray[np.int32]
    target: Ints  # [E]

    def passes(self, peer: int) -> Passes:
        """What is passed where every rank r sends to r + ``peer``."""
        checkpoint()
        ranks = np.arange(self.num_ranks)
        hops = list(self._hops(ranks, (ranks + peer) % self.num_ranks))
        return Passes(*(np.concatenate([hop[i] for hop in hops]) for i in (0, 1)))

    def times(self, passes: Passes) -> Ints:
        """[E] how often each edge is passed."""
        return np.bincount(passes.edge, minlength=len(self.edges))

    def _hops(self, rank: Ints, destination: Ints) -> Iterator[tuple[Ints, Ints]]:
        """For each hop the edges that are passed, and who sends."""
        node = rank
        while True:
            going = node != destination
            rank, node, destination = rank[going], node[going], destination[going]
            if not len(node):
                return
            edge = self.onward[destination, node].astype(np.int64)
            yield edge, rank
            node = self.target[edge]


@lru_cache(maxsize=4)
def routes_of(fabric: Fabric, num_ranks: int) -> RouteTable:
    """The table of a fabric whose ranks all reach each other."""
    network = network_of(fabric, num_ranks)
    place = {edge.ends: number for number, edge in enumerate(network.edges)}
    onward = np.full((num_ranks, network.num_nodes), -1, np.int32)
    for destination in range(num_ranks):
        checkpoint()
        row = onward[destination]
        known = {destination}
        for node in range(num_ranks):
            while node not in known:
                known.add(node)
                following = network.step(node, destination)
                row[node] = place[node, following]
                node = following
    target = np.array([edge.target for edge in network.edges], np.int64)
    return RouteTable(num_ranks, network.edges, onward, target)
