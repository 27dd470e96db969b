"""double_ring: two rings at once, in opposite directions, or one within nodes and one across them.

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
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from ..ir import Pattern, Reduction, Rejection, Step
from . import hierarchical, ring
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, in_two_phases, rejection, signal_of

_WAYS = (1, -1)


def _reach(problem: CollectiveProblem, way: int, piece: int) -> int:
    """How many ranks away piece ``piece`` of a block is taken by the ring to the right (1) or to the left (-1)."""
    further = problem.num_ranks // 2
    return further if (way == 1) is (piece % 2 == 0) else problem.num_ranks - 1 - further


def _hops(problem: CollectiveProblem) -> Iterator[tuple[int, int, int, int]]:
    """(step, piece, way, how far the ring that way still reaches), in the order of issue."""
    for step, piece, way in product(range(problem.num_ranks // 2), range(problem.pieces), _WAYS):
        if step < _reach(problem, way, piece):
            yield step, piece, way, _reach(problem, way, piece) - step


def _gather_both_ways(problem: CollectiveProblem) -> Fragment:
    """Step s passes on what the ring has brought from s ranks away."""
    n, steps = problem.num_ranks, list[Step]()
    done = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, way, _ in _hops(problem):
        sent, arrived, name = -way * step % n, -way * (step + 1) % n, _name(problem, "y", way, piece, step)
        steps.append(problem.put(name, problem.region(sent, piece), way, done[sent, piece]))
        done[arrived, piece] = (signal_of(name),)
    return Fragment(tuple(steps), done)


def _scatter_both_ways(problem: CollectiveProblem) -> Fragment:
    """Step s sends on the sum so far of the block whose owner is as far away as the ring still reaches."""
    n, steps = problem.num_ranks, list[Step]()
    # Waits of the sum so far of each chunk at this rank, and of the parts of the own block that both rings bring.
    summed: dict[tuple[int, int], Names] = {}
    own = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, way, left in _hops(problem):
        sent, arrived, name = way * left % n, way * (left - 1) % n, _name(problem, "x", way, piece, step)
        after = summed.get((sent, piece), problem.ready(sent, piece))
        steps.append(problem.put(name, problem.region(sent, piece), way, after, reduce=problem.adds))
        if arrived == 0:
            own[0, piece] += (signal_of(name),)
            continue
        parts = (*problem.ready(arrived, piece), signal_of(name))
        summed[arrived, piece] = parts
        if not problem.adds:
            kernel = _name(problem, "r", way, piece, step)
            steps.append(Reduction(kernel, problem.region(arrived, piece), 2, parts, problem.stream))
            summed[arrived, piece] = (kernel,)
    if problem.adds:
        return Fragment(tuple(steps), own)
    return Fragment((*steps, *_own_sums(problem, own)), {(0, piece): (_own_sum(problem, piece),) for _, piece in own})


def _own_sums(problem: CollectiveProblem, parts: Mapping[tuple[int, int], Names]) -> Iterator[Reduction]:
    """The own block with what both rings, or the one that reaches it, have brought."""
    for (block, piece), names in parts.items():
        rings = sum(_reach(problem, way, piece) > 0 for way in _WAYS)
        yield Reduction(_own_sum(problem, piece), problem.region(block, piece), 1 + rings, names, problem.stream)


def _own_sum(problem: CollectiveProblem, piece: int) -> str:
    return problem.label("r", piece)


def _exchange_both_ways(problem: CollectiveProblem) -> Fragment:
    """A block for the rank ``left`` further goes there by one ring, and has gone ``step`` hops already."""
    n, steps = problem.num_ranks, list[Step]()
    done = {(0, piece): problem.ready(0, piece) for piece in range(problem.pieces)}
    for step, piece, far, way in product(range(n // 2), range(problem.pieces), range(n // 2, 0, -1), _WAYS):
        if step < far <= _reach(problem, way, piece):
            left, here = far - step, problem.ready(way * far % n, piece)
            after = (signal_of(_name(problem, "x", way, piece, step - 1, far)),) if step else here
            name = _name(problem, "x", way, piece, step, far)
            put = problem.put(name, problem.region(way * left, piece), way, after)
            steps.append(replace(put, origin=-way * step % n))
            done[-way * far % n, piece] = (signal_of(name),)
    return Fragment(tuple(steps), done)


def _name(problem: CollectiveProblem, stem: str, way: int, piece: int, step: int, far: int | None = None) -> str:
    return problem.label(stem, _WAYS.index(way), problem.index_of(piece), step, far)


def _gather(problem: CollectiveProblem) -> Fragment:
    if not problem.has_nodes:
        return _gather_both_ways(problem)
    return hierarchical.gather(problem, ring.gather)


def _scatter(problem: CollectiveProblem) -> Fragment:
    if not problem.has_nodes:
        return _scatter_both_ways(problem)
    return hierarchical.scatter(problem, ring.scatter, adds=problem.adds)


def _build(problem: CollectiveProblem) -> Fragment:
    if problem.kind is Pattern.ALL_TO_ALL:
        return _exchange_both_ways(problem)
    return in_two_phases(problem, _scatter, _gather)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    if problem.kind is not Pattern.ALL_TO_ALL or not (problem.beside or problem.split or problem.loads):
        return None
    return rejection("double_ring passes on equal blocks of an all_to_all alone")


ALGORITHM = Algorithm(
    "double_ring", (*TWO_PHASES, Pattern.ALL_TO_ALL), _build, per_node=TWO_PHASES, own_rule=_own_rule, passes_on=True
)
