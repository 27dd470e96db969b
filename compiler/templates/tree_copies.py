"""The copies of trees in the order in which they begin: chunks of shards, and a list schedule of their routes.

What a rank sends over a link follows in the order of a schedule in which each route has its part of the rates of its
links, in proportion to what crosses them.

Where a shift of all ranks maps the trees onto each other, and the network onto itself, it maps the schedule too: copies
of the trees of the first ranks stand for all, and so do these ranks in a plan and in a simulation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ..ir import IndexRange, Network, Pattern

ONE_POOL = (Pattern.ALL_REDUCE, Pattern.BROADCAST)
"""Collectives that deal all rows to all trees."""
HOP = 0.1
"""How long a hop delays what lies below it, as a part of the time of all copies: a chunk with many hops goes first."""
PROGRESS = 1.5
"""By how much, in times of all copies, the first chunk of a tree goes before its last in an all_reduce: with less what
goes up holds up all that goes down, and links at the ends of trees idle first and are the last to finish. With 1.5
the order takes 0 to 9 % more than the busiest link on six machines, with 0 up to 49 %."""
SETUP = 0.5
"""How long setting up the next copy delays what goes on, likewise: chunks are cut so small that a setup counts. 0 takes
1 % longer on a cube mesh and 6 % on a torus, 1 as long, 2 1 % longer on six GPUs (16 MiB)."""
SPREAD = 0.5
"""Weight, 0 to 1, of the real rate of a link that is less busy; at 0 each is slowed until all are as busy. 0
takes 1 to 3 % longer on irregular graphs, 1 6 % on a torus of 4 x 4 x 4, on the others no less."""
SUM = 2.0
"""How long a sum delays what goes on, in times of the copy before it: all of a link waits behind one that is late."""

Tree = tuple[int, ...]
Ends = tuple[int, int]
"""From which rank to which."""


@dataclass(frozen=True, slots=True, eq=False)  # there is one of each, which is told apart quickly
class TreeChunk:
    """Rows of the shard of ``owner`` that go down a tree; ``parents`` has that of each rank, the root's own itself.

    ``above`` are those on the way up. In an all_to_all rows that the root has for ``owner``; ranks beside the way there
    are their own parents. All ranks of it are ``shift`` further than those of the chunk that stands for it.
    """

    tree: int
    index: int
    root: int
    owner: int
    rows: IndexRange
    parents: Tree
    above: Tree
    shift: int = 0

    def children(self, rank: int, *, up: bool = False) -> tuple[int, ...]:
        """The ranks below one, on the way down or up."""
        return _children(self.above if up else self.parents)[rank]

    def to_each(self) -> Iterator["TreeChunk"]:
        """The same rows of the blocks that the root has for each other rank."""
        n = len(self.parents)
        for target in (each for each in range(n) if each != self.root):
            way = {target}
            while self.root not in way:
                way |= {self.parents[rank] for rank in way}
            parents = tuple(above if rank in way else rank for rank, above in enumerate(self.parents))
            yield replace(self, owner=target, index=self.index * n + target, parents=parents)

    def name(self, stem: str, rank: int) -> str:
        """The copy that brings it down to ``rank``, or up from it, or the sum there."""
        return f"{stem}{self.tree}_{self.index}_{(rank - self.shift) % len(self.parents)}"


@lru_cache(maxsize=4096)
def _children(parents: Tree) -> tuple[Tree, ...]:
    """The ranks below each."""
    below = [list[int]() for _ in parents]
    for rank, above in enumerate(parents):
        if rank != above:
            below[above].append(rank)
    return tuple(map(tuple, below))


@lru_cache(maxsize=32)
def repeats_after(trees: tuple[Tree, ...], num_ranks: int, kind: Pattern, network: Network | None) -> int:
    """By how many ranks trees and ``network`` can be shifted, a divisor of all, so that they are the same trees."""
    known = Counter(trees)
    for shift in range(1, num_ranks):
        if num_ranks % shift or network is None or shift % network.period or kind is Pattern.ALL_TO_ALL:
            continue
        if all(known[_shifted(tree, shift, num_ranks)] == count for tree, count in known.items()):
            return shift
    return num_ranks


def _shifted(tree: Tree, shift: int, num_ranks: int) -> Tree:
    root, weight, *parents = tree
    ways = (parents[first : first + num_ranks] for first in range(0, len(parents), num_ranks))
    moved = [(way[(rank - shift) % num_ranks] + shift) % num_ranks for way in ways for rank in range(num_ranks)]
    return (root + shift) % num_ranks, weight, *moved


@lru_cache(maxsize=32)
def _chunks(
    trees: tuple[Tree, ...], shards: tuple[int, ...], pieces: int, step: int, one_pool: bool, period: int
) -> tuple[TreeChunk, ...]:
    """All chunks: rows of each shard, of so many, by the weights of its trees, each share in its part of ``pieces``.

    With ``one_pool`` rows of all shards are dealt to all trees. Edges of chunks are multiples of ``step``, which does
    not exceed the rows of a piece. Those of roots below ``period`` come first, the others as often behind them.
    """
    n = len(shards)
    first_trees = [tree for tree in trees if tree[0] < period]
    trees = (*first_trees, *(_shifted(tree, at, n) for at in range(period, n, period) for tree in first_trees))
    weights, found, done = defaultdict[int, int](int), list[TreeChunk](), defaultdict[int, int](int)
    for root, weight, *_ in trees:
        weights[-1 if one_pool else root] += weight
    for number, (root, weight, *parents) in enumerate(trees):
        pool, owners = (-1, range(len(shards))) if one_pool else (root, (root,))
        steps = sum(shards[owner] // step for owner in owners)
        first, done[pool] = _share(steps, done[pool], weights[pool]), done[pool] + weight
        last, index = _share(steps, done[pool], weights[pool]), 0
        for owner in owners:
            steps, start = shards[owner] // step, max(first, 0)
            size = max(0, min(last, steps) - start)
            count = min(size, max(1, round(pieces * len(owners) * weight / weights[pool] * size / (last - first or 1))))
            for at in range(count):
                low, high = (start + part * size // count for part in (at, at + 1))
                rows = IndexRange(low * step, shards[owner] if high == steps else high * step)
                down, up = tuple(parents[: len(shards)]), tuple(parents[-len(shards) :])
                place, shift = number % len(first_trees), number // len(first_trees) * period
                found.append(TreeChunk(place, index + at, root, owner, rows, down, up, shift))
            first, last, index = first - steps, last - steps, index + count
    return tuple(found)


def _share(steps: int, weight: int, whole: int) -> int:
    """So much of all ``steps`` as ``weight`` is of ``whole``, rounded."""
    return (2 * steps * weight + whole) // (2 * whole)


class TreeCopy(NamedTuple):
    """A chunk that its parent there puts to ``rank``, or on the way ``up`` what ``rank`` puts to its parent."""

    chunk: TreeChunk
    rank: int
    up: bool = False

    @property
    def link(self) -> Ends:
        """From which rank to which."""
        if self.up:
            return self.rank, self.chunk.above[self.rank]
        return self.chunk.parents[self.rank], self.rank

    def link_among(self, period: int) -> Ends:
        """The link of one of the first ranks that stands for it."""
        source, target = self.link
        return source % period, (target - source + source % period) % len(self.chunk.parents)

    def followers(self) -> list["TreeCopy"]:
        """The copies that wait for this one, among others."""
        chunk, at = self.chunk, self.link[1]
        if self.up and at != chunk.root:
            return [TreeCopy(chunk, at, up=True)]
        return [TreeCopy(chunk, child) for child in chunk.children(at)]


@lru_cache(maxsize=8)
def ordered_copies(
    trees: tuple[Tree, ...],
    shards: tuple[int, ...],
    pieces: int,
    step: int = 1,
    kind: Pattern = Pattern.ALL_GATHER,
    network: Network | None = None,
    period: int | None = None,
) -> tuple[tuple[TreeCopy, float], ...]:
    """All copies of a collective in the order in which they begin, each with a time in parts of the busiest link's.

    That is when a copy down a tree ends, and when one up a tree begins. Of those that wait for a link the one with most
    to do behind it goes first. Chunks have multiples of ``step`` rows. A reduce_scatter is an all_gather backwards; in
    an all_reduce chunks go down while others still go up, each tree's in turn. The order is the same after each
    ``period`` of ranks, one of ``repeats_after``.
    """
    n = len(shards)
    period = period or n
    every = _chunks(trees, shards, pieces, step, kind in ONE_POOL, period)
    if kind is Pattern.ALL_TO_ALL:
        every = tuple(each for chunk in every for each in chunk.to_each())
    numbers, chunks = {chunk: number for number, chunk in enumerate(every)}, every[: len(every) * period // n]
    copies = [TreeCopy(chunk, rank) for chunk in chunks for rank in _below(chunk, chunk.root)]
    if kind is Pattern.ALL_REDUCE:
        ups = [TreeCopy(chunk, rank, up=True) for chunk in chunks for rank in _below(chunk, chunk.root, up=True)]
        copies = [*reversed(ups), *copies]
    links = {copy: copy.link_among(period) for copy in copies}
    a_row = _times_of_a_row(links, network, range(0, n, period))
    lasts = {copy: copy.chunk.rows.size * a_row[link] for copy, link in links.items()}
    behind = dict[TreeCopy, float]()
    for copy in reversed(copies):
        then = max((behind[other] for other in copy.followers() if other in lasts), default=0.0)
        behind[copy] = lasts[copy] + HOP + then
    if kind is Pattern.ALL_REDUCE:
        counts = Counter(chunk.tree for chunk in chunks)
        behind = {copy: left - PROGRESS * copy.chunk.index / counts[copy.chunk.tree] for copy, left in behind.items()}
    timed = [(copy, end - lasts[copy] if copy.up else end) for copy, end in _scheduled(links, lasts, behind)]
    if kind is Pattern.REDUCE_SCATTER:
        last = max(end for _, end in timed)
        timed = [(copy._replace(up=True), last - end) for copy, end in reversed(timed)]
    times = n // period
    # What one of the first ranks puts up comes before what it sums of the same: the other of the two waits for that.
    return tuple(
        (TreeCopy(every[numbers[chunk] + place * len(chunks)], (rank + place * period) % n, up), at)
        for (chunk, rank, up), at in timed
        for place in ((number - rank // period) % times for number in range(times))
    )


@lru_cache(maxsize=8)
def copies_by_rank(
    trees: tuple[Tree, ...],
    shards: tuple[int, ...],
    pieces: int,
    step: int,
    kind: Pattern,
    network: Network | None,
    period: int,
) -> tuple[tuple[tuple[TreeCopy, float], ...], ...]:
    """``ordered_copies`` that begin or end at each of the first ``period`` ranks."""
    found = tuple(list[tuple[TreeCopy, float]]() for _ in shards)
    for timed in ordered_copies(trees, shards, pieces, step, kind, network, period):
        for end in timed[0].link:
            found[end].append(timed)
    return tuple(map(tuple, found[:period]))


def _times_of_a_row(
    links: Mapping[TreeCopy, Ends], network: Network | None, shifts: Sequence[int]
) -> dict[Ends, float]:
    """How long a row takes from one rank to another, in parts of the time of the busiest link of ``network``.

    Each way has as much of a link as it passes of all that crosses it; without a network all are as busy (``SPREAD``).
    As much crosses links that are so many ``shifts`` further.
    """
    crossing, loads = Counter[Ends](), defaultdict[Ends, float](float)
    for copy, link in links.items():
        crossing[link] += copy.chunk.rows.size
    if network is None:
        return {link: 1 / rows for link, rows in crossing.items()}
    routes, n = {link: network.route(*link) for link in crossing}, network.num_ranks
    for (source, target), rows in crossing.items():
        for shift in shifts:
            for edge in network.route((source + shift) % n, (target + shift) % n):
                loads[edge.ends] += rows / edge.bytes_per_s
    busiest = max(loads.values())
    busy = {link: max(loads[edge.ends] for edge in routes[link]) / busiest for link in crossing}
    return {link: (1 - SPREAD + SPREAD * busy[link]) / rows for link, rows in crossing.items()}


def _below(chunk: TreeChunk, rank: int, *, up: bool = False) -> Iterator[int]:
    """The ranks below one, each behind its parent."""
    for child in chunk.children(rank, up=up):
        yield child
        yield from _below(chunk, child, up=up)


def _scheduled(
    link_of: Mapping[TreeCopy, Ends], lasts: Mapping[TreeCopy, float], behind: Mapping[TreeCopy, float]
) -> Iterator[tuple[TreeCopy, float]]:
    """The copies and their ends as a list schedule begins them: one at a time on a link, each behind all it needs."""
    copies = list(link_of)
    places, free = {copy: place for place, copy in enumerate(copies)}, dict.fromkeys(link_of.values(), 0.0)
    links, queues = list(free), {link: list[tuple[float, int]]() for link in free}
    numbers = {link: number for number, link in enumerate(links)}
    awaited = Counter(other for copy in copies for other in copy.followers())
    events = [(0.0, place) for copy, place in places.items() if not awaited[copy]]
    heapify(events)
    while events:
        now = events[0][0]
        woken = set[Ends]()
        while events and events[0][0] <= now:
            place = heappop(events)[1]
            if place < 0:  # a link is free
                woken.add(links[~place])
            elif awaited[copies[place]] < 2:
                heappush(queues[link_of[copies[place]]], (-behind[copies[place]], place))
                woken.add(link_of[copies[place]])
            else:
                awaited[copies[place]] -= 1
        for link in sorted(woken, key=partial(_rotated, len(copies[0].chunk.parents))):
            if queues[link] and free[link] <= now:
                copy = copies[heappop(queues[link])[1]]
                free[link] = now + lasts[copy]
                yield copy, free[link]
                heappush(events, (free[link], ~numbers[link]))
                for other in copy.followers():
                    heappush(events, (free[link] + (SUM if copy.up else SETUP) * lasts[copy], places[other]))


def _rotated(num_ranks: int, link: Ends) -> Ends:
    """The order of links that are free at once: each rank begins with the next, so that no two begin with the same."""
    return link[0], (link[1] - link[0]) % num_ranks
