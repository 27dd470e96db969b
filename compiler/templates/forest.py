"""forest: each shard goes down trees of its own, which together load all links alike. ``trees`` says which.

A tree is ``[root, weight, p0, p1, ...]``: the rank whose rows it carries, its share of them, and the parent of each
rank, at the root the root itself. Rows of a shard are dealt to its trees by weight and cut into chunks that follow each
other. An all_gather puts chunks down the trees; a reduce_scatter sums them on the way up, in the reverse order; an
all_reduce does one and then the other. Without trees each shard has one, of the fewest levels.

What a rank sends over a link follows in the order of a schedule in which each link has a rate in proportion to what
crosses it: if trees load all links alike, those are their rates. Packings of trees reach the bound of the narrowest cut
(Edmonds; ForestColl, arXiv 2402.06787).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

from ..codes import Code
from ..collectives import signal_of
from ..ir import IndexRange, Pattern, Reduction, Region, Rejection, Step
from .base import Cut, Template, TemplateInput, put

PATTERNS = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
MAX_TREES = 1024
HOP = 0.05
"""How long a hop delays what lies below it, as a part of the time of all copies: a chunk with many hops goes first."""

Tree = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TreeChunk:
    """Rows of the shard of ``root`` that go down one tree; ``parents`` has that of each rank, the root's own itself."""

    tree: int
    index: int
    root: int
    rows: IndexRange
    parents: Tree

    def children(self, rank: int) -> tuple[int, ...]:
        """The ranks below one."""
        return tuple(each for each, above in enumerate(self.parents) if above == rank and each != rank)

    def name(self, stem: str, rank: int) -> str:
        """The copy that brings it down to ``rank``, or up from it, or the sum there."""
        return f"{stem}{self.tree}_{self.index}_{rank}"


def reject_trees(problem: TemplateInput) -> Rejection | None:
    """Why the trees of ``problem`` are none, None if those of each root span all ranks."""
    n, example = problem.num_ranks, "trees=[[root, weight, parent of rank 0, parent of rank 1, ...], ...]"
    if len(problem.trees) > MAX_TREES:
        return _rejection(f"there are {len(problem.trees)} trees", f"at most {MAX_TREES}")
    for tree in problem.trees:
        shown = f"tree {list(tree)}"
        if len(tree) != n + 2:
            return _rejection(f"{shown} has {len(tree)} numbers, for {n} ranks it needs {n + 2}", example)
        root, weight, *parents = tree
        if weight < 1 or max(root, *parents) >= n or parents[root] != root:
            return _rejection(f"{shown} names no rank, has no weight, or its root has a parent", example)
        if any(not _reaches(parents, rank, root) for rank in range(n)):
            return _rejection(f"{shown} does not lead from rank {root} to all ranks", example)
    if problem.trees and {tree[0] for tree in problem.trees} != set(range(n)):
        return _rejection("each rank needs a tree for its rows", example)
    return None


def _reaches(parents: Sequence[int], rank: int, root: int) -> bool:
    for _ in parents:
        rank = parents[rank]
    return rank == root


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS514, message, hint)


def _direct(num_ranks: int) -> tuple[Tree, ...]:
    return tuple((root, 1, *(root,) * num_ranks) for root in range(num_ranks))


@lru_cache(maxsize=32)
def _chunks(trees: tuple[Tree, ...], shard_rows: int, pieces: int) -> tuple[TreeChunk, ...]:
    """All chunks: rows of each shard by the weights of its trees, each share in its part of ``pieces``."""
    weights, found, done = defaultdict[int, int](int), list[TreeChunk](), defaultdict[int, int](int)
    for root, weight, *_ in trees:
        weights[root] += weight
    for number, (root, weight, *parents) in enumerate(trees):
        first, done[root] = shard_rows * done[root] // weights[root], done[root] + weight
        size = shard_rows * done[root] // weights[root] - first
        count = min(size, max(1, round(pieces * weight / weights[root])))
        for index in range(count):
            rows = IndexRange(first + index * size // count, first + (index + 1) * size // count)
            found.append(TreeChunk(number, index, root, rows, tuple(parents)))
    return tuple(found)


Copy = tuple[TreeChunk, int]
"""A chunk, and the rank to which it is put by its parent there."""


@lru_cache(maxsize=8)
def ordered_copies(trees: tuple[Tree, ...], shard_rows: int, pieces: int) -> tuple[Copy, ...]:
    """All copies of an all_gather in the order in which they begin: of those that wait for a link the one with most to
    do below it goes first.
    """
    copies = [(chunk, rank) for chunk in _chunks(trees, shard_rows, pieces) for rank in _below(chunk, chunk.root)]
    crossing = defaultdict[tuple[int, int], int](int)
    for chunk, rank in copies:
        crossing[chunk.parents[rank], rank] += chunk.rows.size
    lasts = {copy: copy[0].rows.size / crossing[copy[0].parents[copy[1]], copy[1]] for copy in copies}
    behind = dict[Copy, float]()
    for chunk, rank in reversed(copies):
        below = max((behind[chunk, child] for child in chunk.children(rank)), default=0.0)
        behind[chunk, rank] = lasts[chunk, rank] + HOP + below
    return tuple(_scheduled(copies, lasts, behind))


def _below(chunk: TreeChunk, rank: int) -> Iterator[int]:
    """The ranks below one, each behind its parent."""
    for child in chunk.children(rank):
        yield child
        yield from _below(chunk, child)


def _scheduled(copies: Sequence[Copy], lasts: dict[Copy, float], behind: dict[Copy, float]) -> Iterator[Copy]:
    """The copies as a list schedule begins them: one at a time on a link, each behind the one that brought its rows."""
    queues, places = defaultdict[tuple[int, int], list[tuple[float, int]]](list), {c: i for i, c in enumerate(copies)}
    events = [(0.0, places[copy]) for copy in copies if copy[0].parents[copy[1]] == copy[0].root]
    heapify(events)
    free = defaultdict[tuple[int, int], float](float)
    while events:
        now = events[0][0]
        woken = set[tuple[int, int]]()
        while events and events[0][0] <= now:
            place = heappop(events)[1]
            if place >= 0:
                chunk, rank = copies[place]
                heappush(queues[chunk.parents[rank], rank], (-behind[copies[place]], place))
                woken.add((chunk.parents[rank], rank))
            else:
                woken |= {link for link, waiting in queues.items() if waiting}
        for link in sorted(woken):
            if queues[link] and free[link] <= now:
                chunk, rank = copy = copies[heappop(queues[link])[1]]
                yield copy
                free[link] = now + lasts[copy]
                heappush(events, (free[link], -1))
                for child in chunk.children(rank):
                    heappush(events, (free[link], places[chunk, child]))


def build_rank(problem: TemplateInput, rank: int) -> Iterator[Step]:
    """The steps of one rank."""
    trees = problem.trees or _direct(problem.num_ranks)
    copies = ordered_copies(trees, problem.shard_rows, problem.pieces)
    if problem.pattern is not Pattern.ALL_GATHER:
        yield from _sums_up(problem, rank, copies)
    if problem.pattern is not Pattern.REDUCE_SCATTER:
        yield from _puts_down(problem, rank, copies)


def _puts_down(problem: TemplateInput, rank: int, copies: Sequence[Copy]) -> Iterator[Step]:
    lanes = _Lanes(problem, {to for chunk, to in copies if chunk.parents[to] == rank})
    for chunk, to in copies:
        if chunk.parents[to] != rank:
            continue
        if rank != chunk.root:
            after: tuple[str, ...] = (signal_of(chunk.name("d", rank)),)
        else:
            after = (chunk.name("r", rank),) if problem.pattern is Pattern.ALL_REDUCE else ()
        yield put(chunk.name("d", to), _region(problem, chunk, rank), _peer(problem, rank, to), after, lanes.next(to))


def _sums_up(problem: TemplateInput, rank: int, copies: Sequence[Copy]) -> Iterator[Step]:
    """Sums of what comes from below with the rank's own, and their copies to the parent; at a root sums alone."""
    lanes = _Lanes(problem, {chunk.parents[rank] for chunk, to in copies if to == rank})
    seen = defaultdict[TreeChunk, int](int)
    for chunk, to in reversed(copies):
        if chunk.parents[to] == rank == chunk.root:
            seen[chunk] += 1
            if seen[chunk] == len(chunk.children(rank)):
                yield _sum(problem, chunk, rank)
        if to != rank:
            continue
        above, below = chunk.parents[rank], chunk.children(rank)
        if below:
            yield _sum(problem, chunk, rank)
        after = (chunk.name("r", rank),) if below else ()
        peer = _peer(problem, rank, above)
        yield put(chunk.name("u", rank), _region(problem, chunk, rank), peer, after, lanes.next(above))


def _sum(problem: TemplateInput, chunk: TreeChunk, rank: int) -> Reduction:
    below = chunk.children(rank)
    signals = tuple(signal_of(chunk.name("u", child)) for child in below)
    return Reduction(chunk.name("r", rank), _region(problem, chunk, rank), 1 + len(below), signals)


def _region(problem: TemplateInput, chunk: TreeChunk, rank: int) -> Region:
    return problem.block(_peer(problem, rank, chunk.root), chunk.rows)


def _peer(problem: TemplateInput, rank: int, other: int) -> int:
    return (other - rank) % problem.num_ranks


class _Lanes:
    """Engines for the copies of a rank: with lanes each link has as many of its own, which take turns."""

    def __init__(self, problem: TemplateInput, targets: set[int]) -> None:
        self.lanes, self.each = problem.lanes, max(1, problem.lanes // max(1, len(targets)))
        self.place = {target: place for place, target in enumerate(sorted(targets))}
        self.sent = defaultdict[int, int](int)

    def next(self, target: int) -> int | None:
        """The engine of the next copy to a rank, None for the first that is free."""
        if not self.lanes:
            return None
        turn, self.sent[target] = self.sent[target] % self.each, self.sent[target] + 1
        return (self.place[target] * self.each + turn) % self.lanes


TEMPLATE = Template(
    "forest",
    Cut.ROWS,
    overlaps=False,
    min_pieces=1,
    patterns=PATTERNS,
    build=lambda problem: build_rank(problem, 0),
    build_rank=build_rank,
    period=lambda problem: problem.num_ranks,
    explored=False,
    knobs=("trees", "lanes"),
    words=("shares of the rows along trees of links",) * 2,
)
