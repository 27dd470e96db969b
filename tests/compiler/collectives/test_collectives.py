"""Every collective algorithm, carried out on sets in random legal orders; what it refuses; that its waits matter."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME, ALGORITHMS, Algorithm, CollectiveProblem
from magus.compiler.ir import Direction, EngineKind, IndexRange, Pattern, Region, Step, TileGroup, Transfer
from magus.compiler.templates.pipelined import Hops
from tests.helpers.marks import first, name_of
from tests.helpers.plans.symbolic_executor import Deadlock, Ranks, Wrong
from tests.helpers.some import some

SM: dict[str, Any] = {"engine": EngineKind.SM, "multicast": True, "reduces": True}
DMA: dict[str, Any] = {"engine": EngineKind.DMA}
# Powers of two, primes, and several nodes of two; nodes of three and of more are slow.
QUICK_RANKS = (2, 3, 4, 5, 6, 8)
RANKS = (*QUICK_RANKS, 7, 9, 16)
ON_TORUS = 9
"""Ranks of the smallest torus that has trees of its own."""
PIECES = (1, 2, 3, 4)
PAIRS = [(algorithm, kind) for algorithm in ALGORITHMS for kind in algorithm.kinds]


def node_of(num_ranks: int) -> int:
    """Nodes as small as they can be, so that there are several; 0 where the ranks cannot be grouped."""
    return next((size for size in range(2, num_ranks) if num_ranks % size == 0), 0)


def problems(kind: Pattern, num_ranks: int, pieces: int, node: int | None = None) -> list[CollectiveProblem]:
    """With and without adding, put and get; a piece has one row or two, and an uneven split has none at places."""
    grid = (3, 3) if num_ranks == ON_TORUS else ()
    node = node_of(num_ranks) if node is None else node
    base = CollectiveProblem(kind, num_ranks, pieces + 1, 1, pieces, node=node, grid=grid)
    splits = [(), tuple((3 * k + 1) % (pieces + 2) for k in range(num_ranks))] if kind is Pattern.ALL_TO_ALL else [()]
    return [
        replace(base, direction=direction, adds=adds, split=split)
        for direction, adds, split in product(Direction, (False, True), splits)
    ]


def ranks_of(algorithm: Algorithm) -> int:
    return ON_TORUS if algorithm.per_layer else 4


def fits(algorithm: Algorithm, problem: CollectiveProblem) -> bool:
    return algorithm.reject(replace(problem, **SM if problem.adds else DMA)) is None


def emitted(algorithm: Algorithm, problem: CollectiveProblem) -> list[tuple[Step, ...]]:
    return [algorithm.build(replace(problem, rank=rank)).steps for rank in range(problem.num_ranks)]


def carried_out(problem: CollectiveProblem, steps: list[tuple[Step, ...]], seed: int) -> None:
    ranks = Ranks(problem.kind, steps, problem.rows, problem.cols, problem.split)
    ranks.run(Random(seed))
    ranks.check()


@pytest.mark.quick(39)
@pytest.mark.parametrize("num_ranks", first(RANKS, len(QUICK_RANKS)))
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_leaves_what_its_kind_asks_for(algorithm: Algorithm, kind: Pattern, num_ranks: int) -> None:
    """In any legal order; that something can always run shows that nothing deadlocks."""
    for pieces in PIECES if num_ranks < 16 else PIECES[:2]:
        for problem in problems(kind, num_ranks, pieces):
            if fits(algorithm, problem):
                carried_out(problem, emitted(algorithm, problem), seed=pieces)


@pytest.mark.quick(5)
@pytest.mark.parametrize("num_ranks", first(RANKS, len(QUICK_RANKS)))
@pytest.mark.parametrize("kind", ALGORITHM_BY_NAME["double_ring"].kinds, ids=name_of)
def test_without_nodes_a_double_ring_goes_both_ways_round(kind: Pattern, num_ranks: int) -> None:
    """The same plan for every rank, and half as many transfers that follow each other as in a ring."""
    algorithm = ALGORITHM_BY_NAME["double_ring"]
    for pieces in PIECES:
        for problem in some(each for each in problems(kind, num_ranks, pieces, node=0) if fits(algorithm, each)):
            steps = emitted(algorithm, problem)
            assert algorithm.period(problem) == len(set(steps)) == 1
            carried_out(problem, steps, seed=pieces)
            hops = Hops(steps[:1], num_ranks, 0)
            turns = 2 if kind is Pattern.ALL_REDUCE else 1
            assert max(hops.before(0, step.name) for step in steps[0]) == turns * (num_ranks // 2)


@pytest.mark.quick(7)
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_order_does_not_matter(algorithm: Algorithm, kind: Pattern) -> None:
    for problem in some(each for each in problems(kind, ranks_of(algorithm), 2) if fits(algorithm, each)):
        for seed in range(20):
            carried_out(problem, emitted(algorithm, problem), seed)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_ranks_differ_only_where_it_says_so(algorithm: Algorithm, kind: Pattern) -> None:
    for problem in some(each for each in problems(kind, ranks_of(algorithm), 2) if fits(algorithm, each)):
        steps, period = emitted(algorithm, problem), algorithm.period(problem)
        assert list(steps) == [steps[rank % period] for rank in range(problem.num_ranks)]
        assert (len(set(steps)) > 1) == (period > 1)


@pytest.mark.quick(7)
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_says_when_each_block_is_done(algorithm: Algorithm, kind: Pattern) -> None:
    """A kernel that waits for ``done`` of a chunk finds what will be there in the end."""
    for problem in problems(kind, ranks_of(algorithm), 2):
        if not fits(algorithm, problem):
            continue
        steps = []
        for rank in range(problem.num_ranks):
            fragment = algorithm.build(replace(problem, rank=rank))
            kernels = [
                TileGroup(f"k{block}_{piece}", (region,), IndexRange(0, 1), names, stream=1 + block * 2 + piece)
                for (block, piece), names in fragment.done.items()
                if (region := received(problem, block, piece)).rows.size and (kind, rank) != (Pattern.SEND_RECV, 0)
            ]
            steps.append((*fragment.steps, *kernels))
        for seed in range(10):
            carried_out(problem, steps, seed)


def received(problem: CollectiveProblem, block: int, piece: int) -> Region:
    """What arrives of a block at its destination; of an all_to_all, ``block`` has sent it."""
    rows = problem.split[-block % problem.num_ranks] if problem.split else None
    return problem.region(block, piece, rows)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_data_is_used_when_it_is_ready(algorithm: Algorithm, kind: Pattern) -> None:
    """What a rank has waits for nothing but ``ready``, of that chunk."""
    first_of = problems(kind, ranks_of(algorithm), 2)[0]
    problem = replace(first_of, adds=True, ready=lambda block, piece: (f"ready{block}_{piece}",))
    firsts = 0
    for rank in range(problem.num_ranks):
        for step in algorithm.build(replace(problem, rank=rank)).steps:
            named = {name for name in step.after if name.startswith("ready")}
            piece = next(p for p in range(2) if problem.region(0, p).rows == step_region(step).rows)
            assert named <= {f"ready{step_region(step).owner}_{piece}"}
            firsts += set(step.after) == named
            assert step.after, f"{step.name} waits for nothing"
    assert firsts


def step_region(step: Step) -> Region:
    assert not isinstance(step, TileGroup)
    return step.region


@pytest.mark.parametrize("prefix", ["", "ag_"])
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS, ids=name_of)
def test_all_names_begin_with_the_prefix(algorithm: Algorithm, kind: Pattern, prefix: str) -> None:
    problem = replace(problems(kind, ranks_of(algorithm), 2)[0], prefix=prefix)
    for step in some(
        step for rank in range(problem.num_ranks) for step in algorithm.build(replace(problem, rank=rank)).steps
    ):
        assert step.name.startswith(prefix)
        assert not isinstance(step, Transfer) or step.signal == f"s_{step.name}"


GET = Direction.GET


@pytest.mark.parametrize(
    ("name", "problem", "setting", "words"),
    [
        ("ring", CollectiveProblem(Pattern.ALL_TO_ALL, 4, 4, 1), DMA, "does no all_to_all"),
        (
            "ring",
            CollectiveProblem(Pattern.ALL_GATHER, 4, 4, 1, direction=GET),
            DMA,
            "cannot know when its peer has it",
        ),
        ("ring", CollectiveProblem(Pattern.ALL_GATHER, 1, 4, 1), DMA, "2 ranks or more"),
        (
            "direct",
            CollectiveProblem(Pattern.REDUCE_SCATTER, 4, 4, 1, direction=GET, computed=True),
            SM,
            "has computed",
        ),
        ("halving_doubling", CollectiveProblem(Pattern.ALL_REDUCE, 6, 4, 1), DMA, "a power of two of them, not 6"),
        ("halving_doubling", CollectiveProblem(Pattern.ALL_REDUCE, 1024, 4, 1), DMA, "at most 512 of them, not 1024"),
        ("one_shot", CollectiveProblem(Pattern.ALL_REDUCE, 512, 4, 1), DMA, "at most 256 ranks, not 512"),
        ("hierarchical", CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1), DMA, "grouped into nodes"),
        (
            "double_ring",
            CollectiveProblem(Pattern.ALL_TO_ALL, 4, 4, 1, with_kernel=True),
            DMA,
            "equal blocks of an all_to_all",
        ),
        ("double_ring", CollectiveProblem(Pattern.ALL_TO_ALL, 2, 4, 1, split=(4, 3)), DMA, "all_to_all alone"),
        ("hierarchical", CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1, node=8), DMA, "several whole nodes of 8"),
        ("nvls", CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1), DMA, "needs SMs"),
        ("nvls", CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1), {**SM, "reduces": False}, "reduces yes"),
        ("nvls", CollectiveProblem(Pattern.ALL_GATHER, 8, 4, 1), {**SM, "multicast": False}, "multicast yes"),
        ("nvls", CollectiveProblem(Pattern.ALL_REDUCE, 8, 4, 1, computed=True), SM, "when the others have computed"),
    ],
)
def test_says_why_it_cannot(name: str, problem: CollectiveProblem, setting: dict[str, Any], words: str) -> None:
    rejection = ALGORITHM_BY_NAME[name].reject(replace(problem, **setting))

    assert rejection is not None and words in rejection.message


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("name", "kind", "adds"),
    [
        *product(["ring"], [Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE], [False, True]),
        *product(["ring", "double_tree"], [Pattern.BROADCAST], [False]),
        *product(["double_tree"], [Pattern.ALL_REDUCE], [False, True]),
        *product(["double_ring"], [Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER], [False, True]),
        ("halving_doubling", Pattern.ALL_REDUCE, True),
        ("nvls", Pattern.ALL_REDUCE, True),
    ],
    ids=name_of,
)
def test_every_wait_is_needed(name: str, kind: Pattern, adds: bool) -> None:
    """Without any one of them, some order leaves something wrong; so this interpreter can fail."""
    problem = CollectiveProblem(kind, 4, 2, 1, pieces=2, adds=adds)
    steps, missed = emitted(ALGORITHM_BY_NAME[name], problem), []
    for rank, mine in enumerate(steps):
        for index, step in enumerate(mine):
            for wait in step.after:
                cut = replace(step, after=tuple(other for other in step.after if other != wait))
                changed = [*steps]
                changed[rank] = (*mine[:index], cut, *mine[index + 1 :])
                if not caught(problem, changed):
                    missed.append((rank, step.name, wait))
    assert not missed
    assert any(step.after for mine in steps for step in mine)


def caught(problem: CollectiveProblem, steps: list[tuple[Step, ...]]) -> bool:
    for seed in range(60):
        try:
            carried_out(problem, steps, seed)
        except Wrong:
            return True
    return False


def test_steps_that_wait_for_each_other_are_found() -> None:
    """The first transfer of a ring waits for its last: nobody begins."""
    problem = CollectiveProblem(Pattern.ALL_GATHER, 4, 2, 1)
    first, *others = ALGORITHM_BY_NAME["ring"].build(problem).steps
    stuck = (replace(first, after=("s_x2",)), *others)

    with pytest.raises(Deadlock):
        carried_out(problem, [stuck] * 4, seed=0)
