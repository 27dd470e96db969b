"""How bytes are copied: in which direction, by which protocol, and by what the work-groups of a kernel do."""

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
    """What a wavefront of a copy repeats: it loads ``load`` lines, waits until ``waitcnt`` are under way, and goes on.

    ``then`` is what becomes of them: a put stores them at the peer, a get in its own memory, or adds them up in
    registers.
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
    """A kernel by what its work-groups do: ``groups`` at each rank, one on an SM, each of ``waves`` wavefronts.

    A wavefront that waits leaves its SM to the others. ``request_bytes`` is what asking a peer for a line puts on the
    links, where ``arbitration`` says what it queues behind.
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
        """How many turns all wavefronts of a rank have under way at once."""
        return self.groups * self.waves * max(loop.turns for loop in (self.put, self.get) if loop is not None)

    @property
    def sums(self) -> bool:
        """Whether gets are added up in registers."""
        return self.get is not None and self.get.then is WithLoaded.REDUCE
