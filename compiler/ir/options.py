"""How a schedule is carried out: its options, and in which order ranks serve their peers."""

from dataclasses import dataclass

from .copies import CopyProtocol, Direction
from .tensors import Word


class Kernels(Word):
    """A kernel per group of tiles, or one persistent kernel that walks through the groups in order.

    SHARING is a kernel per group whose tiles are those for its share of the SMs, since kernels of other streams run
    beside it; else the library picks them as if the kernel had all SMs.
    """

    LAUNCHED = "launched"
    PERSISTENT = "persistent"
    SHARING = "sharing"


class Wait(Word):
    """How kernels learn of what they wait for: events of the stream, polled flags, or a monitor that wakes them."""

    EVENT = "event"
    POLL = "poll"
    MONITOR = "monitor"


class WaitPer(Word):
    """Whether a persistent kernel looks once for each chunk, or again for each tile."""

    CHUNK = "chunk"
    TILE = "tile"


class LaunchMode(Word):
    """Kernels are launched one by one from the host, or replayed as a graph."""

    STREAM = "stream"
    GRAPH = "graph"


class PeerOrder(Word):
    """In which order a rank serves its peers; the value is the word in the language.

    ROTATED begins with the next rank, so that no two ranks serve the same one at a time, and REVERSED with the one
    before. ABSOLUTE begins with rank 0 at every rank: all serve the same one. SMALL_FIRST and LARGE_FIRST go by the
    rows that an uneven all_to_all moves, equal ones nearest first.
    """

    ROTATED = "rotated"
    REVERSED = "reversed"
    ABSOLUTE = "absolute"
    SMALL_FIRST = "small_first"
    LARGE_FIRST = "large_first"

    @property
    def by_size(self) -> bool:
        """Whether it goes by sizes."""
        return self in (PeerOrder.SMALL_FIRST, PeerOrder.LARGE_FIRST)


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How a schedule is carried out, beside what it moves and computes; each has a usual value.

    ``tile`` has the rows and columns of a tile of a persistent kernel, none where it has the one that is fastest alone.
    """

    direction: Direction = Direction.PUT
    protocol: CopyProtocol = CopyProtocol.SIMPLE
    kernel: Kernels = Kernels.LAUNCHED
    wait: Wait = Wait.EVENT
    per: WaitPer = WaitPer.CHUNK
    launch: LaunchMode = LaunchMode.STREAM
    tile: tuple[int, ...] = ()


USUAL_OPTIONS = ExecutionOptions()
