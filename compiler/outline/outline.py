"""Outlines of schedules: how to split, move, group, order and synchronize; Magus writes the steps.

Pieces of a shard are numbered from 0 in the order of its rows or columns. A block is one piece of the shard of one
rank. Defaults: nothing is cut, every rank puts to every other, and the own shard is a kernel of its own, first where
data is gathered and last where it is sent.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from ..ir import USUAL_OPTIONS, EngineChoice, ExecutionOptions, IndexRange, PeerOrder

# First words of statements, in the order of the canonical text.
WORDS = ("split", "move", "group", "order", "streams", "sums", "sync", "kernel", "launch", "tile", "split_k")
# Algorithms in which every rank reaches each peer by itself, so that peers may come in any order.
ANY_ORDER = ("", "direct", "one_shot")
MAX_PIECES = 4096


class SplitAxis(Enum):
    """The axis that is cut; the value is the word in the language. SHARDS: none, a shard moves whole."""

    SHARDS = "shards"
    ROWS = "rows"
    COLS = "cols"


@dataclass(frozen=True, slots=True)
class Split:
    """A shard cut into ``parts`` pieces along ``axis``, at ``cuts`` or, if there are none, into equal ones.

    ``total`` is the sum of the sizes that a file lists, 0 where it gives cuts or a number of parts.
    """

    axis: SplitAxis = SplitAxis.SHARDS
    parts: int = 1
    cuts: tuple[int, ...] = ()
    total: int = 0

    def span(self, piece: int, size: int) -> IndexRange:
        """Return the range of a piece, in rows or columns of a shard with ``size`` of them."""
        if self.cuts:
            return IndexRange(
                self.cuts[piece - 1] if piece else 0, self.cuts[piece] if piece < len(self.cuts) else size
            )
        return IndexRange(piece * size // self.parts, (piece + 1) * size // self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that a file lists, none where it gives cuts or a number of parts."""
        return tuple(stop - start for start, stop in pairwise((0, *self.cuts, self.total))) if self.total else ()


class By(Enum):
    """Grouping of blocks into kernels; the value is the text in the language.

    HOP: one kernel for all blocks of a piece at the same number of hops, counted along the algorithm's transfers.
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
    """Whether the own shard is a kernel of its own, and the groups of the rest: by ``by``, or as ``batches`` list."""

    own_alone: bool = True
    by: By = By.PIECE
    batches: tuple[KernelGroup, ...] = ()


class Turn(Enum):
    """When the kernel of the own shard runs; the value is the word in the language."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Ordering:
    """Orders of pieces and peers; an empty tuple is the default: ``pieces`` by number, ``peers`` by ``order``.

    With ``peers_outermost`` all pieces go to one peer, then all to the next.
    """

    own: Turn | None = None
    pieces: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()
    order: PeerOrder = PeerOrder.ROTATED
    peers_outermost: bool = False

    @property
    def of_peers(self) -> bool:
        """Whether it orders peers, and not pieces alone."""
        return bool(self.peers) or self.order is not PeerOrder.ROTATED or self.peers_outermost


class Sums(Enum):
    """The place of sums of arrived parts: in a stream of their own, or after the kernels of the first stream."""

    PARALLEL = "parallel"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Outline:
    """A whole outline; ``algorithm`` is empty for the direct one.

    ``one_at_a_time``: each transfer of a rank follows the one before, in one lane. ``lanes`` get transfers in turn;
    with 0 the first free engine takes the next one. At most ``depth`` gathered pieces are held at a time, 0: all.
    ``own`` are the rows of the own shard that are computed with each piece of the other shards; they need no transfer
    and may be cut differently. Empty: cut like the rest.
    """

    engine: EngineChoice
    split: Split = Split()
    tactics: ExecutionOptions = USUAL_OPTIONS
    algorithm: str = ""
    one_at_a_time: bool = False
    lanes: int = 0
    depth: int = 0
    own: tuple[int, ...] = ()
    grouping: Grouping = Grouping()
    ordering: Ordering = Ordering()
    streams: int = 1
    sums: Sums = Sums.PARALLEL

    @property
    def piece_order(self) -> tuple[int, ...]:
        """The pieces in the order in which they move."""
        return self.ordering.pieces or tuple(range(self.split.parts))

    def own_span(self, first: int, last: int) -> IndexRange:
        """Return the own rows that are computed with pieces ``first`` to ``last``, if the outline lists them."""
        return IndexRange(sum(self.own[:first]), sum(self.own[: last + 1]))

    @property
    def batches(self) -> tuple[KernelGroup, ...]:
        """The groups of pieces that become kernels."""
        return self.grouping.batches or (KernelGroup(0, self.split.parts - 1, self.grouping.by),)
