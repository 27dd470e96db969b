"""Input of a template: a workload as seen by one of its equal ranks, with its pieces, blocks and transfers."""

from dataclasses import dataclass, replace

from ..collectives import signal_of
from ..ir import (
    USUAL_OPTIONS,
    Adds,
    Cutting,
    Direction,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    Network,
    Pattern,
    PeerOrder,
    Region,
    Transfer,
)

_ANY_WAY = Cutting()


@dataclass(frozen=True, slots=True)
class Fetch:
    """A transfer of data that kernels read, and ``tiles``, the output rows here that need what arrives by its signal.

    Of a put, the data that land are another rank's. Where loads differ from rank to rank either may have no rows.
    """

    transfer: Transfer
    tiles: Region

    @property
    def moves(self) -> bool:
        """Whether this rank has anything to transfer."""
        return self.transfer.region.rows.size > 0

    @property
    def arrives(self) -> bool:
        """Whether anything arrives here."""
        return self.tiles.rows.size > 0


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """A workload as a template sees it: one of ``num_ranks`` equal ranks.

    Tensors: the moved tensor has ``shard_rows`` rows per rank and ``cols`` columns; ``inner`` is the inner dimension of
    this rank's GEMM, 0 without one; ``output_rows`` are the rows of a kernel that runs beside a collective. ``split``
    holds the rows that an all_to_all sends from r to r + k (empty: equal), ``loads`` those [from][to] of absolute ranks
    where ranks differ, also in the parts of an all_reduce. ``cutting`` says how the kernel may be cut. With two kernels
    this is the input of the first and ``then`` that of the second.

    Knobs: ``pieces`` is the number of chunks per shard; ``algorithm`` is empty for the usual one; ``parts`` are the
    rows of each batch of ``bespoke``, ``slices`` and ``columns`` the sizes into which each is cut further, ``lanes``
    the engines its copies are dealt to (0: the first free one); at most ``depth`` gathered pieces are held at a time
    (0: all); a kernel of ``pipelined`` takes ``waves`` waves of the algorithm, and its sums are dealt to ``sums``
    streams; ``trees`` are those of ``forest``.

    System: ``engine`` copies, ``by_tiles`` from inside a kernel; ``node`` is the number of ranks in a node (0: no
    nodes); ``grid`` has the sides of a torus; ``network`` has the ways of copies along ``trees``; the switch copies to
    all (``multicast``) or sums (``reduces``). ``rank`` is the absolute rank, for an order by it and for loads.
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
    tactics: ExecutionOptions = USUAL_OPTIONS
    engine: EngineKind = EngineKind.DMA
    by_tiles: bool = False
    split: tuple[int, ...] = ()
    node: int = 0
    network: Network | None = None
    multicast: bool = False
    reduces: bool = False
    parts: tuple[tuple[int, ...], ...] = ()
    slices: tuple[tuple[int, ...], ...] = ()
    columns: tuple[tuple[int, ...], ...] = ()
    lanes: int = 0
    order: PeerOrder = PeerOrder.ROTATED
    depth: int = 0
    waves: int = 1
    sums: int = 1
    trees: tuple[tuple[int, ...], ...] = ()
    rank: int = 0
    cutting: Cutting = _ANY_WAY
    grid: tuple[int, ...] = ()
    then: "TemplateInput | None" = None
    loads: tuple[tuple[int, ...], ...] = ()

    @property
    def uneven(self) -> bool:
        """Whether the blocks of an all_to_all differ in size."""
        return self.pattern.exchanges and bool(self.split or self.loads)

    def rows_between(self, source: int, target: int) -> int:
        """Rows that rank r + ``source`` has for rank r + ``target``."""
        if self.loads:
            return self.loads[(self.rank + source) % self.num_ranks][(self.rank + target) % self.num_ranks]
        return self.split[(target - source) % self.num_ranks] if self.split else self.shard_rows

    @property
    def peers(self) -> range:
        """Relative peers, nearest first: rank r starts with r + 1, so that no two ranks send to the same one."""
        return range(1, self.num_ranks)

    @property
    def served(self) -> tuple[int, ...]:
        """Relative peers in the order in which this rank serves them."""
        match self.order:
            case PeerOrder.REVERSED:
                return tuple(reversed(self.peers))
            case PeerOrder.ABSOLUTE:
                return tuple(sorted(self.peers, key=lambda peer: (self.rank + peer) % self.num_ranks))
            case PeerOrder.SMALL_FIRST if self.uneven:
                return tuple(sorted(self.peers, key=self._rows_with))
            case PeerOrder.LARGE_FIRST if self.uneven:
                return tuple(sorted(self.peers, key=self._rows_with, reverse=True))
            case _:
                return tuple(self.peers)

    def of_rank(self, rank: int) -> "TemplateInput":
        """Return the input of the absolute ``rank``; of an all_reduce in uneven parts with the rows of its own part."""
        rows = self.loads[rank][rank] if self.loads and not self.pattern.exchanges else self.shard_rows
        return replace(self, rank=rank, shard_rows=rows, then=self.then and self.then.of_rank(rank))

    def _rows_with(self, peer: int) -> int:
        """Rows of an uneven all_to_all in the transfer that this rank issues to or from rank r + ``peer``."""
        return self.rows_between(peer, 0) if self.gets else self.rows_between(0, peer)

    def freed_by(self, piece: int, suffix: str = "") -> tuple[str, ...]:
        """The kernel that must be done before piece ``piece`` may arrive where an earlier one was."""
        return (f"g{piece - self.depth}{suffix}",) if 0 < self.depth <= piece else ()

    @property
    def all_inner(self) -> IndexRange:
        """The whole inner dimension."""
        return IndexRange(0, self.inner)

    @property
    def adds_rows(self) -> bool:
        """Whether kernels over rows that arrive add to one output, one after the other."""
        return self.cutting.adds is Adds.ROWS

    @property
    def gets(self) -> bool:
        """Whether destinations issue the transfers."""
        return self.tactics.direction is Direction.GET

    def row_piece(self, index: int) -> IndexRange:
        """Rows of piece ``index`` of a shard."""
        return self._part(self.shard_rows, index)

    def col_piece(self, index: int) -> IndexRange:
        """Columns of the moved tensor in piece ``index``."""
        size = self.cols // self.pieces
        return IndexRange(index * size, (index + 1) * size)

    def block(self, owner: int, rows: IndexRange | None = None, cols: IndexRange | None = None) -> Region:
        """Return a region of the moved tensor in the shard of rank r + ``owner``; default: all rows, all columns."""
        return Region(owner % self.num_ranks, rows or IndexRange(0, self.shard_rows), cols or IndexRange(0, self.cols))

    def tiles(self, owner: int, rows: IndexRange | None = None, cols: IndexRange | None = None) -> Region:
        """Return a region of the output in the row block of rank r + ``owner``; default: all rows, all columns."""
        return Region(
            owner % self.num_ranks, rows or IndexRange(0, self.shard_rows), cols or IndexRange(0, self.output_cols)
        )

    def gathered(self, owner: int, piece: int | None = None, cols: IndexRange | None = None) -> Region:
        """Tiles whose rows come from rank r + ``owner`` or are made for it: all of them, or those of one piece."""
        rows = self.rows_between(0, owner) if self.pattern.produces else self.rows_between(owner, 0)
        return self.tiles(owner, self._part(rows, piece), cols)

    def all_gathered(self, piece: int | None = None, cols: IndexRange | None = None) -> tuple[Region, ...]:
        """``gathered`` of all ranks that have any."""
        blocks = (self.gathered(owner, piece, cols) for owner in range(self.num_ranks))
        return tuple(block for block in blocks if block.rows.size)

    def sends(
        self, stem: str, after: tuple[str, ...], piece: int | None = None, cols: IndexRange | None = None
    ) -> tuple[Transfer, ...]:
        """Puts of what a kernel made for each peer that gets any, after ``after``, named after the peer."""
        rows = {peer: self.gathered(peer, piece).rows for peer in self.served}
        return tuple(
            put(f"{stem}{peer}", self.block(peer, rows[peer], cols), peer, after) for peer in rows if rows[peer].size
        )

    def fetches(
        self, stem: str, piece: int | None = None, cols: IndexRange | None = None, after: tuple[str, ...] = ()
    ) -> tuple[Fetch, ...]:
        """Transfers that bring remote rows for the kernels of this rank: one for each peer with any, named after it.

        An all_gather puts the own block to each peer, an all_to_all the block that is the peer's; a get asks the peer
        for the same. All wait for ``after``.
        """
        fetches = []
        for peer in self.served:
            # As seen by the rank that a transfer arrives at.
            tiles = self.gathered(peer if self.gets else -peer, piece)
            owner = 0 if self.gets is self.pattern.exchanges else peer
            rows = tiles.rows if self.gets else self._part(self.rows_between(0, peer), piece)
            region, name = self.block(owner, rows, cols), f"{stem}{peer}"
            fetch = Fetch(Transfer(name, self.tactics.direction, region, peer, signal_of(name), after), tiles)
            if fetch.moves or fetch.arrives:
                fetches.append(fetch)
        return tuple(fetches)

    def _part(self, rows: int, piece: int | None) -> IndexRange:
        if piece is None:
            return IndexRange(0, rows)
        return IndexRange(piece * rows // self.pieces, (piece + 1) * rows // self.pieces)


def put(name: str, region: Region, peer: int, after: tuple[str, ...] = (), lane: int | None = None) -> Transfer:
    """A put to rank r + ``peer`` whose signal carries the name of the transfer with an ``s`` before it."""
    return Transfer(name, Direction.PUT, region, peer, signal_of(name), after, lane)
