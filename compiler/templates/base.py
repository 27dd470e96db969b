"""What templates share: the problem they are given, the pieces they cut, and how one declares itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..scenario import Pattern
from ..schedule import Direction, Region, Span, Step, Transfer


class Cut(Enum):
    """What a template divides into chunks."""

    SHARD = "whole shards"
    ROWS = "rows of each shard"
    COLUMNS = "the inner dimension for AG+GEMM, the output's columns for GEMM+RS"


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload as a template sees it: one of ``num_ranks`` equal ranks.

    The moved tensor has ``shard_rows`` rows per rank and ``cols`` columns; ``inner`` is the inner dimension of this
    rank's GEMM, 0 where there is none. ``pieces`` is the number of chunks a shard is cut into.
    """

    pattern: Pattern
    num_ranks: int
    shard_rows: int
    cols: int
    inner: int
    output_cols: int
    pieces: int
    streams: int

    @property
    def peers(self) -> range:
        """Relative peers, nearest first: rank r starts with r + 1, so that no two ranks send to the same one."""
        return range(1, self.num_ranks)

    @property
    def all_inner(self) -> Span:
        """The whole inner dimension."""
        return Span(0, self.inner)

    def row_piece(self, index: int) -> Span:
        """Rows of piece ``index`` of a shard."""
        size = self.shard_rows // self.pieces
        return Span(index * size, (index + 1) * size)

    def col_piece(self, index: int) -> Span:
        """Columns of the moved tensor in piece ``index``."""
        size = self.cols // self.pieces
        return Span(index * size, (index + 1) * size)

    def block(self, owner: int, rows: Span | None = None, cols: Span | None = None) -> Region:
        """A region of the moved tensor in the shard of rank r + ``owner``; all rows or columns where not said."""
        return Region(owner % self.num_ranks, rows or Span(0, self.shard_rows), cols or Span(0, self.cols))

    def tiles(self, owner: int, rows: Span | None = None, cols: Span | None = None) -> Region:
        """The same of the output that the tiles write."""
        return Region(owner % self.num_ranks, rows or Span(0, self.shard_rows), cols or Span(0, self.output_cols))


@dataclass(frozen=True, slots=True)
class Template:
    """A named family of schedules.

    ``overlaps`` says whether kernels run beside transfers, so that SMs used for copying are taken from them.
    ``min_pieces`` is the least number of chunks per shard that makes sense. ``build`` writes the steps for rank r.
    """

    name: str
    cut: Cut
    overlaps: bool
    min_pieces: int
    patterns: tuple[Pattern, ...]
    build: Callable[[Problem], Iterator[Step]]
    default_streams: int = 1

    @property
    def cuts_shards(self) -> bool:
        """Whether the number of chunks is a choice."""
        return self.cut is not Cut.SHARD

    @property
    def has_streams(self) -> bool:
        """Whether the number of streams is a choice."""
        return self.default_streams > 1


OVERLAPPED_PATTERNS = tuple(pattern for pattern in Pattern if pattern.overlaps)


def put(name: str, region: Region, peer: int, after: tuple[str, ...] = (), lane: int | None = None) -> Transfer:
    """A put to rank r + ``peer`` whose signal carries the name of the transfer with an ``s`` before it."""
    return Transfer(name, Direction.PUT, region, peer, signal_of(name), after, lane)


def signal_of(transfer: str) -> str:
    """Signal of the transfer of that name."""
    return f"s_{transfer}"
