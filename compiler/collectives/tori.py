"""torus_tree: on a torus one tree of short ways, the same from all ranks; a copy has rows of all that it passes on.

The tree is made by list scheduling: each direction, when it is free, takes the farthest of what has come to it and is
still to go on that way. What it takes at once is one copy, of the rows of as many ranks. So an all_gather makes some 30
puts in each direction at each rank, however many ranks there are, and all directions carry about as much.

A reduce_scatter goes the same ways backwards and sums on the way; an all_reduce does one and then the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush, nlargest
from itertools import product
from math import prod
from random import Random

from ..ir import Pattern, Reduction, Region, Rejection, Step, checkpoint
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, rejection, signal_of

Place = tuple[int, ...]
"""Coordinates relative to the root of a tree, or sides of a grid."""
Way = tuple[int, int]
"""A dimension, and up (1) or down (-1)."""

WAIT, TRIES, MORE_TRIES = 1.0, 8, 32
"""How long what has arrived waits to be sent on, in times of a copy of a shard: as on 64 GPUs with 16 MiB; how many
trees are drawn that take this into account, and how many where copies have several shards: of 8 the best on 8 x 8 x 4
loads its busiest link 9 % more than of 32."""
COPIES, WITH_SUMS = 30, 10
"""Copies of equal size in each direction, and of what is summed, where each needs sums before it. With 10 an all_gather
of 64 MiB on 8 x 8 x 4 takes 2 % longer than with 30."""
LEAST_SIDE = 3
"""On a side of two both ways round are one link."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What goes ``way`` in one copy: from ``places`` of a tree to those beside them."""

    way: Way
    places: tuple[Place, ...]


def beside(grid: Place, place: Place, way: Way) -> Place:
    """The place next to another, one way of one dimension."""
    return (*place[: way[0]], (place[way[0]] + way[1]) % grid[way[0]], *place[way[0] + 1 :])


@lru_cache(maxsize=16)
def hops_of(grid: Place, most: int) -> tuple[Hop, ...]:
    """Return the copies of the tree of one root in their order, each of up to ``most`` shards."""
    tries = MORE_TRIES if most > 1 else TRIES
    return min((_drawn(grid, most, Random(seed)) for seed in range(tries)), key=lambda found: found[0])[1]


def _drawn(grid: Place, most: int, random: Random) -> tuple[tuple[float, int], tuple[Hop, ...]]:
    """Shortest ways from the first place to all, behind the makespan in shards and the most shards in one direction.

    The last copies of each direction are smaller: then all directions end at once.
    """
    ways, root, now = [*product(range(len(grid)), (1, -1))], (0,) * len(grid), 0.0
    reached, ready, arriving = {root}, [root], list[tuple[float, Place]]()
    free, sent, hops = dict.fromkeys(ways, now), Counter[Way](), list[Hop]()

    places = [*product(*map(range, grid))]
    far = {place: sum(min(at, side - at) for at, side in zip(place, grid, strict=True)) for place in places}
    onward = {
        way: {each: there for each in places if far[there := beside(grid, each, way)] > far[each]} for way in ways
    }

    while len(reached) < len(places):
        checkpoint()
        while arriving and arriving[0][0] <= now:
            ready.append(heappop(arriving)[1])
        for way in random.sample(ways, len(ways)) if min(free.values()) <= now else ():
            known = [(random.random(), source, onward[way].get(source, root)) for source in ready]
            waiting = [(far[there], draw, source) for draw, source, there in known if there not in reached]
            if waiting and free[way] <= now:
                count = min(most, -(-(len(places) - len(reached)) // (2 * len(ways))))
                drawn = nlargest(count, waiting)
                hops.append(Hop(way, tuple(source for _, _, source in drawn)))
                targets = [onward[way][source] for _, _, source in drawn]
                reached.update(targets)
                free[way] = now + len(targets)
                sent[way] += len(targets)
                for target in targets:
                    heappush(arriving, (free[way] + WAIT, target))
        now = min(at for at in (*free.values(), *(at for at, _ in arriving)) if at > now)
    return (max(free.values()), max(sent.values())), tuple(hops)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The tree as seen from the rank of ``problem``, for one piece: which rows each copy has, and what brings them."""

    problem: CollectiveProblem
    hops: tuple[Hop, ...]
    brought_by: Mapping[Place, int]

    @classmethod
    def of(cls, problem: CollectiveProblem) -> "_Seen":
        grid = problem.grid
        copies = COPIES if problem.kind is Pattern.ALL_GATHER else WITH_SUMS
        hops = hops_of(grid, -(-prod(grid) // (2 * len(grid) * copies)))
        targets = {beside(grid, each, hop.way): at for at, hop in enumerate(hops) for each in hop.places}
        return cls(problem, hops, targets)

    def offset(self, steps: Sequence[int]) -> int:
        """The rank so many steps further in each dimension, relative to this one."""
        found, stride, grid = 0, 1, self.problem.grid
        for step, side in zip(reversed(steps), reversed(grid), strict=True):
            at = self.problem.rank // stride % side
            found, stride = found + ((at + step) % side - at) * stride, stride * side
        return found % self.problem.num_ranks

    def neighbour(self, way: Way, sign: int = 1) -> int:
        """The next rank that way, or the other way."""
        return self.offset([way[1] * sign * (dimension == way[0]) for dimension in range(len(self.problem.grid))])

    def lane(self, way: Way, sign: int = 1) -> int | None:
        """The engine of the copies that way, None for the first that is free."""
        lanes = self.problem.lanes
        return (2 * way[0] + (way[1] * sign < 0)) % lanes if lanes else None

    def region(self, places: Sequence[Place], piece: int) -> Region:
        """Rows of the ranks that see this one at ``places``."""
        owner, *also = (self.offset([-step for step in place]) for place in places)
        rows = self.problem.region(0, piece)
        return Region(owner, rows.rows, rows.cols, tuple(also))

    def ready(self, region: Region, piece: int) -> Names:
        """What makes the own parts of ``region``."""
        return tuple(dict.fromkeys(name for owner in region.owners for name in self.problem.ready(owner, piece)))


def _name(problem: CollectiveProblem, stem: str, piece: int, at: int, part: int | None = None) -> str:
    return problem.label(stem, problem.index_of(piece), at, part)


def _gather(seen: _Seen, ready: Mapping[int, Names]) -> Iterator[Step]:
    problem = seen.problem
    for (at, hop), piece in product(enumerate(seen.hops), range(problem.pieces)):
        known = sorted({seen.brought_by[place] for place in hop.places if place in seen.brought_by})
        arrived = (signal_of(_name(problem, "y", piece, each)) for each in known)
        after = (*(ready[piece] if any(place not in seen.brought_by for place in hop.places) else ()), *arrived)
        name, region = _name(problem, "y", piece, at), seen.region(hop.places, piece)
        put = problem.put(name, region, seen.neighbour(hop.way), after)
        yield replace(put, lane=seen.lane(hop.way))


def _scatter(seen: _Seen) -> Iterator[Step]:
    """The copies backwards. Before each, kernels sum what it takes: one kernel for all sums of as many parts."""
    problem, grid = seen.problem, seen.problem.grid
    above = defaultdict[Place, list[int]](list)
    for at, hop in enumerate(seen.hops):
        for place in hop.places:
            above[place].append(at)
    root = (0,) * len(grid)
    for (at, hop), piece in product(reversed([*enumerate(seen.hops)]), range(problem.pieces)):
        taken = tuple(beside(grid, place, hop.way) for place in hop.places)
        sums = [*_sums(seen, taken, above, piece, at)]
        yield from (step for step, _ in sums if step is not None)
        name, region = _name(problem, "x", piece, at), seen.region(taken, piece)
        after = (*seen.ready(region, piece), *(name for _, names in sums for name in names))
        put = problem.put(name, region, seen.neighbour(hop.way, -1), after, reduce=problem.adds)
        yield replace(put, lane=seen.lane(hop.way, -1))
    for piece in range(problem.pieces):
        yield from (step for step, _ in _sums(seen, (root,), above, piece, len(seen.hops)) if step is not None)


def _sums(
    seen: _Seen, places: Sequence[Place], above: Mapping[Place, Sequence[int]], piece: int, at: int
) -> Iterator[tuple[Reduction | None, Names]]:
    """Sums of what comes to ``places`` on the way to the root, with the names to wait for."""
    problem, alike = seen.problem, defaultdict[int, list[Place]](list)
    for place in places:
        alike[len(above.get(place, ()))].append(place)
    for count, some in sorted(alike.items()):
        if count:
            coming = sorted({each for place in some for each in above[place]}, reverse=True)
            signals = tuple(signal_of(_name(problem, "x", piece, each)) for each in coming)
            if problem.adds:
                yield None, signals
                continue
            name, region = _name(problem, "r", piece, at, count), seen.region(some, piece)
            after = (*seen.ready(region, piece), *signals)
            yield Reduction(name, region, 1 + count, after, problem.stream), (name,)


def _build(problem: CollectiveProblem) -> Fragment:
    seen, steps, pieces = _Seen.of(problem), list[Step](), range(problem.pieces)
    ready = {piece: problem.ready(0, piece) for piece in pieces}
    root, arrives = (0,) * len(problem.grid), len(seen.hops)
    if problem.kind is not Pattern.ALL_GATHER:
        steps += _scatter(seen)
        first = [at for at, hop in enumerate(seen.hops) if root in hop.places]
        whole = {
            piece: tuple(signal_of(_name(problem, "x", piece, at)) for at in first)
            if problem.adds
            else (_name(problem, "r", piece, arrives, len(first)),)
            for piece in pieces
        }
        ready = {piece: (*names, *whole[piece]) for piece, names in ready.items()}
    if problem.kind is Pattern.REDUCE_SCATTER:
        return Fragment(tuple(steps), {(0, piece): names for piece, names in ready.items()})
    steps += _gather(seen, ready)
    come = {piece: tuple(signal_of(_name(problem, "y", piece, at)) for at in range(arrives)) for piece in pieces}
    done = {(block, piece): (*ready[piece], *come[piece]) for block in range(problem.num_ranks) for piece in pieces}
    return Fragment(tuple(steps), done)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    grid = problem.grid
    if len(grid) < 2 or min(grid) < LEAST_SIDE or prod(grid) != problem.num_ranks:
        return rejection(f"torus_tree needs a torus of two or three sides of {LEAST_SIDE} or more ranks")
    if problem.with_kernel:
        return rejection("torus_tree is for a collective alone: its copies have rows of many ranks")
    return rejection("torus_tree moves shards of one size") if problem.loads else None


TORUS_TREE = Algorithm("torus_tree", TWO_PHASES, _build, own_rule=_own_rule, per_layer=TWO_PHASES)
