"""Topologies. In: arguments. Out: the graph of links and routes. A new one is a file, a line here, a row in a test."""

from . import edges, levels, torus
from .base import WIRES as WIRES
from .base import ArgumentKind as ArgumentKind
from .base import Fabric as Fabric
from .base import Topology as Topology
from .base import TopologyArgument as TopologyArgument
from .base import Wire as Wire
from .base import network_of as network_of
from .base import part_of as part_of
from .network import Edge as Edge
from .network import Network as Network
from .network import NoRoute as NoRoute

TOPOLOGIES: tuple[Topology, ...] = (
    levels.FULL_MESH,
    levels.RING,
    levels.CROSSBAR,
    torus.TOPOLOGY,
    levels.FAT_TREE,
    levels.RAILS,
    edges.TOPOLOGY,
)
