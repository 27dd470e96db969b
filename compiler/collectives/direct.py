"""direct: every rank exchanges with every other at once. Few steps and short ones; every pair needs its own way.

Per rank, n ranks, p pieces: all_gather and reduce_scatter make p (n - 1) transfers of 1 / (p n) of the tensor, so that
(n - 1) / n of it leaves each rank; all_reduce, which is both in turn, twice as many. all_to_all makes p (n - 1).
A broadcast makes n p (n - 1) in all, all of them by the root, send_recv n p.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..ir import Direction, Pattern, Reduction, Step
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, RankGroup, all_ranks, signal_of


def gather(problem: CollectiveProblem, group: RankGroup, stem: str = "x") -> Fragment:
    """Each member's blocks to all others of ``group``."""
    puts, steps = problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for piece, (position, shift) in _chunks(problem, group):
        for distance in group.others:
            name = problem.label(stem, problem.index_of(piece), group.index_of(position), distance)
            peer = group.offsets[distance]
            region = problem.region(shift if puts else peer + shift, piece)
            steps.append(problem.move(name, region, peer, problem.ready(shift, piece)))
            origin = group.before(distance) if puts else peer
            done[(origin + shift) % problem.num_ranks, piece] = (signal_of(name),)
        done[shift, piece] = problem.ready(shift, piece)
    return Fragment(tuple(steps), done)


def scatter(problem: CollectiveProblem, group: RankGroup) -> Fragment:
    """Parts of each member's blocks to that member, which sums them; parts that are got may add as they land."""
    puts, steps = problem.direction is Direction.PUT, list[Step]()
    adds = problem.adds and not puts
    done: dict[tuple[int, int], Names] = {}
    for piece, (position, shift) in _chunks(problem, group):
        indices = problem.index_of(piece), group.index_of(position)
        names = [problem.label("x", *indices, distance) for distance in group.others]
        for name, distance in zip(names, group.others, strict=True):
            peer = group.offsets[distance]
            block = (peer + shift if puts else shift) % problem.num_ranks
            ready, region = problem.ready(block, piece), problem.region(block, piece)
            steps.append(problem.move(name, region, peer, ready, reduce=adds))
        parts = (*problem.ready(shift, piece), *(signal_of(name) for name in names))
        done[shift, piece] = parts
        if not adds:
            name = problem.label("r", piece, group.index_of(position))
            region = problem.region(shift, piece)
            steps.append(Reduction(name, region, group.size, parts, problem.stream))
            done[shift, piece] = (name,)
    return Fragment(tuple(steps), done)


def _chunks(problem: CollectiveProblem, group: RankGroup) -> Iterator[tuple[int, tuple[int, int]]]:
    """(piece, (position of the shift, shift)), pieces outermost."""
    return ((piece, shifted) for piece in range(problem.pieces) for shifted in enumerate(group.shifts))


def _all_to_all(problem: CollectiveProblem) -> Fragment:
    n, rank, puts, steps = problem.num_ranks, problem.rank, problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for piece in range(problem.pieces):
        for peer in range(1, n):
            # Rank r + peer sends its block n - peer to r.
            distance, block = (peer, peer) if puts else (n - peer, 0)
            region = problem.region(block, piece, _sent(problem, rank if puts else rank + peer, distance))
            name = problem.label("x", problem.index_of(piece), peer)
            source = -distance % n
            # A put of that name that arrives here was issued by another rank.
            arrives = problem.region(block, piece, _sent(problem, rank + source, distance))
            done[source, piece] = (signal_of(name),) if arrives.rows.size else ()
            if region.rows.size:
                steps.append(problem.move(name, region, peer, problem.ready(block, piece)))
    return Fragment(tuple(steps), done)


def _sent(problem: CollectiveProblem, rank: int, distance: int) -> int:
    """Rows that an absolute rank sends to the one ``distance`` further."""
    n = problem.num_ranks
    if problem.loads:
        return problem.loads[rank % n][(rank + distance) % n]
    return problem.split[distance] if problem.split else problem.rows


def _from_root(problem: CollectiveProblem, targets: range) -> Fragment:
    """Everything that rank 0 has to each of ``targets``."""
    n, rank, puts, steps = problem.num_ranks, problem.rank, problem.direction is Direction.PUT, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block in range(n):
        owner = (block - rank) % n
        for piece in range(problem.pieces):
            names = {target: problem.label("b", block, problem.index_of(piece), target) for target in targets}
            region, ready = problem.region(owner, piece), problem.ready(owner, piece)
            if rank == 0:
                done[owner, piece] = ready
                if puts:
                    steps.extend(problem.put(names[target], region, target, ready) for target in targets)
            elif rank in targets:
                done[owner, piece] = (signal_of(names[rank]),)
                if not puts:
                    steps.append(problem.move(names[rank], region, -rank, ready))
    return Fragment(tuple(steps), done)


def _build(problem: CollectiveProblem) -> Fragment:
    match problem.kind:
        case Pattern.ALL_GATHER:
            return gather(problem, all_ranks(problem))
        case Pattern.REDUCE_SCATTER:
            return scatter(problem, all_ranks(problem))
        case Pattern.ALL_TO_ALL:
            return _all_to_all(problem)
        case Pattern.BROADCAST:
            return _from_root(problem, range(1, problem.num_ranks))
        case Pattern.SEND_RECV:
            return _from_root(problem, range(1, min(2, problem.num_ranks)))
    first = scatter(problem, all_ranks(problem))
    # New sums are put: only the rank that makes them knows when they are there.
    then = replace(problem, ready=first.ready, direction=Direction.PUT)
    second = gather(then, all_ranks(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


_KINDS = (*TWO_PHASES, Pattern.ALL_TO_ALL, Pattern.BROADCAST, Pattern.SEND_RECV)
ALGORITHM = Algorithm(
    "direct", _KINDS, _build, per_rank=(Pattern.BROADCAST, Pattern.SEND_RECV), gets=_KINDS, least_ranks=1
)
