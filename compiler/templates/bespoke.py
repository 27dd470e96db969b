"""bespoke: batches of any sizes, one kernel each. ``parts`` says the rows of every batch: own ones, then those by peer.

A part is ``[own, r1, r2, ...]``: the rows of the own block, and of the block that goes to or comes from peer 1, 2, ...;
``[own, r]`` where it is the same for all peers. Rows are taken from each block in the order of the batches. So chunks
may differ in size, the own shard may fill in between, and links may carry different amounts at a time, which templates
with equal chunks cannot do. Without parts it is the own shard and then the rest (reversed where parts are summed).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ..schedule import Reduction, Span, Step, TileGroup, Transfer
from ..workload import Pattern
from .base import Cut, Fetch, Problem, Template, put, signal_of, spread

MAX_PARTS = 64
PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)

Part = tuple[int, ...]
Parts = tuple[Part, ...]
Batch = tuple[Span, ...]
"""Rows of one batch, [0] of the own block and [k] of the block that concerns peer k."""


def build(problem: Problem) -> Iterator[Step]:
    """One kernel a batch, its transfers before it (what is gathered) or after it (what is summed)."""
    batches = _batches(problem)
    yield from _scatter(problem, batches) if problem.pattern.sums else _gather(problem, batches)


def block_rows(problem: Problem) -> Part:
    """Rows of the own block, and of the blocks that concern peer 1, 2, ...: what the parts must add up to."""
    sources = (0, *(peer if problem.gets else -peer for peer in problem.peers))
    if problem.pattern.sums:
        return (problem.shard_rows,) * problem.num_ranks
    return tuple(problem.gathered(source).rows.size for source in sources)


def why_no_parts(problem: Problem) -> tuple[str, str] | None:
    """What is wrong with the parts of ``problem`` and a hint, None if they cover every block once."""
    whole, n = block_rows(problem), problem.num_ranks
    if len(problem.parts) > MAX_PARTS:
        return f"there are {len(problem.parts)} parts", f"at most {MAX_PARTS}"
    for part in problem.parts:
        if len(part) not in (2, n):
            hint = f"[own, each peer] or [own, peer 1, ... peer {n - 1}]"
            return f"a part says the rows of {n} blocks, {_shown(part)} says {len(part)}", hint
        if min(part) < 0 or not any(part):
            return f"part {_shown(part)} has no rows", "rows are not negative, and a part has some"
    for peer, rows in enumerate(map(sum, zip(*spelled(problem.parts, n), strict=True))):
        if rows != whole[peer]:
            which = f"of the block for peer {peer}" if peer else "of the own block"
            return f"the parts have {rows} rows {which}, which has {whole[peer]}", "together they are all rows, once"
    return None


def spelled(parts: Iterable[Part], num_ranks: int) -> Parts:
    """The same parts with the rows of every peer written out."""
    return tuple(part if len(part) == num_ranks else (part[0], *part[1:] * (num_ranks - 1)) for part in parts)


def shortened(parts: Iterable[Part]) -> Parts:
    """The same parts, ``[own, each peer]`` where all peers have as many rows."""
    return tuple(part[:2] if len(set(part[1:])) == 1 else part for part in parts)


def _shown(part: Part) -> str:
    return f"[{', '.join(map(str, part))}]"


def _batches(problem: Problem) -> list[Batch]:
    whole = block_rows(problem)
    usual = ((whole[0], *(0,) * (problem.num_ranks - 1)), (0, *whole[1:]))
    parts = problem.parts or (usual[::-1] if problem.pattern.sums else usual)
    rows = zip(*spelled(parts, problem.num_ranks), strict=True)
    spans = ([Span(low, high) for low, high in pairwise(accumulate(each, initial=0))] for each in rows)
    return [batch for batch in zip(*spans, strict=True) if any(span.size for span in batch)]


def _gather(problem: Problem, batches: Sequence[Batch]) -> Iterator[Step]:
    for index, batch in enumerate(batches):
        fetches = [_fetch(problem, index, peer, batch[peer]) for peer in problem.peers if batch[peer].size]
        yield from (fetch.transfer for fetch in fetches)
        own = (problem.tiles(0, batch[0]),) if batch[0].size else ()
        tiles = (*own, *(fetch.tiles for fetch in fetches))
        landed = tuple(fetch.transfer.signal for fetch in fetches)
        adds = problem.adds_rows and index > 0
        yield TileGroup(f"g{index}", tiles, problem.all_inner, landed, index % problem.streams, adds)


def _fetch(problem: Problem, index: int, peer: int, rows: Span) -> Fetch:
    name, source = f"x{index}_{peer}", (peer if problem.gets else -peer)
    owner = 0 if problem.gets is problem.pattern.exchanges else peer
    region, lane = problem.block(owner, rows), _lane(problem, index, peer)
    transfer = Transfer(name, problem.tactics.direction, region, peer, signal_of(name), lane=lane)
    return Fetch(transfer, problem.tiles(source, rows))


def _lane(problem: Problem, index: int, peer: int) -> int | None:
    """The engine of a copy in batch ``index``: with a lane for each peer always the same, with two of them in turn."""
    return (index * len(problem.peers) + peer - 1) % problem.lanes if problem.lanes else None


def _scatter(problem: Problem, batches: Sequence[Batch]) -> Iterator[Step]:
    """Sums are cut where all peers have a cut at the same place or one behind it, and made in the order of the rows."""
    todo = _sums(problem, batches)
    for index, batch in enumerate(batches):
        group = f"g{index}"
        tiles = tuple(problem.tiles(owner, rows) for owner, rows in enumerate(batch) if rows.size)
        yield TileGroup(group, tiles, problem.all_inner, (), index % problem.streams)
        for peer in problem.peers:
            if batch[peer].size:
                region, lane = problem.block(peer, batch[peer]), _lane(problem, index, peer)
                yield put(f"x{index}_{peer}", region, peer, (group,), lane)
        while todo and todo[0].stop <= min(span.stop for span in batch):
            rows = todo.pop(0)
            name, mine = f"r{rows.start}", problem.block(0, rows)
            yield Reduction(name, mine, problem.num_ranks, _parts_of(problem, batches, rows), problem.streams)
            yield from spread(problem, f"y{rows.start}", mine, name)


def _sums(problem: Problem, batches: Sequence[Batch]) -> list[Span]:
    """Rows of the own block that are summed together: those that the same batch completes at all peers."""
    edges = sorted({min(batch[peer].stop for peer in problem.peers) for batch in batches} | {0})
    return [Span(low, high) for low, high in pairwise(edges)]


def _parts_of(problem: Problem, batches: Sequence[Batch], rows: Span) -> tuple[str, ...]:
    """What a sum of ``rows`` waits for: kernels of the own block, and what other ranks put here."""
    needed = [
        (index, owner)
        for index, batch in enumerate(batches)
        for owner, span in enumerate(batch)
        if span.size and span.start < rows.stop and rows.start < span.stop
    ]
    own = (f"g{index}" for index, owner in needed if owner == 0)
    return (*own, *(signal_of(f"x{index}_{owner}") for index, owner in needed if owner))


TEMPLATE = Template(
    "bespoke",
    Cut.SHARD,
    overlaps=True,
    min_pieces=1,
    patterns=PATTERNS,
    build=build,
    default_streams=2,
    explored=False,
    has_parts=True,
)
