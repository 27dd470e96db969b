"""nvls: the switch sums and copies (NVLink SHARP): a rank reads the sum of all copies, or writes to all at once.

Per rank: reduce_scatter gets its block once, already summed; all_gather puts it once, and the switch makes n - 1
copies; all_reduce is both. So each makes p transfers per rank, all_reduce 2 p, and a broadcast n p by the root.
"""

from ..ir import Direction, Pattern, Reach, Rejection, Step, Transfer
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, rejection, signal_of


def _build(problem: CollectiveProblem) -> Fragment:
    if problem.kind is Pattern.BROADCAST:
        return _broadcast(problem)
    steps, done = list[Step](), dict[tuple[int, int], Names]()
    for piece in range(problem.pieces):
        after = problem.ready(0, piece)
        if problem.kind is not Pattern.ALL_GATHER:
            name = problem.label("x", piece)
            region = problem.region(0, piece)
            signal = signal_of(name)
            steps.append(Transfer(name, Direction.GET, region, 0, signal, after, reduce=True, reach=Reach.ALL))
            after = (signal,)
        done[0, piece] = after
        if problem.kind is not Pattern.REDUCE_SCATTER:
            steps.append(_to_all(problem, problem.label("y", piece), 0, piece, after))
            # Every other rank sets this signal; it is there when the last of them has.
            signal = signal_of(problem.label("y", piece))
            done |= {(block, piece): (signal,) for block in range(1, problem.num_ranks)}
    return Fragment(tuple(steps), done)


def _broadcast(problem: CollectiveProblem) -> Fragment:
    n, rank, steps, done = problem.num_ranks, problem.rank, list[Step](), dict[tuple[int, int], Names]()
    for block in range(n):
        owner = (block - rank) % n
        for piece in range(problem.pieces):
            name = problem.label("b", block, problem.index_of(piece))
            done[owner, piece] = (signal_of(name),) if rank else problem.ready(owner, piece)
            if rank == 0:
                steps.append(_to_all(problem, name, owner, piece, done[owner, piece]))
    return Fragment(tuple(steps), done)


def _to_all(problem: CollectiveProblem, name: str, owner: int, piece: int, after: Names) -> Transfer:
    region = problem.region(owner, piece)
    return Transfer(name, Direction.PUT, region, 0, signal_of(name), after, reach=Reach.ALL)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    sums = problem.kind in (Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
    if sums and problem.computed and not problem.by_tiles:
        return rejection(
            "the sum in the switch reads all copies, and no rank knows when the others have computed theirs"
        )
    if sums and not problem.reduces:
        return rejection("nvls needs a switch that sums (reduces yes)")
    if problem.kind is not Pattern.REDUCE_SCATTER and not problem.multicast:
        return rejection("nvls needs a switch that copies to all (multicast yes)")
    return None


_KINDS = (*TWO_PHASES, Pattern.BROADCAST)
_SUMS = (Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)
# Whatever sums reads by itself; a direction that is asked for changes nothing there.
ALGORITHM = Algorithm(
    "nvls", _KINDS, _build, per_rank=(Pattern.BROADCAST,), gets=_SUMS, by_sms=_SUMS, own_rule=_own_rule
)
