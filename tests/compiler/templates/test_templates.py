"""Every template, on every pattern it schedules: no faults, the expected number of transfers, every byte once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from magus.compiler.ir import (
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Fabric,
    GemmShape,
    GemvShape,
    OpCase,
    OpChoice,
    Pattern,
    Reduction,
    Step,
    Then,
    TileGroup,
    Transfer,
    topologies,
)
from magus.compiler.ir.topologies.levels import FatTree
from magus.compiler.planning.build import ScheduleError, build_op_plan, expression_of, reject_choice, template_named
from magus.compiler.planning.staging import slices_inner, staging_bytes
from magus.compiler.templates import ALL_TEMPLATES, BASELINE, TEMPLATES, Cut, Template
from magus.compiler.text.vocabulary import MAX_STREAMS
from magus.compiler.verify.check import check_plan
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather, lone_gemm, lone_scatter, switch, xgmi
from tests.helpers.some import some

DMA7 = EngineChoice(EngineKind.DMA, 7)
PIECES = (1, 2, 4, 16)
SHAPES = ((512, 2048, 1024, 2), (1536, 3072, 2048, 4), (8192, 8192, 8192, 8))


GEMM = GemmShape(384, 256, 512, DType.BF16)


def scenarios_of(pattern: Pattern) -> list[OpCase]:
    """The same shapes for every pattern; those that move alike have the same tensors."""
    match pattern:
        case Pattern.AG_GEMM | Pattern.A2A_GEMM:
            made = [ag_gemm(m, n, k, ranks=ranks) for m, n, k, ranks in SHAPES]
        case Pattern.GEMM_RS | Pattern.GEMM_AR | Pattern.GEMM_A2A:
            made = [gemm_rs(m, n, k, ranks=ranks) for m, n, k, ranks in SHAPES]
        case Pattern.GEMM_A2A_GEMM:
            made = [with_second(gemm_rs(m, n, k, ranks=ranks)) for m, n, k, ranks in SHAPES]
        case Pattern.ALL_GATHER:
            made = [lone_gather(m, k, ranks=ranks) for m, _, k, ranks in SHAPES]
        case Pattern.GEMM:
            made = [lone_gemm(m, n, k) for m, n, k, _ in SHAPES]
        case Pattern.KERNEL:
            gemv = GemvShape(512, 1024, DType.BF16)
            lone = lone_gemm(512, 512, 512)
            made = [replace(lone, shape=replace(lone.shape, gemm=None, kernel=gemv))]
        case _:
            made = [lone_scatter(m, k, ranks=ranks) for m, _, k, ranks in SHAPES]
    if pattern.independent:
        made = [replace(one, shape=replace(one.shape, gemm=GEMM)) for one in made]
    return [replace(one, shape=replace(one.shape, pattern=pattern)) for one in made]


def with_second(scenario: OpCase) -> OpCase:
    """The same with a kernel on what the first one makes."""
    gemm = scenario.shape.gemm
    assert gemm is not None
    then = Then(GemmShape(gemm.m, 256, gemm.n, gemm.dtype), "z")
    return replace(scenario, shape=replace(scenario.shape, then=then))


CASES = [
    (scenario, choice)
    for template in ALL_TEMPLATES
    for pattern in template.patterns
    for scenario in scenarios_of(pattern)
    for pieces in (PIECES if template.cut is not Cut.SHARD else (1,))
    for streams in sorted({1, template.default_streams})
    if pieces >= template.min_pieces
    for choice in [OpChoice(template.name, scenario.num_ranks * pieces, DMA7, streams)]
    if reject_choice(scenario, choice) is None
]
# How often a rank's n - 1 blocks leave it.
TIMES = {Pattern.ALL_REDUCE: 2, Pattern.GEMM_AR: 2} | {
    pattern: 1
    for pattern in Pattern
    if pattern.gathers or pattern.reduces or pattern.exchanges or pattern is Pattern.GEMM_BESIDE_AG
}
DIRECT_CASES = [
    (scenario, choice)
    for scenario, choice in CASES
    if template_named(choice.template).default_algorithm in ("", "direct") and scenario.shape.pattern in TIMES
]


def name_of(value: object) -> str:
    if isinstance(value, OpCase):
        return f"{value.shape.pattern.value}-{value.num_ranks}"
    return expression_of(value) if isinstance(value, OpChoice) else str(value)


@pytest.mark.quick(186)
@pytest.mark.parametrize(("scenario", "choice"), CASES, ids=name_of)
def test_has_no_faults(scenario: OpCase, choice: OpChoice) -> None:
    schedule = build_op_plan(scenario, choice)

    assert check_plan(scenario, schedule) == ()
    assert schedule.expression == expression_of(choice)


@pytest.mark.quick(186)
@pytest.mark.parametrize(("scenario", "choice"), DIRECT_CASES, ids=name_of)
def test_moves_every_byte_and_computes_every_operation_once(scenario: OpCase, choice: OpChoice) -> None:
    steps = build_op_plan(scenario, choice).steps

    assert_moves_every_byte_once(scenario, choice, [step for step in steps if isinstance(step, Transfer)])
    assert_computes_every_operation_once(scenario, steps)


def assert_moves_every_byte_once(scenario: OpCase, choice: OpChoice, transfers: Sequence[Transfer]) -> None:
    n, moved, times = scenario.num_ranks, scenario.shape.moved, TIMES[scenario.shape.pattern]
    pieces = 1 if template_named(choice.template).cut is Cut.SHARD else choice.chunks // n

    assert moved is not None
    assert len(transfers) == times * (n - 1) * pieces
    elements = sum(step.region.rows.size * step.region.cols.size for step in transfers)
    assert elements * moved.dtype.bytes_of(1) == times * moved.num_bytes // n * (n - 1)
    for peer in range(1, n):
        to_peer = [step.region.rows.size * step.region.cols.size for step in transfers if step.peer == peer]
        assert len(to_peer) == times * pieces and set(to_peer) == {moved.rows // n * moved.cols // pieces}


def assert_computes_every_operation_once(scenario: OpCase, steps: Sequence[Step]) -> None:
    kernels = [stage.gemm for stage in scenario.shape.stages]
    groups = [step for step in steps if isinstance(step, TileGroup)]
    flops = sum(2 * r.rows.size * r.cols.size * group.k.size for group in groups for r in group.regions)
    assert flops == sum(gemm.flops for gemm in kernels if gemm is not None)
    reduced = sum(s.region.rows.size * s.region.cols.size for s in steps if isinstance(s, Reduction))
    moved, sums = scenario.shape.moved, scenario.shape.pattern.sums
    assert reduced == (moved.rows * moved.cols // scenario.num_ranks if sums and moved is not None else 0)


@pytest.mark.parametrize("pattern", [Pattern.GEMM, Pattern.KERNEL])
def test_a_lone_kernel_is_one_step(pattern: Pattern) -> None:
    scenario = scenarios_of(pattern)[0]

    (step,) = build_op_plan(scenario, OpChoice("serial", 1, DMA7)).steps

    assert isinstance(step, TileGroup) and step.after == () and len(step.regions) == 1


@pytest.mark.parametrize(
    ("template", "kernels"),
    [
        ("serial", 1),
        ("shard_p2p", 8),
        ("uniform_fused_1d", 4),
        ("hetero_fused_1d", 1 + 4),
        ("hetero_unfused_1d", 1 + 4 * 7),
        ("uniform_fused_2d", 4),
    ],
)
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_number_of_kernels(make: object, template: str, kernels: int) -> None:
    scenario = ag_gemm(4096, 4096, 4096) if make is ag_gemm else gemm_rs(4096, 4096, 4096)
    chunks = 8 if template_named(template).cut is Cut.SHARD else 32

    steps = build_op_plan(scenario, OpChoice(template, chunks, DMA7, 4)).steps

    assert sum(isinstance(step, TileGroup) for step in steps) == kernels


def test_streams_are_dealt_in_turn_and_reductions_stay_apart() -> None:
    scenario = gemm_rs(4096, 4096, 4096)

    steps = build_op_plan(scenario, OpChoice("hetero_unfused_1d", 16, DMA7, 3)).steps

    assert [step.stream for step in steps if isinstance(step, TileGroup)][:7] == [0, 1, 2, 0, 1, 2, 0]
    assert {step.stream for step in steps if isinstance(step, Reduction)} == {3}


@pytest.mark.parametrize("template", ALL_TEMPLATES, ids=lambda template: template.name)
def test_patterns_it_does_not_schedule_are_refused(template: Template) -> None:
    def is_refused(pattern: Pattern) -> bool:
        scenario = scenarios_of(pattern)[0]
        chunks = scenario.num_ranks * (1 if template.cut is Cut.SHARD else 2)
        problem = reject_choice(scenario, OpChoice(template.name, chunks, EngineChoice(EngineKind.DMA, 1)))
        return problem is not None and "does not schedule" in str(problem)

    assert {pattern for pattern in Pattern if not is_refused(pattern)} == set(template.patterns)


def test_a_search_goes_through_the_baseline_and_then_templates_that_overlap() -> None:
    assert TEMPLATES[0] is BASELINE is ALL_TEMPLATES[0] and not BASELINE.overlaps
    assert len(TEMPLATES) > 1 and all(template.overlaps for template in TEMPLATES[1:])
    assert all(not template.explored for template in ALL_TEMPLATES if template not in TEMPLATES)


def test_a_template_is_refused_where_its_algorithm_cannot_work() -> None:
    all_reduce, gemm_ar = scenarios_of(Pattern.ALL_REDUCE)[1], scenarios_of(Pattern.GEMM_AR)[1]
    get = ExecutionOptions(direction=Direction.GET)
    cases = [
        (all_reduce, OpChoice("nvls", 4, EngineChoice(EngineKind.SM, 8)), "a switch that sums"),
        (all_reduce, OpChoice("serial", 4, DMA7, algorithm="hierarchical"), "grouped into nodes"),
        (all_reduce, OpChoice("ring", 4, DMA7, tactics=get), "cannot know when its peer has it"),
        (gemm_ar, OpChoice("uniform_fused_1d", 8, DMA7, tactics=get), "put by the rank that computes them"),
        (gemm_ar, OpChoice("uniform_fused_1d", 8, DMA7, algorithm="ring"), "takes no algorithm"),
    ]
    for scenario, choice, words in some(cases):
        with pytest.raises(ScheduleError, match=words):
            build_op_plan(scenario, choice)


@pytest.mark.parametrize("node", [2, 4])
def test_nodes_and_switches_of_the_fabric_are_used(node: int) -> None:
    """Ranks on one leaf or rail group are a node; a switch that copies and sums does so for nvls."""
    scenario = scenarios_of(Pattern.ALL_REDUCE)[2]
    nodes = replace(xgmi_switch(), topology=topologies.levels.FAT_TREE, layout=FatTree(node, 4))
    for fabric, choice in (
        (nodes, OpChoice("hierarchical", 16, DMA7)),
        (xgmi_switch(), OpChoice("nvls", 16, EngineChoice(EngineKind.SM, 8))),
    ):
        changed = replace(scenario, system=replace(scenario.system, fabric=fabric))
        schedule = build_op_plan(changed, choice)
        assert check_plan(changed, schedule) == ()
        assert schedule.symmetric == (choice.template == "nvls")


def xgmi_switch() -> Fabric:
    base = switch(xgmi())
    assert base.switch is not None
    return replace(base, switch=replace(base.switch, multicast=True, reduces=True))


def test_staging_counts_the_parts_that_are_put_down() -> None:
    """Each rank sums 7 parts of its block; at every step of a ring one; in one shot 7 of every block; SMs add."""
    scenario, block = scenarios_of(Pattern.ALL_REDUCE)[2], 16 << 20

    def staging(template: str, engine: EngineChoice = DMA7) -> int:
        return build_op_plan(scenario, OpChoice(template, 8, engine)).staging_bytes

    assert staging("direct") == 7 * block
    assert staging("ring") == 7 * block
    assert staging("one_shot") == 7 * 8 * block
    assert staging("ring", EngineChoice(EngineKind.SM, 8)) == 0


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (OpChoice("serial", 16, DMA7), "whole shards, 8 of them"),
        (OpChoice("uniform_fused_1d", 8, DMA7), "needs 16 chunks or more"),
        (OpChoice("hetero_fused_1d", 12, DMA7), "do not divide among 8 ranks"),
        (OpChoice("hetero_fused_1d", 24, DMA7), "1024 rows of a shard do not divide into 3"),
        (
            OpChoice("uniform_fused_2d", 2048, DMA7),
            "8192 columns do not divide into 256 equal chunks of a multiple of 64",
        ),
        (OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 15)), "MI300X has 14"),
        (OpChoice("serial", 8, EngineChoice(EngineKind.SM, 153)), "at most 152"),
        (OpChoice("sideways", 8, DMA7), "no template 'sideways'"),
    ],
)
def test_says_why_a_choice_is_illegal(choice: OpChoice, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build_op_plan(ag_gemm(8192, 28672, 8192), choice)


def test_copying_sms_are_taken_from_kernels_that_run_beside_them() -> None:
    scenario, engine = ag_gemm(8192, 28672, 8192), EngineChoice(EngineKind.SM, 32)

    assert build_op_plan(scenario, OpChoice("serial", 8, engine)).compute_sms == 304
    assert build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, engine)).compute_sms == 304 - 32
    assert build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, DMA7)).compute_sms == 304


def test_staging_in_figures() -> None:
    """Gathered rows of 7 ranks, 16 MiB each; partial sums sent and received; fp32 sums where k is cut."""
    ag, rs = ag_gemm(8192, 28672, 8192), gemm_rs(8192, 8192, 28672)

    assert staging_bytes(ag, slices_inner=False) == 7 * 16 << 20
    columns = template_named("uniform_fused_2d")
    assert slices_inner(ag, columns) and not slices_inner(rs, columns)
    assert staging_bytes(ag, slices_inner=True) == (7 * 16 << 20) + 8192 * 3584 * 4
    assert staging_bytes(rs, slices_inner=False) == (8 + 7) * 16 << 20
    assert staging_bytes(lone_gemm(256, 256, 256), slices_inner=False) == 0
    assert staging_bytes(lone_gather(256, 256), slices_inner=False) == 0
    assert staging_bytes(lone_scatter(8192, 8192), slices_inner=False) == 7 * 16 << 20


@pytest.mark.parametrize(
    ("template", "pattern"),
    [
        (template, pattern)
        for template in ALL_TEMPLATES
        for pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A_GEMM)
        if template.has("streams") and pattern in template.patterns
    ],
    ids=lambda each: str(each.value if isinstance(each, Pattern) else each.name),
)
def test_sums_and_second_kernels_are_in_streams_that_a_plan_can_say(template: Template, pattern: Pattern) -> None:
    scenario = scenarios_of(pattern)[1]
    pieces = 32 if template.cuts_shards else 1
    choice = OpChoice(template.name, pieces * scenario.num_ranks, DMA7, MAX_STREAMS)

    schedule = build_op_plan(scenario, choice)

    streams = {step.stream for step in schedule.steps if isinstance(step, TileGroup | Reduction)}
    assert max(streams) < MAX_STREAMS
    assert check_plan(scenario, schedule) == ()
