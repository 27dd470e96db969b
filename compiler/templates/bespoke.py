"""bespoke: batches of any sizes. ``parts`` says the rows of every batch: own ones, then those by peer.

A part is ``[own, r1, r2, ...]``: the rows of the own block, and of the block that goes to or comes from peer 1, 2, ...;
``[own, r]`` where it is the same for all peers. Rows are taken from each block in the order of the batches. So chunks
may differ in size, the own shard may fill in between, and links may carry different amounts at a time, which templates
with equal chunks cannot do. Without parts it is the own shard and then the rest (reversed where the kernel is first).

A batch is one kernel, or one for each slice of the inner dimension and band of columns that it is cut into (``cuts``):
kernels of one band run one after the other, those of different bands and batches in streams in turn.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest

from ..collectives import signal_of
from ..ir import Adds, IndexRange, Kernels, Pattern, Reduction, Region, Rejection, Step, TileGroup, Transfer
from .base import Cut, Template, TemplateInput, on_either_side, put, reject_lists, spread

# Further cuts of the parts of ``bespoke``: slices of the inner dimension, and bands of the output's columns.
#
# Each is a list for every part, of the sizes in order; an empty one leaves the part whole. Of a GEMM after a collective
# the slices are columns of what arrives, so that a copy brings one slice; kernels of later slices add to the output of
# the first. Where the kernel comes first a copy takes one band away.

MAX_KERNELS = 64
"""The most kernels that all parts together may be cut into."""

Cuts = tuple[tuple[int, ...], ...]
"""[part][piece] sizes, none where a part is whole; without any list all parts are."""


def pieces_of(cuts: Cuts, part: int, whole: int) -> tuple[IndexRange, ...]:
    """The pieces into which ``cuts`` divides the size ``whole`` in the part of that index."""
    sizes = (cuts[part] if cuts else ()) or (whole,)
    return tuple(IndexRange(low, high) for low, high in pairwise(accumulate(sizes, initial=0)))


def spelled_cuts(cuts: Cuts, num_parts: int) -> Cuts:
    """Return ``cuts`` with a list for every part."""
    return cuts or ((),) * num_parts


def shortened_cuts(cuts: Cuts) -> Cuts:
    """Return ``cuts``, empty where every part is whole."""
    return cuts if any(cuts) else ()


def reject_cuts(problem: TemplateInput) -> Rejection | None:
    """Why the slices and columns of ``problem`` are illegal, None if they divide their dimensions."""
    heads = problem.cutting.head > 1
    if heads and problem.pattern.consumes and problem.columns:
        return reject_lists("the heads of attention are columns of what arrives", "say slices and not columns")
    for name, cuts, whole, step in (
        ("slices", problem.slices, problem.inner, problem.cutting.column_step),
        ("columns", problem.columns, problem.output_cols, problem.cutting.column_step if heads else 1),
    ):
        if cuts and len(cuts) != len(problem.parts):
            return reject_lists(
                f"{name} are said of {len(cuts)} parts, there are {len(problem.parts)}", "a list for each part"
            )
        for sizes in filter(None, cuts):
            wrong = _reject_sizes(name, sizes, whole, step)
            if wrong is not None:
                return wrong
    kernels = sum(
        max(1, len(s)) * max(1, len(c)) for s, c in zip_longest(problem.slices, problem.columns, fillvalue=())
    )
    if kernels > MAX_KERNELS:
        return reject_lists(f"the parts are cut into {kernels} kernels", f"at most {MAX_KERNELS}")
    return None


def _reject_sizes(name: str, sizes: tuple[int, ...], whole: int, step: int) -> Rejection | None:
    these = f"{name} {list(sizes)}"
    if len(sizes) == 1:
        return reject_lists(f"{these} are one piece", "[] leaves a part whole")
    if min(sizes) < 1 or sum(sizes) != whole:
        return reject_lists(f"{these} do not make up {whole}", "together they are all of it, once, and none is empty")
    if any(size % step for size in sizes):
        return reject_lists(f"{these} are not multiples of {step}", f"for instance [{step}, {whole - step}]")
    return None


MAX_PARTS = 64
MOST_SIZES = 4
"""Parts whose rows are said in words; of more it is said how many."""
PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM, Pattern.GEMM_A2A)

Part = tuple[int, ...]
Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows [0] of the own block and [k] of the block that concerns peer k, with the slices and bands they are cut into.

    ``chains`` of kernels and ``rounds`` of copies come before it.
    """

    index: int
    rows: tuple[IndexRange, ...]
    slices: tuple[IndexRange, ...]
    bands: tuple[IndexRange, ...]
    chains: int = 0
    rounds: int = 0

    def kernel(self, place: int, band: int) -> str:
        """The kernel of one slice and band."""
        return f"g{self.index}{self._slice(place)}{self._band(band)}"

    def delivered(self, place: int, peer: int) -> str:
        """The copy that brings a slice of the rows from a peer."""
        return f"x{self.index}{self._slice(place)}_{peer}"

    def taken(self, band: int, peer: int) -> str:
        """The copy that takes a band of the rows to a peer."""
        return f"x{self.index}{self._band(band)}_{peer}"

    def _slice(self, place: int) -> str:
        return f"k{place}" if len(self.slices) > 1 else ""

    def _band(self, band: int) -> str:
        return f"c{band}" if len(self.bands) > 1 else ""


def block_rows(problem: TemplateInput) -> Part:
    """Rows of the own block, and of the blocks that concern peer 1, 2, ...: what the parts must add up to."""
    if not (problem.loads or problem.split):
        return (problem.shard_rows,) * problem.num_ranks
    there = problem.gets or problem.pattern.produces
    sources = (0, *(peer if there else -peer for peer in problem.peers))
    return tuple(problem.gathered(source).rows.size for source in sources)


def reject_parts(problem: TemplateInput) -> Rejection | None:
    """Why the parts of ``problem`` are no partition of the blocks, None if they cover every block once."""
    whole, n = block_rows(problem), problem.num_ranks
    if len(problem.parts) > MAX_PARTS:
        return reject_lists(f"there are {len(problem.parts)} parts", f"at most {MAX_PARTS}")
    for part in problem.parts:
        if len(part) not in (2, n):
            hint = f"[own, each peer] or [own, peer 1, ... peer {n - 1}]"
            return reject_lists(f"a part says the rows of {n} blocks, {_shown(part)} says {len(part)}", hint)
        if min(part) < 0 or not any(part):
            return reject_lists(f"part {_shown(part)} has no rows", "rows are not negative, and a part has some")
    for peer, rows in enumerate(map(sum, zip(*spelled(problem.parts, n), strict=True))):
        if rows != whole[peer]:
            which = f"of the block for peer {peer}" if peer else "of the own block"
            return reject_lists(
                f"the parts have {rows} rows {which}, which has {whole[peer]}", "together they are all rows, once"
            )
    return None


def spelled(parts: Iterable[Part], num_ranks: int) -> Parts:
    """Return ``parts`` with the rows of every peer written out."""
    return tuple(part if len(part) == num_ranks else (part[0], *part[1:] * (num_ranks - 1)) for part in parts)


def shortened(parts: Iterable[Part]) -> Parts:
    """Return ``parts``, shortened to ``[own, each peer]`` where all peers have equal rows."""
    return tuple(part[:2] if len(set(part[1:])) == 1 else part for part in parts)


def parts_in_words(parts: Parts) -> str:
    """What each part brings or takes, in turn; empty where there are no parts.

    >>> parts_in_words(((0, 128), (64, 128), (64, 0)))
    '128 + 128 of each other rank, own rows in parts 2 and 3'
    """
    own = [number for number, part in enumerate(parts, 1) if part[0]]
    others = [part[1:] for part in parts if any(part[1:])]
    if not parts:
        return ""
    alike = len(others) <= MOST_SIZES and all(len(set(rows)) == 1 for rows in others)
    theirs = f"{' + '.join(str(rows[0]) for rows in others)} of each other rank" if alike else ""
    theirs = theirs or f"{len(others)} rounds of unequal rows of the others"
    if own == [1] and not any(parts[0][1:]):
        return f"own rows first, then {theirs}"
    if own == [len(parts)] and not any(parts[-1][1:]):
        return f"{theirs}, own rows last"
    which = f"part {own[0]}" if len(own) == 1 else f"parts {', '.join(map(str, own[:-1]))} and {own[-1]}"
    return f"{theirs}, own rows in {which}" if own else theirs


TILE = 128
"""Rows of a tile of usual kernels of GEMMs: with edges of parts at multiples of it no tile is computed in two parts."""


def cuts_tiles(parts: Parts, num_ranks: int) -> bool:
    """Whether a part begins or ends within a tile of a block, but where the block ends."""
    blocks = zip(*spelled(parts, num_ranks), strict=True)
    edges = (list(accumulate(block)) for block in blocks)
    return any(edge % TILE and edge < block[-1] for block in edges for edge in block)


def whole_tiles(parts: Parts, num_ranks: int) -> Parts:
    """Return ``parts`` with each edge within a block at the nearest end of a tile; some may have no rows then."""
    blocks = (list(accumulate(block)) for block in zip(*spelled(parts, num_ranks), strict=True))
    edges = ([min(end[-1], edge if edge == end[-1] else round(edge / TILE) * TILE) for edge in end] for end in blocks)
    rows = ([after - before for before, after in pairwise((0, *block))] for block in edges)
    return tuple(zip(*rows, strict=True))


def _shown(part: Part) -> str:
    return f"[{', '.join(map(str, part))}]"


def _batches(problem: TemplateInput) -> list[_Batch]:
    whole = block_rows(problem)
    usual = ((whole[0], *(0,) * (problem.num_ranks - 1)), (0, *whole[1:]))
    parts = problem.parts or (usual[::-1] if problem.pattern.produces else usual)
    columns = zip(*spelled(parts, problem.num_ranks), strict=True)
    spans = ([IndexRange(low, high) for low, high in pairwise(accumulate(each, initial=0))] for each in columns)
    batches, chains, rounds = list[_Batch](), 0, 0
    for index, rows in enumerate(each for each in zip(*spans, strict=True) if any(span.size for span in each)):
        slices = pieces_of(problem.slices, index, problem.inner)
        bands = pieces_of(problem.columns, index, problem.output_cols)
        batches.append(_Batch(index, rows, slices, bands, chains, rounds))
        chains += len(bands)
        rounds += len(bands if problem.pattern.produces else slices)
    return batches


def _gather(problem: TemplateInput) -> Iterator[Step]:
    for batch in _batches(problem):
        for place, inner in enumerate(batch.slices):
            fetches = tuple(_fetch(problem, batch, place, peer) for peer in problem.peers if batch.rows[peer].size)
            yield from fetches
            arrived = tuple(fetch.signal for fetch in fetches)
            adds = place > 0 if problem.cutting.adds is Adds.COLUMNS else problem.adds_rows and batch.index > 0
            for band, cols in enumerate(batch.bands):
                tiles, stream = _tiles(problem, batch, cols), (batch.chains + band) % problem.streams
                yield TileGroup(batch.kernel(place, band), tiles, inner, arrived, stream, adds)


def _tiles(problem: TemplateInput, batch: _Batch, cols: IndexRange) -> tuple[Region, ...]:
    """The columns ``cols`` of the batch's rows of the output, by where they come from or are for."""
    there = problem.gets or problem.pattern.produces
    blocks = ((peer if there else -peer, rows) for peer, rows in enumerate(batch.rows) if rows.size)
    return tuple(problem.tiles(owner, rows, cols) for owner, rows in blocks)


def _fetch(problem: TemplateInput, batch: _Batch, place: int, peer: int) -> Transfer:
    name, owner = batch.delivered(place, peer), 0 if problem.gets is problem.pattern.exchanges else peer
    region = problem.block(owner, batch.rows[peer], batch.slices[place])
    lane = _lane(problem, batch.rounds + place, peer)
    return Transfer(name, problem.tactics.direction, region, peer, signal_of(name), lane=lane)


def _lane(problem: TemplateInput, rounds: int, peer: int) -> int | None:
    """The engine of a copy after so many rounds: with a lane for each peer always the same, with two each in turn."""
    return (rounds * len(problem.peers) + peer - 1) % problem.lanes if problem.lanes else None


def _scatter(problem: TemplateInput) -> Iterator[Step]:
    """Sums are cut where all that they need is cut, and made in the order of the rows."""
    batches = _batches(problem)
    todo = _sums(problem, batches) if problem.pattern.sums else []
    for batch in batches:
        for band in range(len(batch.bands)):
            yield from _made(problem, batch, band)
        while todo and todo[0].stop <= min(span.stop for span in batch.rows):
            yield from _summed(problem, batches, todo.pop(0))


def _made(problem: TemplateInput, batch: _Batch, band: int) -> Iterator[Step]:
    """The kernels of a band, slice after slice, and the copies of it once the last is done.

    A persistent kernel comes to its slices in order, but may be done with a later one first: copies wait for each.
    """
    cols, stream = batch.bands[band], (batch.chains + band) % problem.streams
    for place, inner in enumerate(batch.slices):
        yield TileGroup(batch.kernel(place, band), _tiles(problem, batch, cols), inner, (), stream, place > 0)
    places = range(len(batch.slices))
    awaited = places if problem.tactics.kernel is Kernels.PERSISTENT else places[-1:]
    made = tuple(batch.kernel(place, band) for place in awaited)
    for peer in problem.peers:
        if batch.rows[peer].size:
            region, lane = problem.block(peer, batch.rows[peer], cols), _lane(problem, batch.rounds + band, peer)
            yield put(batch.taken(band, peer), region, peer, made, lane)


def _sums(problem: TemplateInput, batches: Sequence[_Batch]) -> list[IndexRange]:
    """Rows of the own block that are summed together: those that the same batch completes at all peers."""
    edges = sorted({min(batch.rows[peer].stop for peer in problem.peers) for batch in batches} | {0})
    return [IndexRange(low, high) for low, high in pairwise(edges)]


def _summed(problem: TemplateInput, batches: Sequence[_Batch], rows: IndexRange) -> Iterator[Step]:
    """The sums of ``rows`` of the own block, one for each band of columns that all batches keep apart there."""
    blocks = ((batch, owner, span) for batch in batches for owner, span in enumerate(batch.rows))
    needed = [(batch, owner) for batch, owner, span in blocks if span.meets(rows)]
    edges = set.intersection(*({band.stop for band in batch.bands} for batch, _ in needed))
    for low, high in pairwise([0, *sorted(edges)]):
        stem = f"{rows.start}" if len(edges) == 1 else f"{rows.start}c{low}"
        mine = problem.block(0, rows, IndexRange(low, high))
        waits = tuple(name for batch, owner in needed for name in _made_by(batch, owner, mine.cols))
        yield Reduction(f"r{stem}", mine, problem.num_ranks, waits, problem.streams)
        yield from spread(problem, f"y{stem}", mine, f"r{stem}")


def _made_by(batch: _Batch, owner: int, cols: IndexRange) -> Iterator[str]:
    """Names to wait for before ``cols`` of the rows of a batch are here: own kernels, or signals of peer ``owner``."""
    for band, made in enumerate(batch.bands):
        if made.meets(cols):
            last = len(batch.slices) - 1
            yield batch.kernel(last, band) if owner == 0 else signal_of(batch.taken(band, owner))


TEMPLATE = Template(
    "bespoke",
    Cut.SHARD,
    overlaps=True,
    min_pieces=1,
    patterns=PATTERNS,
    build=on_either_side(_gather, _scatter),
    default_streams=2,
    explored=False,
    knobs=("parts", "slices", "columns", "streams", "lanes"),
    words=("{parts}",) * 2,
)
