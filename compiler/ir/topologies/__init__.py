"""Topologies. In: arguments. Out: the graph of links and routes. A new one is a file, a line here, a row in a test."""

from . import edges, fat_tree, full_mesh, rails, ring, switch, torus
from .base import WIRES, ArgumentKind, Fabric, Topology, TopologyArgument, Wire, network_of
from .network import Edge, Network, NoRoute

TOPOLOGIES: tuple[Topology, ...] = (
    full_mesh.TOPOLOGY,
    ring.TOPOLOGY,
    switch.TOPOLOGY,
    torus.TOPOLOGY,
    fat_tree.TOPOLOGY,
    rails.TOPOLOGY,
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
]
