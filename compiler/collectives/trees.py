"""Exchanges of about log2 n steps that follow each other: double_tree and halving_doubling.

double_tree: two binary trees over the ranks, each for every other chunk; inner nodes of one are leaves of the other.

Sums go up a tree and come down again, chunk after chunk: a rank sends a chunk up once and down at most twice, and each
makes about 2 log2 n hops (Sanders, Speck and Traeff, Parallel Computing 35, 2009; NCCL since 2.4).
With n p chunks, all ranks together make 2 (n - 1) n p transfers for an all_reduce, and n - 1 per chunk for a broadcast,
whose trees span the ranks other than the root.

halving_doubling: log2 n exchanges with partners 1, 2, 4, ... ranks away, each of half as much as the one before.

reduce_scatter halves: with the partner n / 2 away each rank swaps half of all blocks, then a quarter with the one n / 4
away, and so on. all_gather doubles, the same backwards (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput.
Appl. 19, 2005). Per rank: p (n - 1) transfers of a chunk, as many bytes as a ring, but only log2 n of them follow each
other; all_reduce twice that.
"""

from collections.abc import Iterator

from ..ir import Pattern, Reduction, Region, Rejection, Step
from .base import TWO_PHASES, Algorithm, CollectiveProblem, Fragment, Names, in_two_phases, rejection, signal_of

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


def _tree_name(problem: CollectiveProblem, stem: str, block: int, piece: int, rank: int) -> str:
    return problem.label(stem, block, problem.index_of(piece), rank)


def _all_reduce(problem: CollectiveProblem) -> Fragment:
    n, rank, steps = problem.num_ranks, problem.rank, list[Step]()
    done: dict[tuple[int, int], Names] = {}
    for block, piece, tree in _chunks(problem, double_tree(n)):
        owner, parent = (block - rank) % n, tree[rank]
        region, after = problem.region(owner, piece), problem.ready(owner, piece)
        children = [child for child in range(n) if tree[child] == rank]
        after = (*after, *(signal_of(_tree_name(problem, "u", block, piece, child)) for child in children))
        if children and not problem.adds:
            kernel = _tree_name(problem, "r", block, piece, rank)
            steps.append(Reduction(kernel, region, 1 + len(children), after, problem.stream))
            after = (kernel,)
        if parent is not None:
            name = _tree_name(problem, "u", block, piece, rank)
            steps.append(problem.put(name, region, parent - rank, after, reduce=problem.adds))
            after = (signal_of(_tree_name(problem, "d", block, piece, rank)),)
        for child in children:
            steps.append(problem.put(_tree_name(problem, "d", block, piece, child), region, child - rank, after))
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
        after = problem.ready(owner, piece) if rank == 0 else (signal_of(_tree_name(problem, "d", block, piece, rank)),)
        for child in children:
            name = _tree_name(problem, "d", block, piece, child)
            steps.append(problem.put(name, problem.region(owner, piece), child - rank, after))
        done[owner, piece] = after
    return Fragment(tuple(steps), done)


def _build_trees(problem: CollectiveProblem) -> Fragment:
    return _broadcast(problem) if problem.kind is Pattern.BROADCAST else _all_reduce(problem)


_KINDS = (Pattern.ALL_REDUCE, Pattern.BROADCAST)
DOUBLE_TREE = Algorithm("double_tree", _KINDS, _build_trees, per_rank=_KINDS)


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


def _build_halving(problem: CollectiveProblem) -> Fragment:
    return in_two_phases(problem, _scatter, _gather)


def _own_rule(problem: CollectiveProblem) -> Rejection | None:
    n = problem.num_ranks
    if n & (n - 1):
        return rejection(f"halving_doubling pairs ranks, which needs a power of two of them, not {n}")
    return None


HALVING_DOUBLING = Algorithm("halving_doubling", TWO_PHASES, _build_halving, per_rank=TWO_PHASES, own_rule=_own_rule)
