"""Nodes behind a switch each, joined rail by rail.

A route first goes to the GPU of the own node on the rail of the destination, then over that rail.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..hardware import Link
from ..stopping import Rejection
from .base import (
    LINK,
    SWITCH,
    ArgumentKind,
    Fabric,
    Topology,
    TopologyArgument,
    layout_of,
    reject_division,
    reject_ports,
)
from .network import Edge, Network, Symmetry, edge_over


@dataclass(frozen=True, slots=True)
class Rails:
    """Nodes of ``node`` consecutive GPUs; the k-th GPU of every node has a ``nic`` link to rail switch k."""

    node: int
    nic: Link


def _connect(fabric: Fabric, n: int) -> Network:
    link, node, nic = fabric.link, layout_of(fabric, Rails).node, layout_of(fabric, Rails).nic
    first_rail = n + n // node
    period = node if n > node else 1

    def edges() -> Iterator[Edge]:
        for rank in range(period):
            inside, rail = n, first_rail + rank
            yield edge_over(link, rank, inside, "up")
            yield edge_over(link, inside, rank, "down", fabric.switch)
            if n > node:
                yield edge_over(nic, rank, rail, "nic-out")
                yield edge_over(nic, rail, rank, "nic-in")

    def step(at: int, destination: int) -> int:
        rail = destination % node
        if at >= first_rail:
            return destination
        if at >= n:
            return (at - n) * node + rail
        return first_rail + rail if at % node == rail else n + at // node

    # The switches inside nodes move with them, those of the rails stay.
    symmetry = Symmetry(
        period,
        lambda switch, ranks: switch if switch >= first_rail else n + (switch - n + ranks // node) % (n // node),
        lambda switch: None if switch >= first_rail else (switch - n) * node,
    )
    return Network(n, tuple(edges()), step, symmetry)


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    node = layout_of(fabric, Rails).node
    assert fabric.switch is not None, "the compiler gives every fabric of rails its switch"
    return reject_division(n, node, "node") or reject_ports(fabric.switch, node, "a node")


def _more_links(fabric: Fabric) -> tuple[Link, ...]:
    return (layout_of(fabric, Rails).nic,)


def _node_size(fabric: Fabric) -> int:
    return layout_of(fabric, Rails).node


TOPOLOGY = Topology(
    "rails",
    (SWITCH, LINK, TopologyArgument("node", ArgumentKind.COUNT), TopologyArgument("nic", ArgumentKind.LINK)),
    "rails(nvswitch, link=nvlink, node=8, nic=ib)",
    connect=_connect,
    layout=Rails,
    reject=_reject,
    more_links=_more_links,
    node_size=_node_size,
)
