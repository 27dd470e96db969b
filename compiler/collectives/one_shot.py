"""one_shot: every rank sends all it has to every other, and each sums everything itself. One step, for small tensors.

Per rank: n p (n - 1) transfers that carry n - 1 times the tensor, and n p reductions. Parts never add as they land: a
block may still be on its way to others then. The reductions of the blocks run side by side: where they are kernels,
each in a stream of its own. SMs carry out all blocks of a piece at once (``simcore/lower/one_kernel.py``).
"""

from ..ir import Direction, Pattern, Reduction, Rejection, Step
from ..text.vocabulary import MAX_STREAMS
from .base import Algorithm, CollectiveProblem, Fragment, Names, rejection, signal_of

MOST_RANKS = 256
"""Each rank has n (n - 1) transfers: 65,280 of these. With more it is no algorithm for small tensors any more."""


def _build(problem: CollectiveProblem) -> Fragment:
    n, steps = problem.num_ranks, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for piece in range(problem.pieces):
        for block in range(n):
            steps.extend(_moves(problem, block, piece))
        for block in range(n):
            parts = (*problem.ready(block, piece), *_parts(problem, block, piece))
            name = problem.label("r", block, problem.index_of(piece))
            stream = (problem.stream + block) % MAX_STREAMS
            steps.append(Reduction(name, problem.region(block, piece), n, parts, stream))
            done[block, piece] = (name,)
    return Fragment(tuple(steps), done)


def _name(problem: CollectiveProblem, block: int, piece: int, peer: int) -> str:
    return problem.label("x", problem.index_of(piece), block % problem.num_ranks, peer)


def _moves(problem: CollectiveProblem, block: int, piece: int) -> list[Step]:
    region, ready, peers = problem.region(block, piece), problem.ready(block, piece), range(1, problem.num_ranks)
    return [problem.move(_name(problem, block, piece, peer), region, peer, ready) for peer in peers]


def _parts(problem: CollectiveProblem, block: int, piece: int) -> Names:
    """Signals of the parts of this rank's ``block``: for the sender ``peer`` places before, it is ``peer`` further."""
    puts, peers = problem.direction is Direction.PUT, range(1, problem.num_ranks)
    return tuple(signal_of(_name(problem, block + (peer if puts else 0), piece, peer)) for peer in peers)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.num_ranks > MOST_RANKS:
        return rejection(f"one_shot sends all to all: at most {MOST_RANKS} ranks, not {problem.num_ranks}")
    return None


ALGORITHM = Algorithm("one_shot", (Pattern.ALL_REDUCE,), _build, gets=(Pattern.ALL_REDUCE,), own_rule=_own_rule)
