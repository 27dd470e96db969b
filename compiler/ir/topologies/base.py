"""The description of a topology, and a fabric: a topology with its links and sizes."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from itertools import permutations
from typing import TypeVar

from ...codes import Code
from ..hardware import Link, Switch
from ..stopping import Rejection, checkpoint
from .network import Edge, Ends, Network, Symmetry


class ArgumentKind(Enum):
    """The form of an argument of a topology, and the type of its value."""

    LINK = auto()  # the name of a link: a Link
    SWITCH = auto()  # the name of a switch: a Switch
    TRUTH = auto()  # true or false: a bool
    COUNT = auto()  # a whole number: an int
    COUNTS = auto()  # a list of up to ``max_items`` whole numbers: a tuple of int


@dataclass(frozen=True, slots=True)
class TopologyArgument:
    """One argument of a topology.

    ``minimum`` is the least value of a count. ``label`` stands for the name in messages; for a list it names one item.
    ``too_many`` is the message for a list of more than ``max_items``, with a place for that number.
    """

    name: str
    kind: ArgumentKind
    optional: bool = False
    minimum: int = 1
    max_items: int = 1
    label: str = ""
    too_many: str = ""
    example: str = ""


_Layout = TypeVar("_Layout")
LINK = TopologyArgument("link", ArgumentKind.LINK)
SWITCH = TopologyArgument("switch", ArgumentKind.SWITCH)
WIRES = "wires"
"""Name of the argument of ``Topology.layout`` that takes the wires, if the topology takes names of links."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A link between two nodes of a graph, both ways, or from the first to the second alone."""

    ends: tuple[int, int]
    link: Link
    one_way: bool = False

    @property
    def ways(self) -> tuple[tuple[int, int], ...]:
        """Source and target of each direction."""
        return (self.ends,) if self.one_way else (self.ends, self.ends[::-1])


def _fits(fabric: "Fabric", num_ranks: int) -> Rejection | None:
    return None


def _no_more_links(fabric: "Fabric") -> tuple[Link, ...]:
    return ()


def _no_nodes(fabric: "Fabric") -> int:
    return 0


def _no_grid(fabric: "Fabric") -> tuple[int, ...]:
    return ()


def _no_part(fabric: "Fabric", stride: int, size: int) -> "Fabric | None":
    return None


def _no_plainer(fabric: "Fabric") -> "Fabric | None":
    return None


def _busiest(edge: Edge) -> str:
    return "of the busiest link"


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to join GPUs: its name, its arguments, and functions that build its graph.

    The functions are defined at the top level of a module, so that a fabric can be pickled.
    """

    name: str
    arguments: tuple[TopologyArgument, ...]
    example: str
    # Builds the graph of a fabric with a number of ranks that ``reject`` accepts.
    connect: Callable[["Fabric", int], Network] = field(repr=False)
    # A frozen dataclass of what is needed beside link, switch and both_ways; its fields have the names of arguments.
    layout: Callable[..., Hashable] | None = field(default=None, repr=False)
    # Rejects sizes that do not fit the number of ranks, and switches with too few ports.
    reject: Callable[["Fabric", int], Rejection | None] = field(default=_fits, repr=False)
    # Links other than ``Fabric.link``.
    more_links: Callable[["Fabric"], tuple[Link, ...]] = field(default=_no_more_links, repr=False)
    # Size of groups of consecutive ranks that are nearer to each other than to the rest; 0 without such groups.
    node_size: Callable[["Fabric"], int] = field(default=_no_nodes, repr=False)
    # Describes the links that an edge stands for, in words that follow "the links".
    where: Callable[[Edge], str] = field(default=_busiest, repr=False)
    # Sides of the grid in which ranks lie, the last coordinate counting fastest; none where they lie in no grid.
    grid: Callable[["Fabric"], tuple[int, ...]] = field(default=_no_grid, repr=False)
    # The fabric of every ``stride``-th of ``size`` ranks where it has a form of its own, else None.
    part: Callable[["Fabric", int, int], "Fabric | None"] = field(default=_no_part, repr=False)
    # The same links with routes that are alike for more groups, where it has such; else None.
    plainer: Callable[["Fabric"], "Fabric | None"] = field(default=_no_plainer, repr=False)
    # Whether any two ranks are joined by a link of their own or by one switch, so that no rank forwards.
    direct: bool = False
    # Whether further arguments are names of links, each with pairs of nodes that it joins.
    takes_links: bool = False
    # Collective algorithms made for it; a search starts from these and the default.
    algorithms: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Hash the name alone: fabrics are keys of caches that are used all the time."""
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A topology with its links: ``link`` joins GPU to GPU or GPU to switch.

    ``both_ways`` is False for a ring that is used in one direction only. ``layout`` are the further arguments.
    """

    topology: Topology
    link: Link
    switch: Switch | None = None
    both_ways: bool = True
    layout: Hashable = None

    def __hash__(self) -> int:
        """Hash what mostly tells fabrics apart: networks are looked up by fabric."""
        link = self.link
        return hash((self.topology, link.name, link.achieved_bytes_per_s, link.latency_ticks, self.layout))

    @property
    def links(self) -> tuple[Link, ...]:
        """Every kind of link, each once."""
        return _links_of(self)

    @property
    def in_order(self) -> bool:
        """Whether every link delivers writes in the order in which they were issued."""
        return all(link.ordered for link in self.links)

    @property
    def direct(self) -> bool:
        """Whether every route is one link, or leads through one switch."""
        return self.topology.direct

    @property
    def one_switch(self) -> Switch | None:
        """The switch, if there is one and it joins all ranks."""
        return self.switch if self.direct else None

    @property
    def link_for_each_pair(self) -> bool:
        """Whether any two ranks have a link of their own."""
        return self.direct and self.switch is None

    @property
    def node_size(self) -> int:
        """Size of groups of consecutive ranks that are nearer to each other than to the rest, 0 without such groups."""
        return self.topology.node_size(self)


@lru_cache(maxsize=64)
def _links_of(fabric: Fabric) -> tuple[Link, ...]:
    """Each kind of link once; of thousands of edges that takes milliseconds."""
    return tuple(dict.fromkeys((fabric.link, *fabric.topology.more_links(fabric))))


def layout_of(fabric: Fabric, kind: type[_Layout]) -> _Layout:
    """Return the layout of a fabric, which is of the ``kind`` that its topology makes."""
    assert isinstance(fabric.layout, kind), "a topology makes its own layout"
    return fabric.layout


def reject_ports(switch: Switch, needed: int, at: str) -> Rejection | None:
    """Reject a switch with too few ports; ``at`` names what needs them."""
    if switch.ports >= needed:
        return None
    return Rejection(Code.MGS404, f"{at} needs {needed} ports, but switch {switch.name} has {switch.ports}")


def reject_division(num_ranks: int, part: int, name: str) -> Rejection | None:
    """Reject a number of ranks that is no multiple of ``part``, the argument ``name``."""
    if num_ranks % part == 0:
        return None
    return Rejection(Code.MGS420, f"{num_ranks} gpus do not divide by {name}={part}")


@lru_cache(maxsize=64)
def network_of(fabric: Fabric, num_ranks: int) -> Network:
    """Return the graph of ``fabric`` with ``num_ranks`` GPUs, which its topology accepts."""
    return fabric.topology.connect(fabric, num_ranks)


# The fabric of a group: some ranks of a larger system, every ``stride``-th of them, as they see it.
#
# All groups of one axis move data at the same time: where several cross a link, each has its share of the rate. Groups
# whose routes are alike may share links unequally, as those in the middle of a line do; then a link has the least of
# the shares that it has in any group. Nodes outside of a group forward, as switches do.

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
        nearest = _nearest_alike(fabric, num_ranks, stride, size)
        sizes = f", as groups of {' or '.join(map(str, nearest))} gpus do" if nearest else ""
        hint = f"sizes by which each group lies in its nodes as the first does{sizes}"
        return Rejection(Code.MGS440, message, f"{hint}; or each kind as a system of its own")
    return Fabric(TOPOLOGY, fabric.link, fabric.switch, fabric.both_ways, part)


def _nearest_alike(fabric: Fabric, num_ranks: int, stride: int, size: int) -> tuple[int, ...]:
    """The nearest sizes below and above of groups that are alike and make up all ranks, as far as there are any."""

    def are_alike(other: int) -> bool:
        if fabric.topology.part(fabric, stride, other) is not None:
            return True
        few = num_ranks * other <= MOST_ROUTES
        return few and _seen(WholePart(fabric, num_ranks, stride), other).unlike is None

    sizes = [each for each in range(2, num_ranks // stride) if num_ranks % (stride * each) == 0]
    below = (each for each in reversed(sizes) if each < size and are_alike(each))
    above = (each for each in sizes if each > size and are_alike(each))
    return tuple(each for side in (below, above) for each in [next(side, None)] if each is not None)


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
