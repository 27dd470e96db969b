"""Kernels beside every algorithm: which chunks one kernel takes, in which order, and what it waits for."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from magus.compiler.codes import Code
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpChoice,
    Pattern,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    Wait,
)
from magus.compiler.planning.build import build_op_plan, expression_of, reject_choice
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.templates import BY_NAME
from magus.compiler.templates.base import TemplateInput
from magus.compiler.templates.pipelined import Hops
from magus.compiler.text.diagnostics import CompileError
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import first
from tests.helpers.plans.rejections import reject_problem
from tests.helpers.plans.symbolic_executor import Ranks
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.two_kernel_problem import staged
from tests.helpers.some import some

AG, RS, AR, A2A = Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM


def problem_of(pattern: Pattern, algorithm: str, num_ranks: int = 8, pieces: int = 2, node: int = 0) -> TemplateInput:
    return TemplateInput(pattern, num_ranks, 8, 4, 4, 4, pieces, 1, 0, algorithm, node=node, multicast=True)


def steps_of(problem: TemplateInput, rank: int = 0) -> tuple[Step, ...]:
    steps, by_rank = BY_NAME["pipelined"].write(problem)
    return by_rank[rank % len(by_rank)] if by_rank else steps


def kernels_of(steps: tuple[Step, ...]) -> list[TileGroup]:
    return [step for step in steps if isinstance(step, TileGroup)]


def sums_of(steps: tuple[Step, ...]) -> list[Reduction]:
    return [step for step in steps if isinstance(step, Reduction)]


def blocks_of(problem: TemplateInput, rank: int = 0) -> list[list[int]]:
    """Blocks of each kernel, in the order in which they run."""
    return [[region.owner for region in kernel.regions] for kernel in kernels_of(steps_of(problem, rank))]


def test_a_ring_is_ring_attention() -> None:
    """A kernel for each block as it comes round, and the farthest first where sums go round."""
    assert blocks_of(problem_of(AG, "ring", 4, 1)) == [[0], [3], [2], [1]]
    assert blocks_of(problem_of(RS, "ring", 4, 1)) == [[3], [2], [1], [0]]
    assert blocks_of(problem_of(AR, "ring", 4, 1)) == [[3], [2], [1], [0]]
    assert blocks_of(problem_of(AG, "ring", 4, 2)) == [[0], [3], [3], [2], [2], [1], [1]]


def test_a_double_ring_brings_two_blocks_at_a_time() -> None:
    assert blocks_of(problem_of(AG, "double_ring", 5, 1)) == [[0], [4, 1], [3, 2]]
    assert blocks_of(problem_of(RS, "double_ring", 5, 1)) == [[2, 3], [1, 4], [0]]
    assert blocks_of(problem_of(AG, "double_ring", 4, 2)) == [[0], [3, 1], [3, 1], [2], [2]]


def test_halving_doubling_brings_blocks_after_as_many_hops_as_ranks_differ_in_bits() -> None:
    """Of three partners their own first, then what these have from theirs."""
    for rank in range(8):
        waves = blocks_of(problem_of(AG, "halving_doubling", 8, 1), rank)
        bits = [{((rank + block) % 8 ^ rank).bit_count() for block in wave} for wave in waves]
        assert bits == [{0}, {1}, {2}, {3}] and [len(wave) for wave in waves] == [1, 3, 3, 1]


@pytest.mark.parametrize("rank", range(8))
def test_blocks_of_the_own_node_come_first_and_go_last(rank: int) -> None:
    """Own block, own node, then node after node as an outer ring brings them; the same backwards."""
    node, place = rank // 4, rank % 4
    mates = [(other - place) % 8 for other in range(4) if other != place]
    for name in ("hierarchical", "double_ring"):
        came = blocks_of(problem_of(AG, name, 8, 1, 4), rank)
        left = blocks_of(problem_of(RS, name, 8, 1, 4), rank)
        for order in (came, left[::-1]):
            blocks = [block for wave in order for block in wave]
            assert sorted(blocks) == list(range(8)) and blocks[0] == 0
            nodes = [(rank + block) % 8 // 4 for block in blocks]
            assert nodes == [node] * 4 + [1 - node] * 4
        if name == "hierarchical":
            assert sorted(came[1]) == sorted(left[-2]) == sorted(mates)
            assert [len(wave) for wave in came] == [1, 3, 1, 3] and [len(wave) for wave in left] == [3, 1, 3, 1]


@pytest.mark.parametrize("pattern", [AG, A2A, RS])
@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_with_direct_it_is_hetero_fused_1d(pattern: Pattern, pieces: int) -> None:
    """The same kernels and transfers with the same waits, whatever they are called."""
    problem = problem_of(pattern, "direct", 4, pieces)
    mine, theirs = steps_of(problem), BY_NAME["hetero_fused_1d"].write(replace(problem, algorithm=""))[0]

    def shapes(steps: tuple[Step, ...]) -> list[object]:
        kernels = [(kernel.regions, len(kernel.after)) for kernel in kernels_of(steps)]
        moves = [(step.region, step.peer, len(step.after)) for step in steps if isinstance(step, Transfer)]
        return [kernels, moves, [(s.region, len(s.after), s.stream) for s in steps if isinstance(s, Reduction)]]

    assert shapes(mine) == shapes(theirs)


@pytest.mark.parametrize(
    ("algorithm", "kernels"),
    [("ring", 2 * 7 + 1), ("double_ring", 2 * 4 + 1), ("direct", 2 + 1), ("halving_doubling", 2 * 3 + 1)],
)
@pytest.mark.parametrize("pattern", [AG, RS, AR])
def test_number_of_kernels(pattern: Pattern, algorithm: str, kernels: int) -> None:
    for rank in range(8):
        assert len(kernels_of(steps_of(problem_of(pattern, algorithm), rank))) == kernels


@pytest.mark.parametrize("algorithm", ALGORITHM_BY_NAME)
@pytest.mark.parametrize("pattern", [RS, AR])
def test_what_travels_further_is_computed_moved_and_summed_first(pattern: Pattern, algorithm: str) -> None:
    problem = problem_of(pattern, algorithm, 8, 2, 4)
    if reject_problem(BY_NAME["pipelined"], problem) is not None:
        return
    steps, by_rank = BY_NAME["pipelined"].write(problem)
    ranks = by_rank or (steps,)
    hops = Hops(ranks, 8, 4)
    for rank, mine in some(enumerate(ranks)):
        for kind in (TileGroup, Transfer, Reduction):
            ways = [hops.behind(rank, step.name) for step in mine if isinstance(step, kind)]
            assert all(one >= then for one, then in pairwise(ways))
        assert {step.stream for step in mine if isinstance(step, TileGroup)} == {0}
        assert all(step.stream for step in mine if isinstance(step, Reduction))


@pytest.mark.parametrize("pattern", [AG, RS])
def test_kernels_are_dealt_to_streams_and_sums_have_one_of_their_own(pattern: Pattern) -> None:
    one, two = (steps_of(replace(problem_of(pattern, "ring", 4, 2), streams=streams)) for streams in (1, 2))

    assert {kernel.stream for kernel in kernels_of(one)} == {0}
    assert [kernel.stream for kernel in kernels_of(two)] == [0, 1, 0, 1, 0, 1, 0]
    for streams, steps in ((1, one), (2, two)):
        assert {step.stream for step in steps if isinstance(step, Reduction)} == ({streams} if pattern is RS else set())


def test_a_kernel_takes_several_waves() -> None:
    """What is left over comes last where something arrives, and first where it leaves."""

    def joined(pattern: Pattern, waves: int) -> list[list[int]]:
        return blocks_of(replace(problem_of(pattern, "ring", 4, 1), waves=waves))

    assert joined(AG, 2) == [[0], [3, 2], [1]] and joined(RS, 2) == [[3], [2, 1], [0]]
    assert joined(AG, 3) == [[0], [3, 2, 1]] and joined(RS, 3) == [[3, 2, 1], [0]]
    assert joined(AG, 9) == joined(AG, 3) and joined(AR, 9) == joined(RS, 3)


@pytest.mark.parametrize("algorithm", ["ring", "double_ring", "halving_doubling"])
@pytest.mark.parametrize("pattern", [AG, RS, AR])
def test_waves_change_nothing_that_moves_or_is_summed(pattern: Pattern, algorithm: str) -> None:
    problem = problem_of(pattern, algorithm, 8, 4)
    fine, coarse = (steps_of(replace(problem, waves=waves)) for waves in (1, 4))

    def rest(steps: tuple[Step, ...]) -> list[Step]:
        return [replace(step, after=()) for step in steps if not isinstance(step, TileGroup)]

    assert rest(fine) == rest(coarse)
    assert len(kernels_of(coarse)) == 1 + -(-(len(kernels_of(fine)) - 1) // 4)
    tiles = [
        sorted(str(region) for kernel in kernels_of(steps) for region in kernel.regions) for steps in (fine, coarse)
    ]
    assert tiles[0] == tiles[1]


@pytest.mark.parametrize("pattern", [RS, AR])
def test_sums_are_dealt_to_streams(pattern: Pattern) -> None:
    problem = replace(problem_of(pattern, "double_ring", 4, 2), streams=2)
    one, three = (steps_of(replace(problem, sums=sums)) for sums in (1, 3))

    assert {step.stream for step in one if isinstance(step, Reduction)} == {2}
    assert [step.stream for step in three if isinstance(step, Reduction)][:4] == [2, 3, 4, 2]
    assert kernels_of(one) == kernels_of(three)


def test_waves_and_sums_are_in_its_name_and_read_from_it() -> None:
    scenario = scenario_of(RS, SYSTEMS[2], 4, 1024, 1024, 1024)
    text = "pipelined(chunks=16, engine=dma(3), streams=2, algorithm=double_ring, waves=3, sums=4)"

    choice = read_choice(scenario, text)

    assert (choice.waves, choice.sums) == (3, 4)
    assert expression_of(choice) == text == build_op_plan(scenario, choice).expression
    assert expression_of(replace(choice, waves=1, sums=1)) == text.replace(", waves=3, sums=4", "")


@pytest.mark.parametrize(
    ("pattern", "text", "code"),
    [
        (RS, "pipelined(waves=0)", Code.MGS307),
        (RS, "pipelined(sums=65)", Code.MGS307),
        (RS, "pipelined(waves=1.5)", Code.MGS309),
        (RS, "serial(waves=2)", Code.MGS201),
        (RS, "bespoke(sums=2)", Code.MGS201),
    ],
)
def test_what_cannot_be_waves_or_sums_is_a_diagnostic(pattern: Pattern, text: str, code: Code) -> None:
    with pytest.raises(CompileError) as caught:
        read_choice(scenario_of(pattern, SYSTEMS[2], 4, 1024, 1024, 1024), text)

    assert [found.code for found in caught.value.diagnostics] == [code]


def test_waves_are_for_pipelined_and_sums_for_what_is_summed() -> None:
    gather, engine = scenario_of(AG, SYSTEMS[2], 4, 1024, 1024, 1024), EngineChoice(EngineKind.DMA, 3)

    for choice, words in (
        (OpChoice("hetero_fused_1d", 8, engine, waves=2), "hetero_fused_1d takes no waves"),
        (OpChoice("pipelined", 8, engine, sums=2), "AG+GEMM sums nothing"),
    ):
        error = reject_choice(gather, choice)
        assert error is not None and error.code is Code.MGS511 and words in str(error)
    assert reject_choice(gather, OpChoice("pipelined", 8, engine, waves=2)) is None


def test_sums_behind_a_persistent_kernel_are_in_one_stream() -> None:
    """One that polls holds its SMs, and what it looks for may be what another of its rank passes on."""
    scenario, tactics = (
        scenario_of(RS, SYSTEMS[2], 4, 1024, 1024, 1024),
        ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL),
    )
    choice = OpChoice("pipelined", 8, EngineChoice(EngineKind.DMA, 3), tactics=tactics, sums=2)

    error = reject_choice(scenario, choice)
    one = build_op_plan(scenario, replace(choice, sums=1))
    dealt = [replace(step, stream=1 + turn % 2) for turn, step in enumerate(sums_of(one.steps))]
    others = [step for step in one.steps if not isinstance(step, Reduction)]

    assert error is not None and error.code is Code.MGS511 and error.hint == "sums=1"
    assert check_plan(scenario, one) == ()
    assert [fault.code for fault in check_plan(scenario, replace(one, steps=(*others, *dealt)))] == [Code.MGS503]


def test_streams_are_in_its_name_where_there_are_several() -> None:
    engine = EngineChoice(EngineKind.DMA, 7)
    texts = [expression_of(OpChoice("pipelined", 16, engine, streams)) for streams in (1, 2)]

    assert texts == ["pipelined(chunks=16, engine=dma(7))", "pipelined(chunks=16, engine=dma(7), streams=2)"]


@pytest.mark.slow
@pytest.mark.parametrize("count", first((20, 80), 1))
def test_plans_drawn_at_random_leave_what_is_requested_for(count: int) -> None:
    """Any number of ranks and pieces, in nodes or not, in any legal order."""
    rng, template, done = Random(5), BY_NAME["pipelined"], 0
    while done < count:
        n, pieces, pattern = rng.choice((2, 3, 5, 6, 7, 9, 12)), rng.randrange(1, 4), rng.choice(template.patterns)
        drawn = problem_of(pattern, rng.choice(("", *ALGORITHM_BY_NAME)), n, pieces, rng.choice((0, 2, 3, 4)))
        split = tuple(rng.randrange(drawn.shard_rows + 1) for _ in range(n)) if pattern.exchanges else ()
        waves, sums = rng.choice((1, 2, 5)), rng.choice((1, 3)) if pattern.sums else 1
        streams = rng.choice((1, 2))
        problem = staged(replace(drawn, split=split, streams=streams, reduces=True, waves=waves, sums=sums))
        if reject_problem(template, problem) is None:
            steps, by_rank = template.write(problem)
            ranks = Ranks(
                pattern, (by_rank or (steps,)) * (n // max(1, len(by_rank))), problem.shard_rows, problem.cols, split
            )
            ranks.run(rng)
            ranks.check()
            done += 1


def test_chunks_that_are_not_there_have_no_kernel() -> None:
    problem = replace(problem_of(A2A, "", 4, 2), split=(0, 8, 0, 1))
    kernels = kernels_of(steps_of(problem))
    # Rank r - 1 sends 8 rows, r - 3 one, which is in the second piece.
    assert [[(r.owner, r.rows.size) for r in kernel.regions] for kernel in kernels] == [[(3, 4)], [(3, 4), (1, 1)]]


def test_ring_is_usual_and_direct_where_there_is_no_ring() -> None:
    assert steps_of(problem_of(AG, "")) == steps_of(problem_of(AG, "ring"))
    assert steps_of(problem_of(A2A, "")) == steps_of(problem_of(A2A, "direct"))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (problem_of(A2A, "ring"), "ring does no all_to_all"),
        (problem_of(RS, "one_shot"), "one_shot does no reduce_scatter"),
        (problem_of(AG, "double_tree"), "double_tree does no all_gather"),
        (problem_of(AG, "halving_doubling", 6), "a power of two"),
        (problem_of(AG, "hierarchical"), "grouped into nodes"),
        (replace(problem_of(RS, "nvls"), engine=EngineKind.SM, reduces=True), "computed theirs"),
        (replace(problem_of(AG, "nvls"), multicast=False), "multicast yes"),
        (problem_of(AG, "spiral"), "there is no algorithm"),
    ],
)
def test_says_why_not_and_what_would_do(problem: TemplateInput, words: str) -> None:
    reason = reject_problem(BY_NAME["pipelined"], problem)

    assert reason is not None and words in reason.message
    assert "would do" in reason.hint or "algorithms are" in reason.hint
