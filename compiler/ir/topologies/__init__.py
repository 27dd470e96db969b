"""Topologies. In: arguments. Out: the graph of links and routes. A new one is a file, a line here, a row in a test."""

from . import edges, levels, torus
from .base import WIRES, ArgumentKind, Fabric, Topology, TopologyArgument, Wire, network_of, part_of
from .network import Edge, Network, NoRoute

TOPOLOGIES: tuple[Topology, ...] = (
    levels.FULL_MESH,
    levels.RING,
    levels.CROSSBAR,
    torus.TOPOLOGY,
    levels.FAT_TREE,
    levels.RAILS,
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
