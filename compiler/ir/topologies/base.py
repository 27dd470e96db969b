"""What a topology says of itself, and the fabric that one makes with its links and sizes."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache

from ...codes import Code
from ..hardware import Link, Switch
from ..rejection import Rejection
from .network import Edge, Network


class ArgumentKind(Enum):
    """How an argument of a topology is written, and what is made of it."""

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


LINK = TopologyArgument("link", ArgumentKind.LINK)
SWITCH = TopologyArgument("switch", ArgumentKind.SWITCH)
WIRES = "wires"
"""Where ``Topology.layout`` finds the wires of a topology whose arguments are names of links."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A link between two nodes of a graph, both ways."""

    ends: tuple[int, int]
    link: Link


def _fits(fabric: "Fabric", num_ranks: int) -> Rejection | None:
    return None


def _no_more_links(fabric: "Fabric") -> tuple[Link, ...]:
    return ()


def _no_nodes(fabric: "Fabric") -> int:
    return 0


def _busiest(edge: Edge) -> str:
    return "of the busiest link"


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to join GPUs: what it is called, how it is written, and what it makes of links.

    Functions stand at the top level of their module, so that a fabric can be sent to other processes.
    """

    name: str
    arguments: tuple[TopologyArgument, ...]
    example: str
    # The graph of a fabric with so many ranks, checked before to fit them.
    connect: Callable[["Fabric", int], Network] = field(repr=False)
    # A frozen dataclass of what is needed beside link, switch and both_ways; its fields have the names of arguments.
    layout: Callable[..., Hashable] | None = field(default=None, repr=False)
    # Why the sizes do not go together, or a switch has too few ports; None if all fits.
    reject: Callable[["Fabric", int], Rejection | None] = field(default=_fits, repr=False)
    # Links other than ``Fabric.link``.
    more_links: Callable[["Fabric"], tuple[Link, ...]] = field(default=_no_more_links, repr=False)
    # Consecutive ranks that are nearer to each other than to the rest; 0 where there are no such groups.
    node_size: Callable[["Fabric"], int] = field(default=_no_nodes, repr=False)
    # Which links an edge stands for, to be read after "the links".
    where: Callable[[Edge], str] = field(default=_busiest, repr=False)
    # Whether any two ranks are joined by a link of their own or by one switch, so that nothing is passed on.
    direct: bool = False
    # Whether the way from rank r to r + k is the same for every r, so that one rank may stand for all.
    symmetric: bool = False
    # Whether further arguments are names of links, each with pairs of nodes that it joins.
    takes_links: bool = False
    # Collective algorithms made for it, with which a search begins beside the usual one.
    algorithms: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Of the name: what is known of a fabric is looked up all the time."""
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Fabric:
    """``link`` joins GPU to GPU or GPU to switch; ``both_ways`` concerns those that can be passed one way alone.

    ``layout`` is what else its topology needs.
    """

    topology: Topology
    link: Link
    switch: Switch | None = None
    both_ways: bool = True
    layout: Hashable = None

    @property
    def links(self) -> tuple[Link, ...]:
        """Every kind of link there is, each once."""
        return tuple(dict.fromkeys((self.link, *self.topology.more_links(self))))

    @property
    def symmetric(self) -> bool:
        """Whether the way from rank r to r + k is the same for every r."""
        return self.topology.symmetric

    @property
    def direct(self) -> bool:
        """Whether nothing is passed on by ranks or from switch to switch."""
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
        """Consecutive ranks that are nearer to each other than to the rest, 0 where there are no such groups."""
        return self.topology.node_size(self)


def reject_ports(switch: Switch, needed: int, at: str) -> Rejection | None:
    """Why a switch has too few ports, None if it has enough; ``at`` says what needs them."""
    if switch.ports >= needed:
        return None
    return Rejection(Code.MGS404, f"{at} needs {needed} ports, but switch {switch.name} has {switch.ports}")


def reject_division(num_ranks: int, part: int, name: str) -> Rejection | None:
    """Why ranks do not divide into parts of a size, None if they do."""
    if num_ranks % part == 0:
        return None
    return Rejection(Code.MGS420, f"{num_ranks} gpus do not divide by {name}={part}")


@lru_cache(maxsize=64)
def network_of(fabric: Fabric, num_ranks: int) -> Network:
    """The graph of ``fabric`` with ``num_ranks`` GPUs, checked before to fit them."""
    return fabric.topology.connect(fabric, num_ranks)
