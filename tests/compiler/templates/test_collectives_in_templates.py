"""Templates on every pattern, put and get, with every algorithm: carried out on sets in random legal orders."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    Direction,
    EngineKind,
    ExecutionOptions,
    Pattern,
    Reach,
    Reduction,
    Step,
    TileGroup,
    Transfer,
)
from magus.compiler.templates import ALL_TEMPLATES, BY_NAME, Cut, Template
from magus.compiler.templates.base import TemplateInput
from magus.compiler.templates.collective import collective_in
from tests.helpers.marks import first, name_of
from tests.helpers.plans.rejections import reject_problem
from tests.helpers.plans.symbolic_executor import Ranks
from tests.helpers.scenarios.two_kernel_problem import pattern_of, staged

GET = ExecutionOptions(direction=Direction.GET)
SPLIT = (2, 0, 4, 1, 3, 4, 2, 1)
PAIRS = [(template, pattern) for template in ALL_TEMPLATES for pattern in template.patterns]


def problem_of(template: Template, pattern: Pattern, num_ranks: int, pieces: int) -> TemplateInput:
    """Blocks of 4 x 4 elements, the kernel of an own size where it runs beside; one rank where nothing moves."""
    ranks = 1 if collective_in(pattern) is None else num_ranks
    gemm = pattern.overlaps or pattern.independent or pattern is Pattern.GEMM
    problem = TemplateInput(
        pattern,
        ranks,
        shard_rows=4,
        cols=4,
        inner=4 if gemm else 0,
        output_cols=4 if gemm else 0,
        pieces=1 if template.cut is Cut.SHARD else pieces,
        streams=template.default_streams,
        output_rows=5,
        node=2 if num_ranks % 2 == 0 else 0,
        multicast=True,
        reduces=True,
    )
    return staged(problem)


def variants(template: Template, pattern: Pattern, num_ranks: int, pieces: int) -> list[TemplateInput]:
    """Put and get, by either engine, with each algorithm, even and uneven: what of it is possible."""
    requested = replace(problem_of(template, pattern, num_ranks, pieces), pattern=pattern)
    splits = [(), SPLIT[:num_ranks]] if pattern.exchanges else [()]
    algorithms = ["", *ALGORITHM_BY_NAME] if template.has("algorithm") else [""]
    found = [
        staged(replace(requested, tactics=tactics, engine=engine, algorithm=algorithm, split=split))
        for tactics, engine, algorithm, split in product((ExecutionOptions(), GET), EngineKind, algorithms, splits)
    ]
    return [problem for problem in found if reject_problem(template, problem) is None]


def steps_by_rank(template: Template, problem: TemplateInput) -> list[tuple[Step, ...]]:
    steps, by_rank = template.write(problem)
    period = by_rank or (steps,)  # of the ranks that stand for all
    return list(period) * (problem.num_ranks // len(period))


def carried_out(template: Template, problem: TemplateInput, seed: int) -> None:
    steps = steps_by_rank(template, problem)
    ranks = Ranks(pattern_of(problem), steps, problem.shard_rows, problem.cols, problem.split)
    ranks.run(Random(seed))
    ranks.check()


@pytest.mark.quick(43)
@pytest.mark.parametrize("num_ranks", first([2, 3, 4, 8], 2))
@pytest.mark.parametrize(("template", "pattern"), PAIRS, ids=name_of)
def test_leaves_what_its_pattern_asks_for(template: Template, pattern: Pattern, num_ranks: int) -> None:
    problems = [
        problem
        for pieces in ((1,) if template.cut is Cut.SHARD else (1, 2, 4))
        if pieces >= template.min_pieces
        for problem in variants(template, pattern, num_ranks, pieces)
    ]
    for seed, problem in enumerate(problems):
        carried_out(template, problem, seed)
    assert problems or template.name in ("halving_doubling", "hierarchical", "torus_tree")


@pytest.mark.parametrize("pattern", [pattern for pattern in Pattern if collective_in(pattern) is not None])
def test_gets_are_issued_by_the_destination(pattern: Pattern) -> None:
    """All of them, but for what a rank has just summed, which is put."""
    for template in ALL_TEMPLATES:
        if pattern not in template.patterns:
            continue
        problem = replace(problem_of(template, pattern, 4, 2), tactics=GET)
        if reject_problem(template, problem) is not None:
            continue
        steps = [step for mine in steps_by_rank(template, problem) for step in mine]
        transfers = [step for step in steps if isinstance(step, Transfer) and not step.name.startswith("y")]
        assert transfers and {step.direction for step in transfers} == {Direction.GET}


@pytest.mark.parametrize(
    ("template", "pattern"), [pair for pair in PAIRS if pair[1] in (Pattern.GEMM_RS, Pattern.GEMM_AR)], ids=name_of
)
def test_partial_sums_of_kernels_are_never_got(template: Template, pattern: Pattern) -> None:
    reason = reject_problem(template, replace(problem_of(template, pattern, 4, 2), tactics=GET))

    assert reason is not None and "put by the rank that computes them" in reason.message


@pytest.mark.parametrize("name", ALGORITHM_BY_NAME)
def test_there_is_a_template_for_each_algorithm(name: str) -> None:
    template, grid = BY_NAME[name], (3, 3) if name == "torus_tree" else ()
    assert template.patterns == ALGORITHM_BY_NAME[name].kinds
    for pattern in template.patterns:
        problem = replace(problem_of(template, pattern, 9 if grid else 4, 1), engine=EngineKind.SM, grid=grid)
        lone = steps_by_rank(template, problem)
        assert lone == steps_by_rank(BY_NAME["serial"], replace(problem, algorithm=name))


def test_bulk_begins_everything_at_once_and_serial_does_not() -> None:
    for pattern in (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A):
        beside = BY_NAME["bulk"].write(problem_of(BY_NAME["bulk"], pattern, 4, 1))[0]
        after = BY_NAME["serial"].write(problem_of(BY_NAME["serial"], pattern, 4, 1))[0]
        assert [step.after for step in beside] == [()] * 4
        assert [step.after for step in after] == [(), *[("g0",)] * 3]
        kernel = after[0]
        assert isinstance(kernel, TileGroup) and kernel == beside[0]
        assert kernel.regions[0].rows.size == 5 and kernel.k.size == 4


@pytest.mark.parametrize("template", ["uniform_fused_1d", "uniform_fused_2d", "hetero_fused_1d", "shard_p2p"])
def test_a_summed_piece_goes_to_everyone_as_soon_as_it_is_there(template: str) -> None:
    """GEMM+AR is GEMM+RS, and behind each sum n - 1 puts of what it has made."""
    problem = problem_of(BY_NAME[template], Pattern.GEMM_AR, 4, 2)
    steps = BY_NAME[template].write(problem)[0]
    scattered = BY_NAME[template].write(replace(problem, pattern=Pattern.GEMM_RS))[0]
    sums = [step for step in steps if isinstance(step, Reduction)]
    spread = [step for step in steps if step not in scattered]
    assert [step for step in steps if step in scattered] == list(scattered)
    assert [step.after for step in spread] == [(step.name,) for step in sums for _ in range(3)]
    assert [step.region for step in spread if isinstance(step, Transfer)] == [
        step.region for step in sums for _ in range(3)
    ]


@pytest.mark.parametrize(
    ("template", "problem", "words"),
    [
        ("uniform_fused_1d", {"pattern": Pattern.AG_GEMM, "algorithm": "ring"}, "takes no algorithm"),
        ("serial", {"pattern": Pattern.AG_GEMM, "algorithm": "double_tree"}, "double_tree does no all_gather"),
        ("serial", {"pattern": Pattern.AG_GEMM, "algorithm": "spiral"}, "there is no algorithm 'spiral'"),
        ("serial", {"pattern": Pattern.AG_GEMM, "algorithm": "ring", "tactics": GET}, "cannot know"),
        ("serial", {"pattern": Pattern.ALL_REDUCE, "algorithm": "nvls"}, "needs SMs"),
        ("hierarchical", {"pattern": Pattern.ALL_REDUCE, "node": 0}, "grouped into nodes"),
    ],
)
def test_says_why_not(template: str, problem: dict[str, object], words: str) -> None:
    base = problem_of(BY_NAME[template], Pattern.AG_GEMM, 4, 1)
    reason = reject_problem(BY_NAME[template], replace(base, **problem))  # type: ignore[arg-type]
    assert reason is not None and words in reason.message
    assert "would do" in reason.hint or "serial" in reason.hint or "algorithms are" in reason.hint


def test_multicast_is_left_to_the_switch() -> None:
    problem = replace(problem_of(BY_NAME["nvls"], Pattern.ALL_GATHER, 4, 2), multicast=False)
    assert reject_problem(BY_NAME["nvls"], problem) is not None
    steps, by_rank = BY_NAME["nvls"].write(replace(problem, multicast=True))
    assert not by_rank
    assert [step.reach for step in steps if isinstance(step, Transfer)] == [Reach.ALL] * 2
