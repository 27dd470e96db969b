"""Topologies. In: arguments. Out: the graph of links and routes. A new one is a file, a line here, a row in a test."""

from . import edges, one_level, torus, two_levels
from .base import WIRES, ArgumentKind, Fabric, Topology, TopologyArgument, Wire, network_of
from .network import Edge, Network, NoRoute
from .part import part_of

TOPOLOGIES: tuple[Topology, ...] = (
    one_level.FULL_MESH,
    one_level.RING,
    one_level.CROSSBAR,
    torus.TOPOLOGY,
    two_levels.FAT_TREE,
    two_levels.RAILS,
    edges.TOPOLOGY,
)

__all__ = [
    "TOPOLOGIES",
    "WIRES",
    "TopologyArgument",
    "ArgumentKind",
    "Edge",
    "Fabric",
    "Network",
    "NoRoute",
    "Topology",
    "Wire",
    "network_of",
    "part_of",
]
