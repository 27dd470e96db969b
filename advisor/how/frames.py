"""Ways to name other ranks from a rank: a plan that is the same for all ranks in one of them is told once."""

from dataclasses import dataclass
from enum import Enum

Code = tuple[int, ...]
"""The numbers by which a rank names a rank."""


class Naming(Enum):
    """SHIFT: r+k, modulo n. NODES: nodes and places further. XOR: r with bits flipped. ABSOLUTE: the rank itself."""

    SHIFT = "shift"
    NODES = "nodes"
    XOR = "xor"
    ABSOLUTE = "absolute"


@dataclass(frozen=True, slots=True)
class Frame:
    """How ranks are named among ``num_ranks``; ``node_size`` ranks are a node where nodes count."""

    naming: Naming
    num_ranks: int
    node_size: int = 1

    @property
    def moduli(self) -> Code:
        """The modulus of each number of a code, 0 for none."""
        match self.naming:
            case Naming.SHIFT:
                return (self.num_ranks,)
            case Naming.NODES:
                return self.num_ranks // self.node_size, self.node_size
            case _:
                return (0,)

    def code(self, rank: int, other: int) -> Code:
        """Return how ``rank`` names the absolute rank ``other``."""
        match self.naming:
            case Naming.SHIFT:
                return ((other - rank) % self.num_ranks,)
            case Naming.NODES:
                nodes, size = self.moduli
                return (other // size - rank // size) % nodes, (other - rank) % size
            case Naming.XOR:
                return (rank ^ other,)
            case Naming.ABSOLUTE:
                return (other,)

    def decode(self, rank: int, code: Code) -> int:
        """Return the absolute rank that ``rank`` names by ``code``."""
        match self.naming:
            case Naming.SHIFT:
                return (rank + code[0]) % self.num_ranks
            case Naming.NODES:
                nodes, size = self.moduli
                return (rank // size + code[0]) % nodes * size + (rank + code[1]) % size
            case Naming.XOR:
                return rank ^ code[0]
            case Naming.ABSOLUTE:
                return code[0]


def shared_frames(num_ranks: int, node_size: int) -> tuple[Frame, ...]:
    """Return the frames in which a plan may be the same for all ranks, the plainest first."""
    frames = [Frame(Naming.SHIFT, num_ranks)]
    if 1 < node_size < num_ranks and num_ranks % node_size == 0:
        frames.append(Frame(Naming.NODES, num_ranks, node_size))
    if num_ranks & (num_ranks - 1) == 0:
        frames.append(Frame(Naming.XOR, num_ranks))
    return tuple(frames)
