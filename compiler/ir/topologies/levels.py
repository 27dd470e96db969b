"""Topologies of one level, and of two: nodes of GPUs, and links between nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

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

# Topologies of one level: a link between every two GPUs, links to neighbours on a ring, a link to a crossbar.
#
# On a ring routes take the shorter way, and to the right at half the ring.


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


# Topologies of two levels: a fat tree of leaves and spines, and nodes that are joined rail by rail.
#
# The spine of a route in a fat tree is ``destination mod spines``, "D-mod-K" (Zahavi, "Fat-Trees Routing and Node
# Ordering Providing Contention Free Traffic for MPI Global Collectives", 2010), in place of hashing flows to equal
# paths. A route between nodes first goes to the GPU of the own node on the rail of the destination, then over that
# rail.


@dataclass(frozen=True, slots=True)
class FatTree:
    """``leaf`` consecutive GPUs to a leaf switch, and a link from each of those to each of the spines.

    ``sharing`` groups of ranks that move data at once share each of these links, of whose rate one has its part.
    """

    leaf: int
    spines: int
    sharing: int = 1


def _fat_tree_connect(fabric: Fabric, n: int) -> Network:
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
                up = edge_over(link, leaf, spine, "leaf-spine", switch)
                down = edge_over(link, spine, leaf, "spine-leaf", switch)
                yield from (replace(edge, bytes_per_s=edge.bytes_per_s // tree.sharing) for edge in (up, down))

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


def _fat_tree_reject(fabric: Fabric, n: int) -> Rejection | None:
    tree = layout_of(fabric, FatTree)
    assert fabric.switch is not None, "the compiler gives every fat tree its switch"
    needed = max(tree.leaf + tree.spines, n // tree.leaf)
    return reject_division(n, tree.leaf, "leaf") or reject_ports(fabric.switch, needed, "a leaf or spine")


def _fat_tree_node_size(fabric: Fabric) -> int:
    return layout_of(fabric, FatTree).leaf


def _behind_one(fabric: Fabric) -> Fabric:
    """The fabric of ranks that one switch joins."""
    return Fabric(CROSSBAR, fabric.link, fabric.switch)


def _fat_tree_part(fabric: Fabric, stride: int, size: int) -> Fabric | None:
    """Ranks of one leaf, or some of each leaf; these share the links to the spines with the others of the leaf."""
    tree = layout_of(fabric, FatTree)
    if tree.leaf % (stride * size) == 0:
        return _behind_one(fabric)
    near, far = sorted((tree.leaf, stride))
    own, classes = max(1, tree.leaf // stride), gcd(stride, tree.spines)
    spines, sharing = tree.spines // classes, -(-near // classes)
    # Groups that share no spine have their links alone. Else all reach each of theirs from, and into, each leaf.
    alike = sharing == 1 or (near % classes == 0 and own >= spines)
    if far % near or stride * size % tree.leaf or not alike:
        return None
    return replace(fabric, layout=FatTree(own, spines, tree.sharing * sharing))


FAT_TREE = Topology(
    "fat_tree",
    (SWITCH, LINK, TopologyArgument("leaf", ArgumentKind.COUNT), TopologyArgument("spines", ArgumentKind.COUNT)),
    "fat_tree(nvswitch, link=nvlink, leaf=8, spines=4)",
    connect=_fat_tree_connect,
    part=_fat_tree_part,
    layout=FatTree,
    reject=_fat_tree_reject,
    node_size=_fat_tree_node_size,
)


@dataclass(frozen=True, slots=True)
class Rails:
    """Nodes of ``node`` consecutive GPUs; the k-th GPU of every node has a ``nic`` link to rail switch k."""

    node: int
    nic: Link


def _rails_connect(fabric: Fabric, n: int) -> Network:
    link, node, nic = fabric.link, layout_of(fabric, Rails).node, layout_of(fabric, Rails).nic
    first_rail = n + n // node
    period = node if n > node else 1

    def edges() -> Iterator[Edge]:
        for rank in range(period):
            inside, rail = n, first_rail + rank
            if node > 1:  # a GPU alone in its node has nothing to say there
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


def _rails_reject(fabric: Fabric, n: int) -> Rejection | None:
    node = layout_of(fabric, Rails).node
    assert fabric.switch is not None, "the compiler gives every fabric of rails its switch"
    return reject_division(n, node, "node") or reject_ports(fabric.switch, node, "a node")


def _rails_more_links(fabric: Fabric) -> tuple[Link, ...]:
    return (layout_of(fabric, Rails).nic,)


def _rails_node_size(fabric: Fabric) -> int:
    return layout_of(fabric, Rails).node


def _rails_part(fabric: Fabric, stride: int, size: int) -> Fabric | None:
    """Ranks of one node, or some of each node: every rank has its own links to its switch and its rail."""
    node = layout_of(fabric, Rails).node
    if node % (stride * size) == 0:
        return _behind_one(fabric)
    inside = node // stride if node % stride == 0 else 1 if stride % node == 0 else 0
    if not inside or size % inside:
        return None
    return replace(fabric, layout=Rails(inside, layout_of(fabric, Rails).nic))


RAILS = Topology(
    "rails",
    (SWITCH, LINK, TopologyArgument("node", ArgumentKind.COUNT), TopologyArgument("nic", ArgumentKind.LINK)),
    "rails(nvswitch, link=nvlink, node=8, nic=ib)",
    connect=_rails_connect,
    part=_rails_part,
    layout=Rails,
    reject=_rails_reject,
    more_links=_rails_more_links,
    node_size=_rails_node_size,
)
