"""How a schedule is carried out: its options, how bytes are copied, and in which order ranks serve their peers."""

from dataclasses import dataclass
from enum import Enum

from .tensors import Word


class Direction(Word):
    """``put`` is issued by the source, ``get`` by the destination."""

    PUT = "put"
    GET = "get"


class CopyProtocol(Word):
    """How copies by SMs say that data is there; the value is the word in the language.

    SIMPLE sends data, waits until it is there and sends a flag. LL sends a flag with every 4 bytes and LL128 with every
    120, which needs no second message and costs bytes.
    """

    SIMPLE = "simple"
    LL = "ll"
    LL128 = "ll128"


class Arbitration(Enum):
    """Who goes first on a link; the value is the word in the language.

    FIFO: requests queue behind the data that was there before them. FAIR: requests and data take turns, so that a
    request waits for other requests alone; its bytes take their time of the link all the same.
    """

    FIFO = "fifo"
    FAIR = "fair"


class WithLoaded(Enum):
    """What a wavefront does with lines of a peer that it has loaded; the value is the word in the language."""

    STORE = "store"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class WaveLoop:
    """The loop of a wavefront that copies: it requests ``load`` lines, and more once only ``waitcnt`` are under way.

    ``then`` says what it does with the lines: a put stores them at the peer; a get stores them in its own memory, or
    adds them up in registers.
    """

    load: int
    waitcnt: int = 0
    then: WithLoaded = WithLoaded.STORE

    @property
    def turn(self) -> int:
        """Lines that are asked for at a time, once as many as may be are under way."""
        return self.load - self.waitcnt

    @property
    def turns(self) -> int:
        """How many such turns a wavefront has under way."""
        return self.load // self.turn


@dataclass(frozen=True, slots=True)
class GroupKernel:
    """A kernel that copies, described by what its work-groups do.

    Each rank has ``groups`` work-groups, one on an SM, of ``waves`` wavefronts each. A wavefront that waits leaves its
    SM to the others. ``put`` and ``get`` are the loops of a wavefront for each direction. A request for a line puts
    ``request_bytes`` on the links, where ``arbitration`` says what it queues behind.
    """

    name: str
    groups: int
    put: WaveLoop | None
    get: WaveLoop | None
    waves: int = 1
    request_bytes: int = 0
    arbitration: Arbitration = Arbitration.FIFO

    def loop(self, direction: Direction) -> WaveLoop | None:
        """What a wavefront repeats for copies of that direction; None where the kernel makes none."""
        return self.get if direction is Direction.GET else self.put

    @property
    def chains(self) -> int:
        """How many turns all wavefronts of a rank together have under way."""
        return self.groups * self.waves * max(loop.turns for loop in (self.put, self.get) if loop is not None)

    @property
    def sums(self) -> bool:
        """Whether gets are added up in registers."""
        return self.get is not None and self.get.then is WithLoaded.REDUCE


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
    """How the steps of a schedule are carried out; each option has a usual value.

    ``tile`` has the rows and columns of a tile of a persistent kernel; it is empty for the tile that is fastest alone.
    Each of these tiles is computed in ``split_k`` parts of the inner dimension, side by side.
    """

    direction: Direction = Direction.PUT
    protocol: CopyProtocol = CopyProtocol.SIMPLE
    kernel: Kernels = Kernels.LAUNCHED
    wait: Wait = Wait.EVENT
    per: WaitPer = WaitPer.CHUNK
    launch: LaunchMode = LaunchMode.STREAM
    tile: tuple[int, ...] = ()
    split_k: int = 1


USUAL_OPTIONS = ExecutionOptions()
