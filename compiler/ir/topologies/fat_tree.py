"""Two levels of switches: leaves with GPUs, and spines that each leaf has a link to.

The spine of a route is ``destination mod spines``, "D-mod-K" (Zahavi, "Fat-Trees Routing and Node Ordering Providing
Contention Free Traffic for MPI Global Collectives", 2010), in place of hashing flows to equal paths.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
class FatTree:
    """``leaf`` consecutive GPUs to a leaf switch, and a link from each of those to each of the spines."""

    leaf: int
    spines: int


def _connect(fabric: Fabric, n: int) -> Network:
    tree, link, switch = layout_of(fabric, FatTree), fabric.link, fabric.switch
    leaves = n // tree.leaf
    first_spine = n + leaves
    # Leaf by leaf, if that turns the spines; they stay for a shift of all ranks, and where there is one leaf only.
    period = 1 if leaves == 1 else tree.leaf if n % tree.spines == 0 else n

    def edges() -> Iterator[Edge]:
        for rank in range(period):
            yield edge_over(link, rank, n + rank // tree.leaf, "up")
            yield edge_over(link, n + rank // tree.leaf, rank, "down", switch)
        for leaf in range(n, n + period // tree.leaf):
            for spine in range(first_spine, first_spine + tree.spines):
                yield edge_over(link, leaf, spine, "leaf-spine", switch)
                yield edge_over(link, spine, leaf, "spine-leaf", switch)

    def step(node: int, destination: int) -> int:
        if node < n:
            return n + node // tree.leaf
        above = n + destination // tree.leaf
        if node >= first_spine:
            return above
        return destination if node == above else first_spine + destination % tree.spines

    def turned(switch: int, ranks: int) -> int:
        if switch >= first_spine:
            return first_spine + (switch - first_spine + ranks) % tree.spines
        return n + (switch - n + ranks // tree.leaf) % leaves

    def shift_of(switch: int) -> int | None:
        return None if switch >= first_spine else (switch - n) * tree.leaf // period * period

    return Network(n, tuple(edges()), step, Symmetry(period, turned, shift_of))


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    tree = layout_of(fabric, FatTree)
    assert fabric.switch is not None, "the compiler gives every fat tree its switch"
    needed = max(tree.leaf + tree.spines, n // tree.leaf)
    return reject_division(n, tree.leaf, "leaf") or reject_ports(fabric.switch, needed, "a leaf or spine")


def _node_size(fabric: Fabric) -> int:
    return layout_of(fabric, FatTree).leaf


TOPOLOGY = Topology(
    "fat_tree",
    (SWITCH, LINK, TopologyArgument("leaf", ArgumentKind.COUNT), TopologyArgument("spines", ArgumentKind.COUNT)),
    "fat_tree(nvswitch, link=nvlink, leaf=8, spines=4)",
    connect=_connect,
    layout=FatTree,
    reject=_reject,
    node_size=_node_size,
)
