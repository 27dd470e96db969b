"""halving_doubling: log2 n exchanges with partners 1, 2, 4, ... ranks away, each of half as much as the one before.

reduce_scatter halves: with the partner n / 2 away each rank swaps half of all blocks, then a quarter with the one n / 4
away, and so on. all_gather doubles, the same backwards (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput.
Appl. 19, 2005). Per rank: p (n - 1) transfers of a chunk, as many bytes as a ring, but only log2 n of them follow each
other; all_reduce twice that.
"""

from ..ir import Reduction, Region, Rejection, Step
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, in_two_phases, rejection, signal_of


def _scatter(problem: CollectiveProblem) -> Fragment:
    """Blocks are counted by exclusive or with the rank, which makes all ranks alike: partners differ in one bit."""
    n, rank, steps, pieces = problem.num_ranks, problem.rank, list[Step](), range(problem.pieces)
    held = list(range(n))
    summed = {(key, piece): problem.ready(((key ^ rank) - rank) % n, piece) for key in held for piece in pieces}
    distance = n // 2
    while distance:
        theirs, held = [key for key in held if key & distance], [key for key in held if not key & distance]
        peer = (rank ^ distance) - rank
        for piece in pieces:
            for key in theirs:
                name, region = _name(problem, "x", distance, key, piece), _region(problem, key, piece)
                steps.append(problem.put(name, region, peer, summed[key, piece], reduce=problem.adds))
            for key in held:
                parts = (*summed[key, piece], signal_of(_name(problem, "x", distance, key ^ distance, piece)))
                summed[key, piece] = parts
                if not problem.adds:
                    name, region = _name(problem, "r", distance, key, piece), _region(problem, key, piece)
                    steps.append(Reduction(name, region, 2, parts, problem.stream))
                    summed[key, piece] = (name,)
        distance //= 2
    return Fragment(tuple(steps), {(0, piece): summed[0, piece] for piece in pieces})


def _gather(problem: CollectiveProblem) -> Fragment:
    n, rank, steps, pieces = problem.num_ranks, problem.rank, list[Step](), range(problem.pieces)
    held = {(0, piece): problem.ready(0, piece) for piece in pieces}
    distance = 1
    while distance < n:
        peer, arrived = (rank ^ distance) - rank, dict[tuple[int, int], Names]()
        for (key, piece), after in held.items():
            name = _name(problem, "y", distance, key, piece)
            steps.append(problem.put(name, _region(problem, key, piece), peer, after))
            arrived[key ^ distance, piece] = (signal_of(name),)
        held |= arrived
        distance *= 2
    return Fragment(tuple(steps), {(((key ^ rank) - rank) % n, piece): after for (key, piece), after in held.items()})


def _region(problem: CollectiveProblem, key: int, piece: int) -> Region:
    return problem.region((key ^ problem.rank) - problem.rank, piece)


def _name(problem: CollectiveProblem, stem: str, distance: int, key: int, piece: int) -> str:
    return problem.label(stem, distance, key, problem.index_of(piece))


def _build(problem: CollectiveProblem) -> Fragment:
    return in_two_phases(problem, _scatter, _gather)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    n = problem.num_ranks
    if n & (n - 1):
        return rejection(f"halving_doubling pairs ranks, which needs a power of two of them, not {n}")
    return None


ALGORITHM = Algorithm("halving_doubling", TWO_PHASES, _build, per_rank=TWO_PHASES, own_rule=_own_rule)
