"""A link of its own between every two GPUs."""

from .base import LINK, Fabric, Topology
from .network import Edge, Network, Symmetry, edge_over


def _connect(fabric: Fabric, n: int) -> Network:
    edges = tuple(edge_over(fabric.link, 0, peer, f"link+{peer}") for peer in range(1, n))
    return Network(n, edges, lambda node, destination: destination, Symmetry(1))


def _where(edge: Edge) -> str:
    return "from one rank to another"


TOPOLOGY = Topology("full_mesh", (LINK,), "full_mesh(xgmi)", connect=_connect, where=_where, direct=True)
