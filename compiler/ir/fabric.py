"""How the GPUs of a system are joined."""

from dataclasses import dataclass
from enum import Enum

from .hardware import Link, Switch


class FabricKind(Enum):
    """How the GPUs of a system are joined; the value is the word in the language."""

    FULL_MESH = "full_mesh"
    RING = "ring"
    SWITCH = "switch"
    TORUS = "torus"
    FAT_TREE = "fat_tree"
    RAILS = "rails"
    EDGES = "edges"

    @property
    def symmetric(self) -> bool:
        """Whether the way from rank r to r + k is the same for every r, so that one rank may stand for all."""
        return self in SYMMETRIC_FABRICS

    @property
    def direct(self) -> bool:
        """Whether any two ranks are joined by a link of their own or by one switch, so that nothing is passed on."""
        return self in (FabricKind.FULL_MESH, FabricKind.SWITCH)


SYMMETRIC_FABRICS = (FabricKind.FULL_MESH, FabricKind.RING, FabricKind.SWITCH)


@dataclass(frozen=True, slots=True)
class Torus:
    """Sides of a grid that is closed in each direction; the last coordinate of a rank counts fastest."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FatTree:
    """Two levels: ``leaf`` consecutive GPUs to a leaf switch, and a link from each of those to each of the spines."""

    leaf: int
    spines: int


@dataclass(frozen=True, slots=True)
class Rails:
    """Nodes of ``node`` consecutive GPUs; the k-th GPU of every node has a ``nic`` link to rail switch k."""

    node: int
    nic: Link


@dataclass(frozen=True, slots=True)
class Wire:
    """A link between two nodes of a graph, both ways."""

    ends: tuple[int, int]
    link: Link


@dataclass(frozen=True, slots=True)
class Graph:
    """Links one by one; nodes from the number of GPUs on are switches."""

    switches: int
    wires: tuple[Wire, ...]

    def __hash__(self) -> int:
        """Of a few of the links: there may be thousands, and what is known of a fabric is looked up all the time."""
        return hash((self.switches, len(self.wires), self.wires[:4]))


Layout = Torus | FatTree | Rails | Graph


@dataclass(frozen=True, slots=True)
class Fabric:
    """``link`` joins GPU to GPU (mesh, ring, torus) or GPU to switch; ``both_ways`` concerns the ring alone.

    ``layout`` says what else the kinds need that are not symmetric; ``topology.py`` makes links and routes of it.
    """

    kind: FabricKind
    link: Link
    switch: Switch | None = None
    both_ways: bool = True
    layout: Layout | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """Every kind of link there is, each once."""
        match self.layout:
            case Rails(nic=nic):
                return tuple(dict.fromkeys((self.link, nic)))
            case Graph(wires=wires):
                return tuple(dict.fromkeys(wire.link for wire in wires))
            case _:
                return (self.link,)
