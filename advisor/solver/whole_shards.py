"""Trees of whole shards for small tensors: a local search that times all copies by a list schedule.

Of small tensors copies count, and not bytes alone: each is read, passes its route, is written and looked for, and holds
its part of the SMs that long. Packings (``forest``) know nothing of that, and their edges pass no rank; here any rank
sends to any other, over whichever ranks the route passes. The search gives one rank of one tree after the other another
parent. What it finds is simulated beside the others: the schedule in which it counts leaves out how copies that share
a link share its time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate, permutations
from random import Random

from ...compiler.ir import TICKS_PER_SECOND, CopyProtocol, OpCase, Pattern, checkpoint
from ...simcore.lower.machine import LL128_BYTES, LL128_PAYLOAD
from ...simcore.lower.waits import poll_ticks
from .images import Ends, Trees

MOST_RANKS = 8
SEED, STEPS, MEMORY = 1, 2000, 40
"""Moves that are tried; one is taken that is no worse than what the search had so many moves before."""
MEAN = 0.1
"""Weight of the mean arrival beside the last: it leads to moves that free what the last copy waits for."""
Parents = Sequence[int]
"""The parent of each rank, the root's own itself."""


@lru_cache(maxsize=8)
def whole_shards(scenario: OpCase, sms: int) -> tuple[Trees, ...]:
    """Return sets of trees as ``forest`` takes them, each of a tree for each shard; none beyond ``MOST_RANKS`` ranks.

    So many ``sms`` copy, in equal parts for all peers of a rank.

    That is for what is gathered or broadcast by SMs with flags between the data: sums of 64 and 256 KiB took 2 to 35 %
    longer down such trees than as now in 18 of 19 cases on twelve machines.
    """
    pattern, n, moved = scenario.shape.pattern, scenario.num_ranks, scenario.shape.moved
    if moved is None or pattern.exchanges or pattern.sums or not 2 < n <= MOST_RANKS:
        return ()
    roots = [0] * n if pattern is Pattern.BROADCAST else list(range(n))
    found = _searched(_Copies(scenario, moved.num_bytes // n, sms), roots)
    return (tuple((root, 1, *parents) for root, parents in zip(roots, found, strict=True)),)


@dataclass(frozen=True, slots=True)
class _Way:
    """From one rank to another: each link, how long a copy holds it, and when after the first; times in ticks."""

    links: tuple[tuple[Ends, int, int], ...]
    latency: int
    slowest: int


class _Copies:
    """What copies of ``num_bytes`` by ``sms`` SMs take between any two ranks, in ticks."""

    def __init__(self, scenario: OpCase, num_bytes: int, sms: int) -> None:
        gpu, network, self.num_ranks, self.sms = scenario.gpu, scenario.network, scenario.num_ranks, sms
        self.read, self.write = gpu.hbm.latency_ticks + gpu.l2.latency_ticks, gpu.hbm.latency_ticks
        self.look = poll_ticks(gpu)
        few = CopyProtocol.LL128 in scenario.system.fabric.link.protocols
        sent = num_bytes * LL128_BYTES // LL128_PAYLOAD if few else 2 * num_bytes
        self.by_one_sm = sent * TICKS_PER_SECOND // gpu.sm_copy.bytes_per_s
        self.ways = dict[Ends, _Way]()
        for source, target in permutations(range(self.num_ranks), 2):
            route = network.route(source, target)
            times = [sent * TICKS_PER_SECOND // edge.bytes_per_s for edge in route]
            late = list(accumulate((edge.latency_ticks for edge in route), initial=0))
            links = tuple((edge.ends, busy, at) for edge, busy, at in zip(route, times, late[:-1], strict=True))
            self.ways[source, target] = _Way(links, late[-1], max(times))

    def cost(self, trees: Sequence[Parents]) -> float:
        """When the last copy has been seen, in ticks, and a little of when the mean has.

        A rank copies to as many others at a time as it has peers, what is ready first, and links serve what comes.
        """
        n, below = self.num_ranks, [_children(parents) for parents in trees]
        peers = [len({rank for children in below for rank in children[above]}) for above in range(n)]
        slots = [[0] * max(1, count) for count in peers]
        paces = [self.by_one_sm // max(1, self.sms // max(1, count)) for count in peers]
        free, last, total = dict.fromkeys((ends for way in self.ways.values() for ends, *_ in way.links), 0), 0, 0
        waiting = [
            (0, -len(children[rank]), (rank - root) % n, number, rank)
            for number, (parents, children) in enumerate(zip(trees, below, strict=True))
            for root in range(n)
            if parents[root] == root
            for rank in children[root]
        ]
        heapify(waiting)
        while waiting:
            ready, _, _, number, rank = heappop(waiting)
            above = trees[number][rank]
            way = self.ways[above, rank]
            at = max(ready, slots[above][0]) + self.read
            end = at + max(paces[above], way.slowest) + way.latency
            for ends, busy, late in way.links:
                free[ends] = left = max(at + late, free[ends]) + busy
                end = max(end, left + way.latency - late)
            heapreplace(slots[above], end + self.write)
            end += self.write + self.look
            last, total = max(last, end), total + end
            for child in below[number][rank]:
                heappush(waiting, (end, -len(below[number][child]), (child - rank) % n, number, child))
        return last + MEAN * total / (len(trees) * (n - 1))


def _children(parents: Parents) -> list[list[int]]:
    """The ranks below each."""
    children = [list[int]() for _ in parents]
    for rank, above in enumerate(parents):
        if rank != above:
            children[above].append(rank)
    return children


def _searched(copies: _Copies, roots: Sequence[int]) -> list[tuple[int, ...]]:
    """The parents of all ranks in the tree of each root, after a search that begins with straight copies.

    Where all have one root it begins with a rank for each shard that passes it on to all others.
    """
    n, random, now = copies.num_ranks, Random(SEED), 0.0
    trees = [[root] * n for root in roots]
    if len(set(roots)) == 1:
        vias = [via if via != root else (via + 1) % n for via, root in enumerate(roots)]
        trees = [[roots[0] if rank in (roots[0], via) else via for rank in range(n)] for via in vias]
    best = now = copies.cost(trees)
    found, before = [tuple(each) for each in trees], [now] * MEMORY
    for step in range(STEPS):
        if step % MEMORY == 0:
            checkpoint()
        number, rank, above = (random.randrange(n) for _ in range(3))
        parents = trees[number]
        old = parents[rank]
        if rank == roots[number] or above in (rank, old) or _is_below(parents, above, rank):
            continue
        parents[rank] = above
        cost = copies.cost(trees)
        if cost <= max(now, before[step % MEMORY]):
            now = cost
        else:
            parents[rank] = old
        before[step % MEMORY] = now
        if now < best:
            best, found = now, [tuple(each) for each in trees]
    return found


def _is_below(parents: Parents, rank: int, above: int) -> bool:
    """Whether ``rank`` is below another in a tree."""
    while parents[rank] != rank:
        rank = parents[rank]
        if rank == above:
            return True
    return False
