"""ring: every rank talks to its two neighbours alone; blocks travel round. Uses every link evenly, in n - 1 steps.

Piece p of a step starts when piece p of the step before has arrived, so that pieces follow each other. Per rank:
all_gather and reduce_scatter make p (n - 1) transfers of 1 / (p n) of the tensor, all_reduce twice as many: 2 (n - 1) /
n of the tensor leaves each rank, the least there is (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). A
broadcast makes n p (n - 1) in all: every rank but the last passes the tensor on.
"""

from dataclasses import replace

from ..ir import Pattern, Reduction, Step
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, RankGroup, all_ranks, signal_of


def gather(problem: CollectiveProblem, group: RankGroup, stem: str = "x") -> Fragment:
    """Step s passes on to the next the blocks of the member s places before."""
    steps, next_member = list[Step](), group.offsets[1]
    chunks = [(piece, position) for piece in range(problem.pieces) for position in range(len(group.shifts))]
    done = {(group.shifts[position], piece): problem.ready(group.shifts[position], piece) for piece, position in chunks}
    for step in range(group.size - 1):
        for piece, position in chunks:
            shift = group.shifts[position]
            name = problem.label(stem, problem.index_of(piece), group.index_of(position), step)
            sent = (group.before(step) + shift) % problem.num_ranks
            arrived = (group.before(step + 1) + shift) % problem.num_ranks
            steps.append(problem.put(name, problem.region(sent, piece), next_member, done[sent, piece]))
            done[arrived, piece] = (signal_of(name),)
    return Fragment(tuple(steps), done)


def scatter(problem: CollectiveProblem, group: RankGroup) -> Fragment:
    """Step s sends on the sum so far of the blocks of the member s + 1 places before.

    Where transfers cannot add, what arrives is summed by a kernel at every step.
    """
    steps, next_member = list[Step](), group.offsets[1]
    # Waits of the sum so far of each chunk at this rank.
    summed: dict[tuple[int, int], Names] = {}
    for step in range(group.size - 1):
        for piece in range(problem.pieces):
            for position, shift in enumerate(group.shifts):
                indices = problem.index_of(piece), group.index_of(position), step
                name = problem.label("x", *indices)
                sent = (group.before(step + 1) + shift) % problem.num_ranks
                arrived = (group.before(step + 2) + shift) % problem.num_ranks
                after = summed.get((sent, piece), problem.ready(sent, piece))
                region = problem.region(sent, piece)
                steps.append(problem.put(name, region, next_member, after, reduce=problem.adds))
                parts = (*problem.ready(arrived, piece), signal_of(name))
                summed[arrived, piece] = parts
                if not problem.adds:
                    kernel = problem.label("r", *indices)
                    steps.append(Reduction(kernel, problem.region(arrived, piece), 2, parts, problem.stream))
                    summed[arrived, piece] = (kernel,)
    own = {(shift, piece): summed[shift, piece] for shift in group.shifts for piece in range(problem.pieces)}
    return Fragment(tuple(steps), own)


def _broadcast(problem: CollectiveProblem) -> Fragment:
    n, rank, steps = problem.num_ranks, problem.rank, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block in range(n):
        owner = (block - rank) % n
        for piece in range(problem.pieces):
            name = problem.label("b", block, problem.index_of(piece))
            done[owner, piece] = (signal_of(name),) if rank else problem.ready(owner, piece)
            if rank < n - 1:
                steps.append(problem.put(name, problem.region(owner, piece), 1, done[owner, piece]))
    return Fragment(tuple(steps), done)


def _build(problem: CollectiveProblem) -> Fragment:
    match problem.kind:
        case Pattern.ALL_GATHER:
            return gather(problem, all_ranks(problem))
        case Pattern.REDUCE_SCATTER:
            return scatter(problem, all_ranks(problem))
        case Pattern.BROADCAST:
            return _broadcast(problem)
    first = scatter(problem, all_ranks(problem))
    second = gather(replace(problem, ready=first.ready), all_ranks(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


ALGORITHM = Algorithm("ring", (*TWO_PHASES, Pattern.BROADCAST), _build, per_rank=(Pattern.BROADCAST,), passes_on=True)
