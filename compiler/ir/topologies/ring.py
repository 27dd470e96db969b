"""Links to the neighbours on a ring; routes take the shorter way, and to the right at half the ring."""

from .base import LINK, ArgumentKind, Fabric, Topology, TopologyArgument
from .network import Edge, Network, Symmetry, edge_over


def _connect(fabric: Fabric, n: int) -> Network:
    right = [edge_over(fabric.link, 0, 1, "right")] if n > 1 else []
    left = [edge_over(fabric.link, 0, n - 1, "left")] if n > 2 and fabric.both_ways else []

    def around(node: int, destination: int) -> int:
        ahead = (destination - node) % n
        return (node + (1 if ahead <= n // 2 or not fabric.both_ways else -1)) % n

    return Network(n, (*right, *left), around, Symmetry(1))


def _where(edge: Edge) -> str:
    return f"around the ring to the {edge.name}"


TOPOLOGY = Topology(
    "ring",
    (LINK, TopologyArgument("both_ways", ArgumentKind.TRUTH, optional=True)),
    "ring(xgmi, both_ways=yes)",
    connect=_connect,
    where=_where,
    algorithms=("double_ring",),
)
