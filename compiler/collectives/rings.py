"""Rings: of all ranks, two at once, and across nodes.

ring: every rank talks to its two neighbours alone; blocks travel round. Uses every link evenly, in n - 1 steps.

Piece p of a step starts when piece p of the step before has arrived, so that pieces follow each other. Per rank:
all_gather and reduce_scatter make p (n - 1) transfers of 1 / (p n) of the tensor, all_reduce twice as many: 2 (n - 1) /
n of the tensor leaves each rank, the least there is (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). A
broadcast makes n p (n - 1) in all: every rank but the last passes the tensor on.

double_ring: two rings at once, in opposite directions, or one within nodes and one across them.

Where ranks are not grouped, a block goes both ways round, half of the way each, so that both directions of a ring of
links are used and only n / 2 transfers follow each other. The block that is as far either way takes turns, piece by
piece (bidirectional transfers of Wang et al., ASPLOS 2023).

Where they are grouped in nodes, an outer ring passes blocks on among the ranks with the same place in theirs, while an
inner ring takes what has come round the node: the double ring of Mercury (SOSP 2025) as Syncopate ports it
(``build_double_ring_all_gather_plan``, arXiv 2601.20595). There the last block that an inner ring brings crosses next;
here the own one does at once, so that the slow links across do not wait for the inner ring.

Both sum the same ways backwards. Per rank: p (n - 1) transfers, all_reduce twice that; with N nodes of g ranks,
p (N - 1) of them across and p N (g - 1) within.

In an all_to_all each rank passes blocks of others on to its neighbours, which goes both ways as evenly: of n / 2 that
are half around, every other piece goes either way. Per rank p floor(n^2 / 4) transfers, those with a long way first.

hierarchical: within nodes all at once (direct), across nodes in rings of ranks that have the same place in theirs.

all_gather goes across first, so that a block crosses each link between nodes once, and then spreads within. A
reduce_scatter sums within first and across then. Per rank, with g ranks in a node and N nodes: p (N - 1) transfers
across and p N (g - 1) within; all_reduce twice that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from ..ir import Pattern, Reduction, Rejection, Step
from . import direct
from .base import (
    TWO_PHASES,
    Algorithm,
    CollectiveProblem,
    Fragment,
    Names,
    RankGroup,
    all_ranks,
    in_two_phases,
    rejection,
    signal_of,
)


def ring_gather(problem: CollectiveProblem, group: RankGroup, stem: str = "x") -> Fragment:
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


def ring_scatter(problem: CollectiveProblem, group: RankGroup) -> Fragment:
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
                steps.append(problem.put(name, problem.region(sent, piece), next_member, after, reduce=problem.adds))
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


def _build_ring(problem: CollectiveProblem) -> Fragment:
    match problem.kind:
        case Pattern.ALL_GATHER:
            return ring_gather(problem, all_ranks(problem))
        case Pattern.REDUCE_SCATTER:
            return ring_scatter(problem, all_ranks(problem))
        case Pattern.BROADCAST:
            return _broadcast(problem)
    first = ring_scatter(problem, all_ranks(problem))
    second = ring_gather(replace(problem, ready=first.ready), all_ranks(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


RING = Algorithm("ring", (*TWO_PHASES, Pattern.BROADCAST), _build_ring, per_rank=(Pattern.BROADCAST,), passes_on=True)


_SIDES = (1, -1)


def _reach(problem: CollectiveProblem, side: int, piece: int) -> int:
    """How many ranks away piece ``piece`` of a block is taken by the ring to the right (1) or to the left (-1)."""
    further = problem.num_ranks // 2
    return further if (side == 1) is (piece % 2 == 0) else problem.num_ranks - 1 - further


def _hops(problem: CollectiveProblem) -> Iterator[tuple[int, int, int, int]]:
    """(step, piece, side, how far the ring on that side still reaches), in the order of issue."""
    for step, piece, side in product(range(problem.num_ranks // 2), range(problem.pieces), _SIDES):
        if step < _reach(problem, side, piece):
            yield step, piece, side, _reach(problem, side, piece) - step


def _gather_both_ways(problem: CollectiveProblem) -> Fragment:
    """Step s passes on what the ring has brought from s ranks away."""
    n, steps = problem.num_ranks, list[Step]()
    done = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, side, _ in _hops(problem):
        sent, arrived, name = -side * step % n, -side * (step + 1) % n, _name(problem, "y", side, piece, step)
        steps.append(problem.put(name, problem.region(sent, piece), side, done[sent, piece]))
        done[arrived, piece] = (signal_of(name),)
    return Fragment(tuple(steps), done)


def _scatter_both_ways(problem: CollectiveProblem) -> Fragment:
    """Step s sends on the sum so far of the block whose owner is as far away as the ring still reaches."""
    n, steps = problem.num_ranks, list[Step]()
    # Waits of the sum so far of each chunk at this rank, and of the parts of the own block that both rings bring.
    summed: dict[tuple[int, int], Names] = {}
    own = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, side, left in _hops(problem):
        sent, arrived, name = side * left % n, side * (left - 1) % n, _name(problem, "x", side, piece, step)
        after = summed.get((sent, piece), problem.ready(sent, piece))
        steps.append(problem.put(name, problem.region(sent, piece), side, after, reduce=problem.adds))
        if arrived == 0:
            own[0, piece] += (signal_of(name),)
            continue
        parts = (*problem.ready(arrived, piece), signal_of(name))
        summed[arrived, piece] = parts
        if not problem.adds:
            kernel = _name(problem, "r", side, piece, step)
            steps.append(Reduction(kernel, problem.region(arrived, piece), 2, parts, problem.stream))
            summed[arrived, piece] = (kernel,)
    if problem.adds:
        return Fragment(tuple(steps), own)
    return Fragment((*steps, *_own_sums(problem, own)), {(0, piece): (_own_sum(problem, piece),) for _, piece in own})


def _own_sums(problem: CollectiveProblem, parts: Mapping[tuple[int, int], Names]) -> Iterator[Reduction]:
    """The own block with what both rings, or the one that reaches it, have brought."""
    for (block, piece), names in parts.items():
        rings = sum(_reach(problem, side, piece) > 0 for side in _SIDES)
        yield Reduction(_own_sum(problem, piece), problem.region(block, piece), 1 + rings, names, problem.stream)


def _own_sum(problem: CollectiveProblem, piece: int) -> str:
    return problem.label("r", piece)


def _exchange_both_ways(problem: CollectiveProblem) -> Fragment:
    """A block for the rank ``left`` further goes there by one ring, and has gone ``step`` hops already."""
    n, steps = problem.num_ranks, list[Step]()
    done = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, far, side in product(range(n // 2), range(problem.pieces), range(n // 2, 0, -1), _SIDES):
        if step < far <= _reach(problem, side, piece):
            left, here = far - step, problem.ready(side * far % n, piece)
            after = (signal_of(_name(problem, "x", side, piece, step - 1, far)),) if step else here
            name = _name(problem, "x", side, piece, step, far)
            put = problem.put(name, problem.region(side * left, piece), side, after)
            steps.append(replace(put, origin=-side * step % n))
            done[-side * far % n, piece] = (signal_of(name),)
    return Fragment(tuple(steps), done)


def _name(problem: CollectiveProblem, stem: str, side: int, piece: int, step: int, far: int | None = None) -> str:
    return problem.label(stem, _SIDES.index(side), problem.index_of(piece), step, far)


def _gather(problem: CollectiveProblem) -> Fragment:
    return _gather_both_ways(problem) if not problem.has_nodes else nodes_gather(problem, ring_gather)


def _scatter(problem: CollectiveProblem) -> Fragment:
    if not problem.has_nodes:
        return _scatter_both_ways(problem)
    return nodes_scatter(problem, ring_scatter, adds=problem.adds)


def _build_double(problem: CollectiveProblem) -> Fragment:
    if problem.kind is Pattern.ALL_TO_ALL:
        return _exchange_both_ways(problem)
    return in_two_phases(problem, _scatter, _gather)


def _double_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.kind is not Pattern.ALL_TO_ALL or not (problem.with_kernel or problem.split or problem.loads):
        return None
    return rejection("double_ring passes on equal blocks of an all_to_all alone")


DOUBLE_RING = Algorithm(
    "double_ring",
    (*TWO_PHASES, Pattern.ALL_TO_ALL),
    _build_double,
    per_node=TWO_PHASES,
    own_rule=_double_rule,
    passes_on=True,
)


def within(problem: CollectiveProblem) -> RankGroup:
    """The ranks of a node; each stands for all that have its place in theirs."""
    place, size = problem.rank % problem.node, problem.node
    offsets = tuple(((place + step) % size - place) % problem.num_ranks for step in range(size))
    return RankGroup(offsets, tuple(range(0, problem.num_ranks, size)))


def across(problem: CollectiveProblem) -> RankGroup:
    """The ranks with this place in their nodes."""
    return RankGroup(tuple(range(0, problem.num_ranks, problem.node)))


def named(problem: CollectiveProblem, stem: str) -> CollectiveProblem:
    """Return ``problem`` with ``stem`` added to the prefix of its names."""
    return replace(problem, prefix=f"{problem.prefix}{stem}_")


def nodes_gather(
    problem: CollectiveProblem, inside: Callable[[CollectiveProblem, RankGroup, str], Fragment]
) -> Fragment:
    """In rings across nodes, and then by ``inside`` within each."""
    first = ring_gather(named(problem, "across"), across(problem), "y")
    second = inside(replace(named(problem, "within"), ready=first.ready), within(problem), "y")
    return Fragment((*first.steps, *second.steps), second.done)


def nodes_scatter(
    problem: CollectiveProblem, inside: Callable[[CollectiveProblem, RankGroup], Fragment], *, adds: bool
) -> Fragment:
    """By ``inside`` within each node, and then in rings across them, whose transfers may add as they land."""
    first = inside(named(problem, "within"), within(problem))
    second = ring_scatter(replace(named(problem, "across"), ready=first.ready, adds=adds), across(problem))
    return Fragment((*first.steps, *second.steps), second.done)


def _build_nodes(problem: CollectiveProblem) -> Fragment:
    # Transfers cannot add to data that a kernel of the destination still sums.
    scatter_direct = partial(nodes_scatter, inside=direct.scatter, adds=False)
    return in_two_phases(problem, scatter_direct, partial(nodes_gather, inside=direct.gather))


def _nodes_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.node < 2:
        return rejection("hierarchical needs ranks that are grouped into nodes of two or more")
    if problem.num_ranks % problem.node or problem.num_ranks <= problem.node:
        what = f"several whole nodes of {problem.node} ranks, there are {problem.num_ranks} ranks"
        return rejection(f"hierarchical needs {what}")
    return None


HIERARCHICAL = Algorithm(
    "hierarchical", TWO_PHASES, _build_nodes, per_node=TWO_PHASES, own_rule=_nodes_rule, passes_on=True
)
