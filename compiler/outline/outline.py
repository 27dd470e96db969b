"""A schedule said in outline: how a user splits, moves, groups, orders and synchronizes; Magus writes the steps.

Pieces are those of a shard, numbered from 0 in the order of its rows or columns. A block is one piece of the shard of
one rank. What is not said has a default: nothing is cut, everybody puts to everybody, and the own shard is a kernel of
its own, first where data is gathered and last where it is sent.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from ..ir import EngineChoice, ExecutionOptions, IndexRange, PeerOrder

# What a statement begins with, in the order of the canonical text.
WORDS = ("split", "move", "group", "order", "streams", "sums", "sync", "kernel", "launch")
# Algorithms in which every rank reaches each peer by itself, so that peers may come in any order.
ANY_ORDER = ("", "direct", "one_shot")
MAX_PIECES = 4096
_USUAL = ExecutionOptions()


class Axis(Enum):
    """What is cut; the value is the word in the language. SHARDS: nothing is, a shard moves whole."""

    SHARDS = "shards"
    ROWS = "rows"
    COLS = "cols"


@dataclass(frozen=True, slots=True)
class Split:
    """A shard in ``parts`` pieces along ``axis``: equal ones, or with ``cuts`` between them.

    ``total`` is what the sizes add up to that a file lists, 0 where it says cuts or a number of parts.
    """

    axis: Axis = Axis.SHARDS
    parts: int = 1
    cuts: tuple[int, ...] = ()
    total: int = 0

    def span(self, piece: int, size: int) -> IndexRange:
        """Rows or columns of a piece of ``size`` of them."""
        if self.cuts:
            return IndexRange(
                self.cuts[piece - 1] if piece else 0, self.cuts[piece] if piece < len(self.cuts) else size
            )
        return IndexRange(piece * size // self.parts, (piece + 1) * size // self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that a file lists, none where it says cuts or a number of parts."""
        return tuple(stop - start for start, stop in pairwise((0, *self.cuts, self.total))) if self.total else ()


class By(Enum):
    """How blocks are shared out among kernels; the value is the text in the language.

    HOP: blocks of a piece that are as many hops away are one kernel, however an algorithm moves them.
    """

    TOGETHER = "together"
    PIECE = "by piece"
    PEER = "by peer"
    HOP = "by hop"
    BLOCK = "by block"


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Pieces ``first`` to ``last`` of all shards: one kernel, or one for each piece, peer or block of them."""

    first: int
    last: int
    by: By


@dataclass(frozen=True, slots=True)
class Grouping:
    """Whether the own shard is a kernel of its own, and how the rest is grouped: ``by``, or as ``batches`` say."""

    own_alone: bool = True
    by: By = By.PIECE
    batches: tuple[KernelGroup, ...] = ()


class Turn(Enum):
    """When the kernel of the own shard runs; the value is the word in the language."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Ordering:
    """What comes first. ``pieces`` lists all of them, none: as they are numbered; ``peers`` too, none: by ``order``.

    With ``peers_outermost`` all pieces go to one peer, then all to the next.
    """

    own: Turn | None = None
    pieces: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()
    order: PeerOrder = PeerOrder.ROTATED
    peers_outermost: bool = False

    @property
    def of_peers(self) -> bool:
        """Whether it says more about transfers than the order of the pieces."""
        return bool(self.peers) or self.order is not PeerOrder.ROTATED or self.peers_outermost


class Sums(Enum):
    """Where what has arrived is summed: in a stream of its own, or behind the kernels of the first one."""

    APART = "apart"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Outline:
    """Everything that a schedule says about how; ``algorithm`` is empty for the direct one.

    ``one_at_a_time``: each transfer of a rank follows the one before, in one lane. Transfers are dealt to ``lanes`` in
    turn, 0: the first free engine takes one. Of what is gathered at most ``depth`` pieces are held at a time, 0: all.
    ``own`` are the rows of the own shard that go with each piece of the others, which need no transfer and may be cut
    elsewhere; none: cut like the rest.
    """

    engine: EngineChoice
    split: Split = Split()
    tactics: ExecutionOptions = _USUAL
    algorithm: str = ""
    one_at_a_time: bool = False
    lanes: int = 0
    depth: int = 0
    own: tuple[int, ...] = ()
    grouping: Grouping = Grouping()
    ordering: Ordering = Ordering()
    streams: int = 1
    sums: Sums = Sums.APART

    @property
    def piece_order(self) -> tuple[int, ...]:
        """Pieces in the order in which they move."""
        return self.ordering.pieces or tuple(range(self.split.parts))

    def own_span(self, first: int, last: int) -> IndexRange:
        """Rows of the own shard that go with pieces ``first`` to ``last``, where the outline says them."""
        return IndexRange(sum(self.own[:first]), sum(self.own[: last + 1]))

    @property
    def batches(self) -> tuple[KernelGroup, ...]:
        """How the pieces are grouped into kernels."""
        return self.grouping.batches or (KernelGroup(0, self.split.parts - 1, self.grouping.by),)
