"""The fabric of a group: some ranks of a larger system, every ``stride``-th of them, as they see it.

All groups of one axis move data at the same time: where several cross a link, each has its share of the rate. Groups
whose routes are alike may share links unequally, as those in the middle of a line do; then a link has the least of the
shares that it has in any group. Nodes outside of a group forward, as switches do.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

from ...codes import Code
from ..hardware import Link
from ..stopping import Rejection, checkpoint
from .base import Fabric, Topology, layout_of, network_of
from .network import Edge, Ends, Network, Symmetry

MOST_ROUTES = 1 << 18
"""Routes of all groups that are looked at; larger systems have a form of their own for their groups, or none."""


@dataclass(frozen=True, slots=True)
class WholePart:
    """Every ``stride``-th of the ``num_ranks`` of a ``whole`` fabric."""

    whole: Fabric
    num_ranks: int
    stride: int


def part_of(fabric: Fabric, num_ranks: int, stride: int, size: int) -> Fabric | Rejection:
    """Return the fabric of ``size`` ranks, each ``stride`` after the one before, of one with ``num_ranks``.

    Where only plainer routes of the topology are alike for all groups, those are taken. Rejects groups whose routes are
    not alike, and so many of them that they cannot be looked at one by one (MGS440).
    """
    if size == num_ranks:
        return fabric
    found = fabric.topology.part(fabric, stride, size)
    if found is not None:
        return found
    part, what = WholePart(fabric, num_ranks, stride), f"groups of {size} gpus, each {stride} after the one before,"
    if num_ranks * size > MOST_ROUTES:
        message = f"{what} of {num_ranks} on {fabric.topology.name} have too many routes"
        return Rejection(Code.MGS440, message, "rails, torus and switch have groups of any size")
    unlike = _seen(part, size).unlike
    plainer = None if unlike is None else fabric.topology.plainer(fabric)
    if plainer is not None:
        return part_of(plainer, num_ranks, stride, size)
    if unlike is not None:
        message = f"{what} are not alike: gpu {unlike} is not joined to its group as gpu 0 to its own"
        return Rejection(Code.MGS440, message, "write each kind of group as a system of its own")
    return Fabric(TOPOLOGY, fabric.link, fabric.switch, fabric.both_ways, part)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a group sees: edges in its own numbers, the node of each number, the first rank of a group unlike it."""

    edges: tuple[Edge, ...]
    nodes: tuple[int, ...]
    unlike: int | None


@lru_cache(maxsize=16)
def _seen(part: WholePart, size: int) -> _Seen:
    network, span = network_of(part.whole, part.num_ranks), part.stride * size
    bases = [base for base in range(part.num_ranks) if base % span < part.stride]
    passed = [tuple(dict.fromkeys(_hops(network, range(base, base + span, part.stride)))) for base in bases]
    over = Counter(hop for hops in passed for hop in hops)
    most = [max(groups) for groups in zip(*([over[hop] for hop in hops] for hops in passed), strict=False)]
    edges, nodes = _numbered(network, range(0, span, part.stride), passed[0])
    joined = [(edge.ends, edge.bytes_per_s, edge.latency_ticks) for edge in edges]
    for base, hops in zip(bases, passed, strict=True):
        others, _ = _numbered(network, range(base, base + span, part.stride), hops)
        if [(edge.ends, edge.bytes_per_s, edge.latency_ticks) for edge in others] != joined:
            return _Seen((), (), base)
    shared = (
        replace(edge, name=f"{edge.name}/{groups}", bytes_per_s=edge.bytes_per_s // groups) if groups > 1 else edge
        for edge, groups in zip(edges, most, strict=True)
    )
    return _Seen(tuple(shared), nodes, None)


def _hops(network: Network, ranks: range) -> Iterator[Ends]:
    """The hops of all routes among some ranks; see ``Network.way``."""
    for source, destination in permutations(ranks, 2):
        checkpoint()
        yield from network.way(source, destination)


def _numbered(network: Network, ranks: range, hops: tuple[Ends, ...]) -> tuple[list[Edge], tuple[int, ...]]:
    """Return edges with ``ranks`` as 0, 1 and so on, and other nodes behind them as they are passed; all nodes."""
    numbers = {rank: number for number, rank in enumerate(ranks)}
    edges = []
    for number, shift in hops:
        edge = network.shifted(network.own[number], shift)
        source, target = (numbers.setdefault(node, len(numbers)) for node in edge.ends)
        edges.append(replace(edge, source=source, target=target))
    return edges, tuple(numbers)


def _connect(fabric: Fabric, n: int) -> Network:
    part = layout_of(fabric, WholePart)
    whole, seen = network_of(part.whole, part.num_ranks), _seen(part, n)
    numbers = {node: number for number, node in enumerate(seen.nodes)}

    def step(node: int, destination: int) -> int:
        return numbers[whole.step(seen.nodes[node], seen.nodes[destination])]

    return Network(n, seen.edges, step, Symmetry(n))


def _more_links(fabric: Fabric) -> tuple[Link, ...]:
    return layout_of(fabric, WholePart).whole.links


TOPOLOGY = Topology("part", (), "", connect=_connect, layout=WholePart, more_links=_more_links)
"""What no text says: a group whose ranks are joined as those of no topology."""
