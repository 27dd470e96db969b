"""What templates share: the problem they are given, the pieces they cut, and how one declares itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..collectives import signal_of
from ..scenario import Pattern
from ..schedule import Direction, EngineKind, Region, Span, Step, Tactics, Transfer
from ..tables import CHUNKS_PER_RANK

__all__ = ["OVERLAPPED_PATTERNS", "Cut", "Fetch", "Problem", "Template", "put", "signal_of", "spread"]

_USUAL = Tactics()


class Cut(Enum):
    """What a template divides into chunks."""

    SHARD = "whole shards"
    ROWS = "rows of each shard"
    COLUMNS = "the inner dimension for AG+GEMM and A2A+GEMM, the output's columns for GEMM+RS and GEMM+AR"


@dataclass(frozen=True, slots=True)
class Fetch:
    """A transfer of what kernels read; where it lands, ``tiles`` are the rows of the output that need it."""

    transfer: Transfer
    tiles: Region


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload as a template sees it: one of ``num_ranks`` equal ranks.

    The moved tensor has ``shard_rows`` rows per rank and ``cols`` columns; ``inner`` is the inner dimension of this
    rank's GEMM, 0 where there is none. ``pieces`` is the number of chunks a shard is cut into. ``output_rows`` are the
    rows of a kernel that runs beside a collective. ``algorithm`` is empty for the usual one. ``engine`` is who copies,
    ``split`` the rows that an all_to_all sends from r to r + k (empty: all alike), ``node`` the number of ranks in a
    node (0: no nodes); ``multicast`` and ``reduces`` say what the switch can do.
    """

    pattern: Pattern
    num_ranks: int
    shard_rows: int
    cols: int
    inner: int
    output_cols: int
    pieces: int
    streams: int
    output_rows: int = 0
    algorithm: str = ""
    tactics: Tactics = _USUAL
    engine: EngineKind = EngineKind.DMA
    split: tuple[int, ...] = ()
    node: int = 0
    multicast: bool = False
    reduces: bool = False

    @property
    def peers(self) -> range:
        """Relative peers, nearest first: rank r starts with r + 1, so that no two ranks send to the same one."""
        return range(1, self.num_ranks)

    @property
    def all_inner(self) -> Span:
        """The whole inner dimension."""
        return Span(0, self.inner)

    @property
    def gets(self) -> bool:
        """Whether destinations issue the transfers."""
        return self.tactics.direction is Direction.GET

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

    def gathered(self, owner: int, piece: int | None = None) -> Region:
        """Tiles of the output whose rows come from rank r + ``owner``: all of them, or those of one piece."""
        rows = self.split[-owner % self.num_ranks] if self.split else self.shard_rows
        return self.tiles(owner, self._part(rows, piece))

    def all_gathered(self, piece: int | None = None) -> tuple[Region, ...]:
        """``gathered`` of all ranks that send any."""
        blocks = (self.gathered(owner, piece) for owner in range(self.num_ranks))
        return tuple(block for block in blocks if block.rows.size)

    def fetches(self, stem: str, piece: int | None = None, cols: Span | None = None) -> tuple[Fetch, ...]:
        """What brings remote rows for the kernels of this rank, one for each peer with any, named after it.

        An all_gather puts the own block to each peer, an all_to_all the block that is the peer's; a get asks the peer
        for the same.
        """
        found = []
        for peer in self.peers:
            # As seen by the rank that a transfer lands at.
            source = peer if self.gets else -peer
            tiles = self.gathered(source, piece)
            owner = 0 if self.gets is self.pattern.exchanges else peer
            region, name = self.block(owner, tiles.rows, cols), f"{stem}{peer}"
            if tiles.rows.size:
                found.append(Fetch(Transfer(name, self.tactics.direction, region, peer, signal_of(name)), tiles))
        return tuple(found)

    def _part(self, rows: int, piece: int | None) -> Span:
        if piece is None:
            return Span(0, rows)
        return Span(piece * rows // self.pieces, (piece + 1) * rows // self.pieces)


def _never(problem: Problem) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Template:
    """A named family of schedules.

    ``overlaps`` says whether kernels run beside transfers, so that SMs used for copying are taken from them.
    ``min_pieces`` is the least number of chunks per shard that makes sense. ``build`` writes the steps for rank r;
    where ``varies`` ranks have different parts, and ``build_rank`` writes those of one absolute rank.
    ``has_algorithm`` says whether the collective algorithm is a choice, ``default_algorithm`` which is usual.
    Templates that are not ``explored`` are built where they are named, and left out of a search.
    """

    name: str
    cut: Cut
    overlaps: bool
    min_pieces: int
    patterns: tuple[Pattern, ...]
    build: Callable[[Problem], Iterator[Step]]
    default_streams: int = 1
    build_rank: Callable[[Problem, int], Iterator[Step]] | None = None
    varies: Callable[[Problem], bool] = _never
    has_algorithm: bool = False
    default_algorithm: str = ""
    default_pieces: int = CHUNKS_PER_RANK
    explored: bool = True

    @property
    def cuts_shards(self) -> bool:
        """Whether the number of chunks is a choice."""
        return self.cut is not Cut.SHARD

    @property
    def has_streams(self) -> bool:
        """Whether the number of streams is a choice."""
        return self.default_streams > 1

    def write(self, problem: Problem) -> tuple[tuple[Step, ...], tuple[tuple[Step, ...], ...]]:
        """``steps`` and ``by_rank`` of a Schedule."""
        if self.build_rank is None or not self.varies(problem):
            return tuple(self.build(problem)), ()
        by_rank = tuple(tuple(self.build_rank(problem, rank)) for rank in range(problem.num_ranks))
        return by_rank[0], by_rank


OVERLAPPED_PATTERNS = tuple(pattern for pattern in Pattern if pattern.overlaps)


def put(name: str, region: Region, peer: int, after: tuple[str, ...] = (), lane: int | None = None) -> Transfer:
    """A put to rank r + ``peer`` whose signal carries the name of the transfer with an ``s`` before it."""
    return Transfer(name, Direction.PUT, region, peer, signal_of(name), after, lane)


def spread(problem: Problem, stem: str, region: Region, after: str, lane: int | None = None) -> Iterator[Transfer]:
    """For GEMM+AR, what ``after`` has summed of the own block to every peer; nothing for GEMM+RS."""
    if problem.pattern is Pattern.GEMM_AR:
        for peer in problem.peers:
            yield put(f"{stem}_{peer}", region, peer, (after,), lane)
