"""Topologies of one level: a link between every two GPUs, links to neighbours on a ring, a link to a crossbar.

On a ring routes take the shorter way, and to the right at half the ring.
"""

from ..stopping import Rejection
from .base import LINK, SWITCH, ArgumentKind, Fabric, Topology, TopologyArgument, reject_ports
from .network import Edge, Network, Symmetry, edge_over


def _full_mesh_connect(fabric: Fabric, n: int) -> Network:
    edges = tuple(edge_over(fabric.link, 0, peer, f"link+{peer}") for peer in range(1, n))
    return Network(n, edges, lambda node, destination: destination, Symmetry(1))


def _full_mesh_where(edge: Edge) -> str:
    return "from one rank to another"


def _same(fabric: Fabric, stride: int, size: int) -> Fabric:
    """Ranks with links of their own to all others, or to one switch, are joined alike in any group."""
    return fabric


FULL_MESH = Topology(
    "full_mesh",
    (LINK,),
    "full_mesh(xgmi)",
    connect=_full_mesh_connect,
    part=_same,
    where=_full_mesh_where,
    direct=True,
)


def _ring_connect(fabric: Fabric, n: int) -> Network:
    right = [edge_over(fabric.link, 0, 1, "right")] if n > 1 else []
    left = [edge_over(fabric.link, 0, n - 1, "left")] if n > 2 and fabric.both_ways else []

    def around(node: int, destination: int) -> int:
        ahead = (destination - node) % n
        return (node + (1 if ahead <= n // 2 or not fabric.both_ways else -1)) % n

    return Network(n, (*right, *left), around, Symmetry(1))


def _ring_where(edge: Edge) -> str:
    return f"around the ring to the {edge.name}"


RING = Topology(
    "ring",
    (LINK, TopologyArgument("both_ways", ArgumentKind.TRUTH, optional=True)),
    "ring(xgmi, both_ways=yes)",
    connect=_ring_connect,
    where=_ring_where,
    algorithms=("double_ring",),
)


def _switch_connect(fabric: Fabric, n: int) -> Network:
    edges = edge_over(fabric.link, 0, n, "up"), edge_over(fabric.link, n, 0, "down", fabric.switch)
    return Network(n, edges, lambda node, destination: destination if node == n else n, Symmetry(1))


def _switch_reject(fabric: Fabric, n: int) -> Rejection | None:
    assert fabric.switch is not None, "the compiler gives every switch fabric its switch"
    return reject_ports(fabric.switch, n, "the switch")


CROSSBAR = Topology(
    "switch",
    (SWITCH, LINK),
    "switch(nvswitch, link=nvlink)",
    connect=_switch_connect,
    part=_same,
    reject=_switch_reject,
    direct=True,
)
