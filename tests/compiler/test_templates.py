"""Every template, on every pattern it schedules: no faults, the expected number of transfers, every byte once."""

import itertools

import pytest

from magus.compiler.expression import expression_of
from magus.compiler.plan import ScheduleError, build_schedule, slices_inner, staging_bytes, template_named, why_illegal
from magus.compiler.plan_check import check_plan
from magus.compiler.scenario import Pattern, Scenario
from magus.compiler.schedule import Choice, EngineChoice, EngineKind, Reduction, Schedule, TileGroup, Transfer
from magus.compiler.templates import TEMPLATES, Cut, Template
from tests.scenarios import ag_gemm, gemm_rs, lone_gather, lone_gemm, lone_scatter

DMA7 = EngineChoice(EngineKind.DMA, 7)
PIECES = (1, 2, 4, 16)
SHAPES = ((512, 2048, 1024, 2), (1536, 3072, 2048, 4), (8192, 8192, 8192, 8))


def scenarios_of(pattern: Pattern) -> list[Scenario]:
    match pattern:
        case Pattern.AG_GEMM:
            return [ag_gemm(m, n, k, ranks=ranks) for m, n, k, ranks in SHAPES]
        case Pattern.GEMM_RS:
            return [gemm_rs(m, n, k, ranks=ranks) for m, n, k, ranks in SHAPES]
        case Pattern.ALL_GATHER:
            return [lone_gather(m, k, ranks=ranks) for m, _, k, ranks in SHAPES]
        case Pattern.REDUCE_SCATTER:
            return [lone_scatter(m, k, ranks=ranks) for m, _, k, ranks in SHAPES]
        case Pattern.GEMM:
            return [lone_gemm(m, n, k) for m, n, k, _ in SHAPES]


CASES = [
    (scenario, Choice(template.name, scenario.num_ranks * pieces, DMA7, streams))
    for template in TEMPLATES
    for pattern in template.patterns
    for scenario in scenarios_of(pattern)
    for pieces in (PIECES if template.cut is not Cut.SHARD else (1,))
    for streams in sorted({1, template.default_streams})
    if pieces >= template.min_pieces
]


def name_of(value: object) -> str:
    if isinstance(value, Scenario):
        return f"{value.workload.pattern.value}-{value.num_ranks}"
    return expression_of(value) if isinstance(value, Choice) else str(value)


def transfers_in(schedule: Schedule) -> list[Transfer]:
    return [step for step in schedule.steps if isinstance(step, Transfer)]


@pytest.mark.parametrize(("scenario", "choice"), CASES, ids=name_of)
def test_has_no_faults(scenario: Scenario, choice: Choice) -> None:
    schedule = build_schedule(scenario, choice)

    assert check_plan(scenario, schedule) == ()
    assert schedule.expression == expression_of(choice)


@pytest.mark.parametrize(("scenario", "choice"), CASES, ids=name_of)
def test_moves_every_byte_once(scenario: Scenario, choice: Choice) -> None:
    n, moved = scenario.num_ranks, scenario.workload.moved
    pieces = 1 if template_named(choice.template).cut is Cut.SHARD else choice.chunks // n

    transfers = transfers_in(build_schedule(scenario, choice))

    if moved is None:
        assert transfers == []
        return
    assert len(transfers) == (n - 1) * pieces
    elements = sum(step.region.rows.size * step.region.cols.size for step in transfers)
    assert elements * moved.dtype.num_bytes == moved.num_bytes // n * (n - 1)
    for peer in range(1, n):
        to_peer = [step.region.rows.size * step.region.cols.size for step in transfers if step.peer == peer]
        assert len(to_peer) == pieces and set(to_peer) == {moved.rows // n * moved.cols // pieces}


@pytest.mark.parametrize(("scenario", "choice"), CASES, ids=name_of)
def test_computes_every_operation_once(scenario: Scenario, choice: Choice) -> None:
    gemm = scenario.workload.gemm

    steps = build_schedule(scenario, choice).steps

    groups = [step for step in steps if isinstance(step, TileGroup)]
    flops = sum(2 * r.rows.size * r.cols.size * group.k.size for group in groups for r in group.regions)
    assert flops == (gemm.flops if gemm is not None else 0)
    reduced = sum(s.region.rows.size * s.region.cols.size for s in steps if isinstance(s, Reduction))
    moved = scenario.workload.moved
    sums = moved is not None and scenario.workload.pattern.reduces
    assert reduced == (moved.rows * moved.cols // scenario.num_ranks if sums and moved is not None else 0)


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

    steps = build_schedule(scenario, Choice(template, chunks, DMA7, 4)).steps

    assert sum(isinstance(step, TileGroup) for step in steps) == kernels


def test_streams_are_dealt_in_turn_and_reductions_stay_apart() -> None:
    scenario = gemm_rs(4096, 4096, 4096)

    steps = build_schedule(scenario, Choice("hetero_unfused_1d", 16, DMA7, 3)).steps

    assert [step.stream for step in steps if isinstance(step, TileGroup)][:7] == [0, 1, 2, 0, 1, 2, 0]
    assert {step.stream for step in steps if isinstance(step, Reduction)} == {3}


@pytest.mark.parametrize(
    ("template", "pattern"), list(itertools.product(TEMPLATES, Pattern)), ids=lambda part: getattr(part, "name", None)
)
def test_patterns_it_does_not_schedule_are_refused(template: Template, pattern: Pattern) -> None:
    scenario = scenarios_of(pattern)[0]
    chunks = scenario.num_ranks * (1 if template.cut is Cut.SHARD else 2)

    problem = why_illegal(scenario, Choice(template.name, chunks, EngineChoice(EngineKind.DMA, 1)))

    assert (problem is None) == (pattern in template.patterns)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice("serial", 16, DMA7), "whole shards, 8 of them"),
        (Choice("uniform_fused_1d", 8, DMA7), "2 or more each"),
        (Choice("hetero_fused_1d", 12, DMA7), "do not divide among 8 ranks"),
        (Choice("hetero_fused_1d", 24, DMA7), "1024 rows of a shard do not divide into 3"),
        (
            Choice("uniform_fused_2d", 2048, DMA7),
            "8192 columns do not divide into 256 equal chunks of a multiple of 64",
        ),
        (Choice("serial", 8, EngineChoice(EngineKind.DMA, 15)), "MI300X has 14"),
        (Choice("serial", 8, EngineChoice(EngineKind.SM, 153)), "at most 152"),
        (Choice("sideways", 8, DMA7), "no template 'sideways'"),
    ],
)
def test_says_why_a_choice_is_illegal(choice: Choice, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build_schedule(ag_gemm(8192, 28672, 8192), choice)


def test_copying_sms_are_taken_from_kernels_that_run_beside_them() -> None:
    scenario, engine = ag_gemm(8192, 28672, 8192), EngineChoice(EngineKind.SM, 32)

    assert build_schedule(scenario, Choice("serial", 8, engine)).compute_sms == 304
    assert build_schedule(scenario, Choice("hetero_fused_1d", 8, engine)).compute_sms == 304 - 32
    assert build_schedule(scenario, Choice("hetero_fused_1d", 8, DMA7)).compute_sms == 304


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
