"""What collective algorithms send, in closed form: how many transfers, of how much, between whom."""

from dataclasses import replace
from itertools import product
from math import log2

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME, CollectiveProblem
from magus.compiler.collectives.trees import binary_tree, double_tree
from magus.compiler.ir import Direction, Pattern, Reach, Reduction, Step, Transfer
from tests.helpers.some import some


def emitted(name: str, problem: CollectiveProblem) -> list[tuple[Step, ...]]:
    return [ALGORITHM_BY_NAME[name].build(replace(problem, rank=rank)).steps for rank in range(problem.num_ranks)]


def transfers(steps: tuple[Step, ...]) -> list[Transfer]:
    return [step for step in steps if isinstance(step, Transfer)]


def elements(steps: tuple[Step, ...]) -> int:
    return sum(step.region.rows.size * step.region.cols.size for step in transfers(steps))


@pytest.mark.parametrize(("num_ranks", "pieces"), list(product((2, 4, 8, 16), (1, 3))))
@pytest.mark.parametrize("name", ["direct", "ring", "double_ring", "halving_doubling"])
def test_each_rank_sends_the_least_there_is(name: str, num_ranks: int, pieces: int) -> None:
    """p (n - 1) chunks for all_gather and reduce_scatter, so (n - 1) / n of the tensor, and twice that for both."""
    for kind, times in ((Pattern.ALL_GATHER, 1), (Pattern.REDUCE_SCATTER, 1), (Pattern.ALL_REDUCE, 2)):
        problem = CollectiveProblem(kind, num_ranks, 12, 5, pieces)
        for steps in some(emitted(name, problem)):
            assert len(transfers(steps)) == times * pieces * (num_ranks - 1)
            assert elements(steps) == times * (num_ranks - 1) * 12 * 5


@pytest.mark.parametrize(("num_ranks", "pieces"), list(product((2, 3, 8), (1, 3))))
def test_what_else_is_sent(num_ranks: int, pieces: int) -> None:
    """one_shot: n (n - 1) p chunks a rank; tree: 2 (n - 1) per chunk in all; broadcast: n - 1 per chunk in all."""
    n, chunks = num_ranks, num_ranks * pieces

    def count(name: str, kind: Pattern) -> int:
        problem = CollectiveProblem(kind, n, 12, 5, pieces)
        return sum(len(transfers(steps)) for steps in emitted(name, problem))

    assert count("one_shot", Pattern.ALL_REDUCE) == n * chunks * (n - 1)
    assert count("double_tree", Pattern.ALL_REDUCE) == 2 * (n - 1) * chunks
    assert count("direct", Pattern.ALL_TO_ALL) == n * pieces * (n - 1)
    assert count("direct", Pattern.SEND_RECV) == chunks
    assert count("nvls", Pattern.BROADCAST) == chunks
    assert count("nvls", Pattern.ALL_GATHER) == count("nvls", Pattern.REDUCE_SCATTER) == n * pieces
    assert count("nvls", Pattern.ALL_REDUCE) == 2 * n * pieces
    for name in ("direct", "ring", "double_tree"):
        assert count(name, Pattern.BROADCAST) == (n - 1) * chunks


@pytest.mark.parametrize(("num_ranks", "node"), [(4, 2), (8, 4), (16, 8), (12, 3)])
@pytest.mark.parametrize("name", ["hierarchical", "double_ring"])
def test_blocks_cross_nodes_once(name: str, num_ranks: int, node: int) -> None:
    """p (N - 1) chunks across and p N (g - 1) within for each rank."""
    problem, nodes = CollectiveProblem(Pattern.ALL_GATHER, num_ranks, 4, 1, 2, node=node), num_ranks // node
    for rank, steps in some(enumerate(emitted(name, problem))):
        peers = [(rank + step.peer) % num_ranks for step in transfers(steps)]
        assert sum(peer // node != rank // node for peer in peers) == 2 * (nodes - 1)
        assert sum(peer // node == rank // node for peer in peers) == 2 * nodes * (node - 1)


@pytest.mark.parametrize(("num_ranks", "pieces"), list(product((2, 3, 4, 7, 8), (2, 4))))
@pytest.mark.parametrize("kind", [Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER])
def test_a_double_ring_uses_both_directions_alike(kind: Pattern, num_ranks: int, pieces: int) -> None:
    steps = transfers(emitted("double_ring", CollectiveProblem(kind, num_ranks, 12, 5, pieces))[0])
    to_right = [step for step in steps if step.peer == 1]
    others = [step for step in steps if step.peer == num_ranks - 1]
    if num_ranks == 2:
        assert len(to_right) == len(steps) == pieces
    else:
        assert len(to_right) == len(others) == len(steps) / 2


@pytest.mark.parametrize(("num_ranks", "node"), [(4, 2), (8, 4), (12, 3)])
def test_in_nodes_a_double_ring_talks_to_one_neighbour_within_and_one_across(num_ranks: int, node: int) -> None:
    for kind in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE):
        problem = CollectiveProblem(kind, num_ranks, 4, 1, 2, node=node)
        for rank, steps in some(enumerate(emitted("double_ring", problem))):
            within = rank // node * node + (rank + 1) % node
            peers = {(rank + step.peer) % num_ranks for step in transfers(steps)}
            assert peers == {within, (rank + node) % num_ranks}


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 16])
def test_halving_doubling_takes_as_many_turns_as_there_are_bits(num_ranks: int) -> None:
    """Peers of rank 0 are n / 2, n / 4, ..., 1, each sent half as much as the one before."""
    problem = CollectiveProblem(Pattern.REDUCE_SCATTER, num_ranks, 1, 1)
    peers = [step.peer for step in transfers(ALGORITHM_BY_NAME["halving_doubling"].build(problem).steps)]
    distances = [num_ranks >> (bit + 1) for bit in range(int(log2(num_ranks)))]
    assert [peers.count(distance) for distance in distances] == distances
    assert set(peers) == set(distances)


@pytest.mark.parametrize("size", range(1, 40))
def test_trees_span_all_and_share_the_work(size: int) -> None:
    """Each a tree with at most two children a node, of logarithmic height; a leaf of one is inner in the other."""
    trees = double_tree(size)
    for tree in trees:
        assert sum(parent is None for parent in tree) == 1
        for node in range(size):
            path = [node]
            while (above := tree[path[-1]]) is not None:
                path.append(above)
                assert len(path) <= 2 + log2(size)
        assert all(tree.count(node) <= 2 for node in range(size))
    inner = [{parent for parent in tree if parent is not None} for tree in trees]
    if size % 2 == 0 and size > 2:
        assert not inner[0] & inner[1]
    else:
        assert len(inner[0] & inner[1]) <= 2
    assert trees[0] == binary_tree(size)


def test_sums_are_added_by_sms_and_by_a_kernel_after_copy_engines() -> None:
    for name in ("ring", "halving_doubling", "double_tree"):
        adding = CollectiveProblem(Pattern.ALL_REDUCE, 4, 4, 1, adds=True)
        for rank in range(4):
            by_sms = ALGORITHM_BY_NAME[name].build(replace(adding, rank=rank)).steps
            by_dma = ALGORITHM_BY_NAME[name].build(replace(adding, adds=False, rank=rank)).steps
            assert any(step.reduce for step in transfers(by_sms))
            assert not any(isinstance(step, Reduction) for step in by_sms)
            assert not any(step.reduce for step in transfers(by_dma))
        assert any(isinstance(step, Reduction) for step in by_dma)


def test_a_get_of_parts_adds_as_it_lands() -> None:
    problem = CollectiveProblem(Pattern.REDUCE_SCATTER, 4, 4, 1, direction=Direction.GET, adds=True)
    steps = ALGORITHM_BY_NAME["direct"].build(problem).steps
    assert [(step.direction, step.reduce) for step in transfers(steps)] == [(Direction.GET, True)] * 3
    assert len(steps) == 3


def test_the_switch_is_read_with_a_sum_and_written_to_all() -> None:
    steps = transfers(ALGORITHM_BY_NAME["nvls"].build(CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1)).steps)
    assert [(step.direction, step.reach, step.reduce, step.peer) for step in steps] == [
        (Direction.GET, Reach.ALL, True, 0),
        (Direction.PUT, Reach.ALL, False, 0),
    ]
