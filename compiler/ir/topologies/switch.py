"""One link per GPU to a crossbar."""

from ..stopping import Rejection
from .base import LINK, SWITCH, Fabric, Topology, reject_ports
from .network import Network, Symmetry, edge_over


def _connect(fabric: Fabric, n: int) -> Network:
    edges = edge_over(fabric.link, 0, n, "up"), edge_over(fabric.link, n, 0, "down", fabric.switch)
    return Network(n, edges, lambda node, destination: destination if node == n else n, Symmetry(1))


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    assert fabric.switch is not None, "the compiler gives every switch fabric its switch"
    return reject_ports(fabric.switch, n, "the switch")


TOPOLOGY = Topology(
    "switch",
    (SWITCH, LINK),
    "switch(nvswitch, link=nvlink)",
    connect=_connect,
    reject=_reject,
    direct=True,
)
