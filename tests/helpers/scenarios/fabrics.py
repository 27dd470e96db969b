"""Fabrics of every kind, with the number of GPUs they join."""

from collections.abc import Collection

from magus.compiler.ir import Fabric, Link, Switch, Wire, topologies
from magus.compiler.ir.topologies.edges import EdgeGraph
from magus.compiler.ir.topologies.levels import FatTree, Rails
from magus.compiler.ir.topologies.torus import Torus
from tests.helpers.scenarios.scenarios import G, full_mesh, nvlink, ring, switch, ticks, xgmi


def crossbar(latency_us: float = 0.25) -> Switch:
    """A switch with many ports."""
    return Switch("crossbar", 64, 450 * G, ticks(latency_us))


def nic() -> Link:
    """A link to another node: 400 Gb/s."""
    return Link("nic", 50 * G, 45 * G, ticks(1.5))


def torus(*shape: int) -> Fabric:
    """A torus over the links of an MI300X."""
    return Fabric(topologies.torus.TOPOLOGY, xgmi(), layout=Torus(shape))


def fat_tree(leaf: int, spines: int) -> Fabric:
    """A fat tree of crossbars."""
    return Fabric(topologies.levels.FAT_TREE, nvlink(), crossbar(), layout=FatTree(leaf, spines))


def rails(node: int) -> Fabric:
    """Nodes with a crossbar each, joined rail by rail."""
    return Fabric(topologies.levels.RAILS, nvlink(), crossbar(), layout=Rails(node, nic()))


def graph(
    *ends: tuple[int, int], switches: int = 0, link: Link | None = None, one_way: Collection[tuple[int, int]] = ()
) -> Fabric:
    """Links one by one, those of ``one_way`` from the first end to the second alone."""
    wires = tuple(Wire(pair, link or xgmi(), one_way=pair in one_way) for pair in (*ends, *one_way))
    return Fabric(topologies.edges.TOPOLOGY, wires[0].link, layout=EdgeGraph(wires, switches))


def group_of(fabric: Fabric, num_ranks: int, stride: int, size: int) -> Fabric:
    """What one of several groups of ranks sees."""
    found = topologies.part_of(fabric, num_ranks, stride, size)
    assert isinstance(found, Fabric)
    return found


UNEVEN: dict[str, tuple[int, Fabric]] = {
    "torus 8": (8, torus(8)),
    "torus 2 x 2": (4, torus(2, 2)),
    "torus 3 x 4": (12, torus(3, 4)),
    "torus 2 x 2 x 2": (8, torus(2, 2, 2)),
    "fat tree": (8, fat_tree(4, 2)),
    "fat tree with a spine for each GPU": (8, fat_tree(2, 4)),
    "fat tree that leaves share unevenly": (12, fat_tree(4, 5)),
    "fat tree of four leaves": (16, fat_tree(4, 8)),
    "rails": (8, rails(4)),
    "rails of three nodes": (12, rails(4)),
    "rails of single links": (
        8,
        graph(*((i, 8 + i // 4) for i in range(8)), *((i, 10 + i % 4) for i in range(8)), switches=6),
    ),
    "circle with chords": (8, graph(*((i, (i + 1) % 8) for i in range(8)), (0, 4), (2, 6))),
    "star": (4, graph((0, 4), (1, 4), (2, 4), (3, 4), switches=1)),
    "chain": (4, graph((0, 1), (1, 2), (2, 3))),
    "streets of one way": (
        6,
        graph(*((i, (i + 2) % 6) for i in range(6)), one_way=[(i, (i + 1) % 6) for i in range(6)]),
    ),
    "one way through a switch": (3, graph((0, 1), (2, 3), switches=1, one_way=[(3, 0), (1, 3)])),
    "group that shares a ring": (4, group_of(ring(), 8, 2, 4)),
    "group of leaves that share spines": (6, group_of(fat_tree(4, 3), 12, 2, 6)),
    "two triangles": (6, graph((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 6), (3, 6), switches=1)),
}
"""By name: how many GPUs, and a fabric that is not the same from each of them by construction."""

EVERY: dict[str, tuple[int, Fabric]] = UNEVEN | {
    "mesh": (6, full_mesh()),
    "ring": (7, ring()),
    "one way": (6, ring(both_ways=False)),
    "switch": (8, switch()),
}
"""The same of every topology: a new one has a row here, or above."""
