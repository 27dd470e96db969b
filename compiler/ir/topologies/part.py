"""The fabric of a group: some ranks of a larger system, every ``stride``-th of them, as they see it.

All groups of one axis move data at the same time: where several cross a link, each has its share of the rate.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ...codes import Code
from ..hardware import Link
from ..stopping import Rejection, checkpoint
from .base import Fabric, Topology, layout_of, network_of
from .network import Edge, Network, Symmetry

MOST_ROUTES = 200_000
"""Routes of all groups that are looked at; larger systems have a form of their own for their groups, or none."""


@dataclass(frozen=True, slots=True)
class Part:
    """Every ``stride``-th of the ``num_ranks`` of a ``whole`` fabric."""

    whole: Fabric
    num_ranks: int
    stride: int


def part_of(fabric: Fabric, num_ranks: int, stride: int, size: int) -> Fabric | Rejection:
    """Return the fabric of ``size`` ranks, each ``stride`` after the one before, of one with ``num_ranks``.

    Rejects a group of so many routes that they cannot be looked at one by one.
    """
    if size == num_ranks:
        return fabric
    found = fabric.topology.part(fabric, stride, size)
    if found is not None:
        return found
    if num_ranks * size > MOST_ROUTES:
        message = f"a group of {size}, every {stride} ranks, of {num_ranks} on {fabric.topology.name}"
        return Rejection(
            Code.MGS420, f"{message} has too many routes", "rails, torus and switch have groups of any size"
        )
    return Fabric(TOPOLOGY, fabric.link, fabric.switch, fabric.both_ways, Part(fabric, num_ranks, stride))


def _ranks_of(part: Part, size: int) -> Iterator[tuple[int, ...]]:
    """The ranks of each group along the same axis."""
    span = part.stride * size
    for base in range(0, part.num_ranks, span):
        for first in range(base, base + part.stride):
            yield tuple(range(first, base + span, part.stride))


def _passed(network: Network, ranks: tuple[int, ...]) -> dict[tuple[int, int], Edge]:
    """The edges that routes among some ranks pass, by their ends."""
    found: dict[tuple[int, int], Edge] = {}
    for source in ranks:
        checkpoint()
        for destination in ranks:
            for ends in pairwise(network.path(source, destination)):
                if ends not in found:
                    found[ends] = network.edge(*ends)
    return found


def _connect(fabric: Fabric, n: int) -> Network:
    part = layout_of(fabric, Part)
    network = network_of(part.whole, part.num_ranks)
    crossed = Counter[tuple[int, int]]()
    own: dict[tuple[int, int], Edge] = {}
    for number, ranks in enumerate(_ranks_of(part, n)):
        passed = _passed(network, ranks)
        crossed.update(passed)
        own = passed if number == 0 else own
    mine = {rank * part.stride: rank for rank in range(n)}
    others = sorted({end for ends in own for end in ends} - set(mine))
    names = mine | {node: n + place for place, node in enumerate(others)}
    nodes = {name: node for node, name in names.items()}
    edges = tuple(
        replace(
            edge,
            source=names[ends[0]],
            target=names[ends[1]],
            name=edge.name if crossed[ends] == 1 else f"{edge.name}/{crossed[ends]}",
            bytes_per_s=edge.bytes_per_s // crossed[ends],
        )
        for ends, edge in own.items()
    )

    def step(node: int, destination: int) -> int:
        return names[network.step(nodes[node], nodes[destination])]

    return Network(n, edges, step, Symmetry(n))


def _more_links(fabric: Fabric) -> tuple[Link, ...]:
    return layout_of(fabric, Part).whole.links


TOPOLOGY = Topology("part", (), "", connect=_connect, layout=Part, more_links=_more_links)
