"""The description of a topology, and a fabric: a topology with its links and sizes."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import TypeVar

from ...codes import Code
from ..hardware import Link, Switch
from ..stopping import Rejection
from .network import Edge, Network


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
    # The fabric of every ``stride``-th of ``size`` ranks where it has a form of its own, else None; see ``part.py``.
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
        return tuple(dict.fromkeys((self.link, *self.topology.more_links(self))))

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
