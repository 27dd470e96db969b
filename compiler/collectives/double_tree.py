"""double_tree: two binary trees over the ranks, each for every other chunk; inner nodes of one are leaves of the other.

Sums go up a tree and come down again, chunk after chunk: a rank sends a chunk up once and down at most twice, and each
makes about 2 log2 n hops (Sanders, Speck and Traeff, Parallel Computing 35, 2009; NCCL since 2.4).
With n p chunks, all ranks together make 2 (n - 1) n p transfers for an all_reduce, and n - 1 per chunk for a broadcast,
whose trees span the ranks other than the root.
"""

from collections.abc import Iterator

from ..ir import Pattern, Reduction, Step
from .base import Algorithm, CollectiveProblem, Fragment, Names, signal_of

Tree = tuple[int | None, ...]
"""The parent of each node, None for the root."""


def binary_tree(size: int) -> Tree:
    """A binary tree over 0 to size - 1 with root 0 and odd leaves.

    A node whose lowest set bit is b lies below node - b or node + b, whichever has the bit 2 b; below node - b where
    the other does not exist.
    """
    parents: list[int | None] = [None]
    for node in range(1, size):
        bit = node & -node
        above = (node ^ bit) | bit << 1
        parents.append(above if above < size else node ^ bit)
    return tuple(parents)


def double_tree(size: int) -> tuple[Tree, Tree]:
    """``binary_tree`` and the same mirrored, or shifted by one where ``size`` is odd."""
    first = binary_tree(size)
    mirrored = size % 2 == 0
    place = [size - 1 - node if mirrored else (node + 1) % size for node in range(size)]
    second: list[int | None] = [None] * size
    for node, above in enumerate(first):
        second[place[node]] = None if above is None else place[above]
    return first, tuple(second)


def _chunks(problem: CollectiveProblem, trees: tuple[Tree, Tree]) -> Iterator[tuple[int, int, Tree]]:
    """(block, piece, tree): trees take turns."""
    for index in range(problem.num_ranks * problem.pieces):
        yield *divmod(index, problem.pieces), trees[index % 2]


def _name(problem: CollectiveProblem, stem: str, block: int, piece: int, rank: int) -> str:
    return problem.label(stem, block, problem.index_of(piece), rank)


def _all_reduce(problem: CollectiveProblem) -> Fragment:
    n, rank, steps = problem.num_ranks, problem.rank, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block, piece, tree in _chunks(problem, double_tree(n)):
        owner, parent = (block - rank) % n, tree[rank]
        region, after = problem.region(owner, piece), problem.ready(owner, piece)
        children = [child for child in range(n) if tree[child] == rank]
        after = (*after, *(signal_of(_name(problem, "u", block, piece, child)) for child in children))
        if children and not problem.adds:
            kernel = _name(problem, "r", block, piece, rank)
            steps.append(Reduction(kernel, region, 1 + len(children), after, problem.stream))
            after = (kernel,)
        if parent is not None:
            name = _name(problem, "u", block, piece, rank)
            steps.append(problem.put(name, region, parent - rank, after, reduce=problem.adds))
            after = (signal_of(_name(problem, "d", block, piece, rank)),)
        for child in children:
            steps.append(problem.put(_name(problem, "d", block, piece, child), region, child - rank, after))
        done[owner, piece] = after
    return Fragment(tuple(steps), done)


def _broadcast(problem: CollectiveProblem) -> Fragment:
    n, rank, steps = problem.num_ranks, problem.rank, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block, piece, tree in _chunks(problem, double_tree(n - 1)):
        owner = (block - rank) % n
        # Node i of a tree is rank i + 1; rank 0 feeds the root.
        above = None if rank == 0 else rank - 1
        children = [node + 1 for node in range(n - 1) if tree[node] == above]
        after = problem.ready(owner, piece) if rank == 0 else (signal_of(_name(problem, "d", block, piece, rank)),)
        for child in children:
            name = _name(problem, "d", block, piece, child)
            steps.append(problem.put(name, problem.region(owner, piece), child - rank, after))
        done[owner, piece] = after
    return Fragment(tuple(steps), done)


def _build(problem: CollectiveProblem) -> Fragment:
    return _broadcast(problem) if problem.kind is Pattern.BROADCAST else _all_reduce(problem)


_KINDS = (Pattern.ALL_REDUCE, Pattern.BROADCAST)
ALGORITHM = Algorithm("double_tree", _KINDS, _build, per_rank=_KINDS)
