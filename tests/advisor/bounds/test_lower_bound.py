"""No simulated schedule beats the lower bound: not templates, not plans written out, at any granularity."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magus.advisor.bounds.copy_modes import BoundCase, copy_modes_of, divisions_of, served_ticks
from magus.advisor.bounds.kernels import KernelClass, kernel_limits, least_ratios
from magus.advisor.bounds.link_loads import least_traffic
from magus.advisor.bounds.lower_bound import lower_bound, quick_bound_ticks
from magus.advisor.bounds.terms import CHEAP, TERMS
from magus.advisor.solver import enumerate_space
from magus.compiler.ir import (
    SPLITS,
    TICKS_PER_US,
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    Explore,
    Fabric,
    GemmShape,
    Gpu,
    IndexRange,
    Link,
    NamedSchedule,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Region,
    Step,
    TileGroup,
    Transfer,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan, expression_of, options_from, reject_choice
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.kernels.dispatch import least_sm_ticks
from magus.simcore.kernels.gemm import gemm_work, ticks_for
from magus.simcore.lower.collective import with_fastest_links
from magus.simcore.program.program import RunOutcome
from tests.helpers.marks import first, thinned
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.scenarios.drawn import SYSTEMS, draw_choices, draw_scenario, scenario_of
from tests.helpers.scenarios.scenarios import (
    ag_gemm,
    exploring,
    full_mesh,
    gemm_rs,
    h100,
    lone_gather,
    lone_gemm,
    lone_scatter,
    mi300x,
    nvlink,
    ring,
    switch,
    xgmi,
)
from tests.helpers.some import some

DMA, SM = EngineKind.DMA, EngineKind.SM
MACHINES: list[tuple[Gpu, Link]] = [(mi300x(), xgmi()), (h100(), nvlink())]
FABRICS: list[Callable[[Link], Fabric]] = [full_mesh, switch, ring, lambda link: ring(link, both_ways=False)]
FEW = Explore.of(engine=(EngineChoice(DMA, 7), EngineChoice(SM, 8), EngineChoice(SM, 64)))


def makespan(scenario: OpCase, schedule: OpPlan, unit_bytes: int, fold: bool = True) -> int:
    finished = run(lower_op(scenario, schedule, unit_bytes=unit_bytes, fold=fold).program)
    assert finished.outcome is RunOutcome.DONE
    return finished.makespan_ticks


OVERLAPPED = (Pattern.AG_GEMM, Pattern.GEMM_RS)
ALONE = (Pattern.GEMM, Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)


def random_scenario(rng: random.Random) -> OpCase:
    gpu, link = rng.choice(MACHINES)
    fabric, ranks = rng.choice(FABRICS)(link), rng.choice((2, 4, 8))
    m, n, k = (ranks * 64 * rng.choice((1, 2, 3, 8)) for _ in range(3))
    pattern = rng.choice((*OVERLAPPED, *OVERLAPPED, *ALONE))
    match pattern:
        case Pattern.AG_GEMM:
            scenario = ag_gemm(m, n, k, ranks=ranks, gpu=gpu, fabric=fabric)
        case Pattern.GEMM_RS:
            scenario = gemm_rs(m, n, k, ranks=ranks, gpu=gpu, fabric=fabric)
        case Pattern.ALL_GATHER:
            scenario = lone_gather(m, k, ranks=ranks, gpu=gpu, fabric=fabric)
        case Pattern.REDUCE_SCATTER:
            scenario = lone_scatter(m, k, ranks=ranks, gpu=gpu, fabric=fabric)
        case _:
            scenario = lone_gemm(m, n, k, gpu=gpu)
    return exploring(scenario, FEW)


@pytest.mark.parametrize("seed", first(range(24), 2))
def test_no_template_beats_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    scenario = random_scenario(rng)
    bounds = {kind: lower_bound(scenario, (kind,)).ticks for kind in EngineKind}
    choices = enumerate_space(scenario).choices

    for choice in some(rng.sample(choices, min(len(choices), 16))):
        ticks = makespan(scenario, build_op_plan(scenario, choice), rng.choice((4096, 16384)))
        assert ticks >= bounds[choice.engine.kind] >= lower_bound(scenario).ticks > 0, choice


@pytest.mark.quick(2)
@pytest.mark.parametrize("unit_bytes", [128, 256, 1024])
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_holds_at_fine_granularity(make: Callable[..., OpCase], unit_bytes: int) -> None:
    scenario = make(128, 256, 512, ranks=2, gpu=h100())
    bound = lower_bound(scenario).ticks

    for choice in some(enumerate_space(exploring(scenario, FEW)).choices[:6]):
        assert makespan(scenario, build_op_plan(scenario, choice), unit_bytes) >= bound


def reduced_in_place(scenario: OpCase, pieces: int) -> tuple[Step, ...]:
    """A reduce_scatter whose transfers add as they land, so that no kernel reduces."""
    moved, n = scenario.shape.moved, scenario.num_ranks
    assert moved is not None
    rows, steps = moved.rows // n, list[Step]()
    for peer in range(1, n):
        for piece in range(pieces):
            part = Region(
                peer, IndexRange(piece * rows // pieces, (piece + 1) * rows // pieces), IndexRange(0, moved.cols)
            )
            name = f"x{peer}_{piece}"
            steps.append(Transfer(name, Direction.PUT, part, peer, f"s_{name}", reduce=True))
    return tuple(steps)


def forwarded(scenario: OpCase) -> tuple[Step, ...]:
    """AG+GEMM around a ring: each shard is passed on to the right neighbour, which gets it from its left one."""
    moved, gemm, n = scenario.shape.moved, scenario.shape.gemm, scenario.num_ranks
    assert moved is not None and gemm is not None
    whole, inner = (IndexRange(0, moved.rows // n), IndexRange(0, moved.cols)), IndexRange(0, gemm.k)
    output = (whole[0], IndexRange(0, gemm.n))
    steps: list[Step] = [TileGroup("g0", (Region(0, *output),), inner)]
    for hop in range(1, n):
        after = (f"s{hop - 1}",) if hop > 1 else ()
        steps.append(Transfer(f"x{hop}", Direction.PUT, Region((1 - hop) % n, *whole), 1, f"s{hop}", after))
        steps.append(TileGroup(f"g{hop}", (Region(-hop % n, *output),), inner, (f"s{hop}",), stream=hop % 2))
    return tuple(steps)


def fetched(scenario: OpCase) -> tuple[Step, ...]:
    """AG+GEMM where each rank gets the shards, and computes halves of the inner dimension apart."""
    moved, gemm, n = scenario.shape.moved, scenario.shape.gemm, scenario.num_ranks
    assert moved is not None and gemm is not None
    rows, steps, half = IndexRange(0, moved.rows // n), list[Step](), gemm.k // 2
    blocks = tuple(Region(owner, rows, IndexRange(0, gemm.n)) for owner in range(n))
    for number, inner in enumerate((IndexRange(0, half), IndexRange(half, gemm.k))):
        gets = [
            Transfer(f"x{number}_{peer}", Direction.GET, Region(peer, rows, inner), peer, f"s{number}_{peer}")
            for peer in range(1, n)
        ]
        arrived = tuple(get.signal for get in gets)
        steps += [*gets, TileGroup(f"g{number}", blocks, inner, arrived, accumulate=number > 0)]
    return tuple(steps)


@pytest.mark.quick(3)
@pytest.mark.parametrize("fabric", thinned(range(len(FABRICS)), 3))
@pytest.mark.parametrize("machine", range(len(MACHINES)))
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_no_explicit_plan_beats_the_bound(ranks: int, machine: int, fabric: int) -> None:
    gpu, link = MACHINES[machine]
    ag = ag_gemm(512, 1024, 512, ranks=ranks, gpu=gpu, fabric=FABRICS[fabric](link))
    rs = lone_scatter(512, 1024, ranks=ranks, gpu=gpu, fabric=FABRICS[fabric](link))
    plans = [(rs, reduced_in_place(rs, pieces)) for pieces in (1, 4)] + [(ag, forwarded(ag)), (ag, fetched(ag))]

    for scenario, steps in some(plans):
        for engine in (EngineChoice(SM, 32), EngineChoice(DMA, 7)):
            schedule = build_op_plan(scenario, WrittenPlan(engine, steps), "plan")
            if engine.kind is DMA and scenario is rs:
                continue
            assert check_plan(scenario, schedule) == ()
            assert makespan(scenario, schedule, 8192) >= lower_bound(scenario, (engine.kind,)).ticks


@pytest.mark.quick(1)
@pytest.mark.parametrize("ranks", [3, 8])
def test_plans_whose_reads_hit_do_not_beat_the_bound(ranks: int) -> None:
    """Memory is scarce here: what forwards and sums what just arrived is faster than on a GPU where nothing hits."""
    gpu = replace(h100(), hbm=replace(h100().hbm, achieved_bytes_per_s=50 * 10**9))
    cold = replace(gpu, l2=replace(gpu.l2, instances=2))
    faster = 0
    for make in (lone_gather, lone_scatter):
        hot, without = (make(64 * ranks, 1024, ranks=ranks, gpu=each, fabric=switch(nvlink())) for each in (gpu, cold))
        engines = EngineChoice(SM, 32), EngineChoice(DMA, 7)
        choices = [OpChoice(name, ranks, engine) for name in ("direct", "ring") for engine in engines]
        schedules = [build_op_plan(hot, choice) for choice in choices]
        if make is lone_scatter:
            schedules.append(build_op_plan(hot, WrittenPlan(engines[0], reduced_in_place(hot, 1)), "plan"))
        for schedule in schedules:
            ticks, bound = makespan(hot, schedule, 4096), lower_bound(hot, (schedule.engine.kind,))
            assert bound.binding == "hbm"
            assert ticks >= bound.ticks
            faster += ticks < 0.95 * makespan(without, schedule, 4096)
    assert faster >= 5


@pytest.mark.parametrize(
    ("scenario", "choice", "most"),
    [
        (ag_gemm(8192, 28672, 8192, gpu=h100()), OpChoice("hetero_fused_1d", 32, EngineChoice(DMA, 7)), 0.10),
        (gemm_rs(8192, 8192, 28672, gpu=h100()), OpChoice("hetero_unfused_1d", 8, EngineChoice(DMA, 7), 4), 0.15),
        (lone_gather(16384, 8192), OpChoice("serial", 8, EngineChoice(DMA, 7)), 0.01),
        (lone_gather(16384, 8192, gpu=h100()), OpChoice("serial", 8, EngineChoice(DMA, 7)), 0.01),
        (lone_scatter(16384, 8192), OpChoice("serial", 8, EngineChoice(DMA, 7)), 0.15),
        (lone_gemm(8192, 3584, 8192, gpu=h100()), OpChoice("serial", 1, EngineChoice(DMA, 1)), 0.02),
        (lone_gemm(8192, 3584, 8192), OpChoice("serial", 1, EngineChoice(DMA, 1)), 0.10),
    ],
    ids=["ag_gemm", "gemm_rs", "gather-mesh", "gather-switch", "scatter", "gemm-h100", "gemm-mi300x"],
)
def test_is_close_to_good_schedules_of_large_problems(scenario: OpCase, choice: OpChoice, most: float) -> None:
    ticks = makespan(scenario, build_op_plan(scenario, choice), 65536)

    assert 1 <= ticks / lower_bound(scenario).ticks < 1 + most


@pytest.mark.slow
def test_names_the_binding_resource() -> None:
    assert lower_bound(ag_gemm(16384, 65536, 16384)).binding == "work"
    assert lower_bound(ag_gemm(16384, 1024, 16384)).binding == "links"
    slow = replace(h100(), hbm=replace(h100().hbm, achieved_bytes_per_s=50 * 10**9))
    assert lower_bound(lone_gather(1024, 1024, gpu=slow, fabric=switch(nvlink()))).binding == "hbm"
    assert lower_bound(lone_gather(1024, 1024)).binding == "links"


def test_the_bound_is_its_largest_term_and_carries_its_assumptions() -> None:
    bound = lower_bound(gemm_rs(4096, 4096, 4096))

    assert bound.ticks == max(term.ticks for term in bound.terms)
    assert [term.name for term in bound.terms] == ["work", "links", "engines", "hbm", "last_chunk"]
    assert len(bound.terms) == len(TERMS) and bound.assumptions


def test_fewer_engine_kinds_never_lower_the_bound() -> None:
    for scenario in (ag_gemm(512, 512, 512), gemm_rs(512, 512, 512), lone_scatter(512, 512)):
        both = lower_bound(scenario).ticks
        assert both == min(lower_bound(scenario, (kind,)).ticks for kind in EngineKind)
    with pytest.raises(ValueError, match="kind"):
        lower_bound(ag_gemm(512, 512, 512), ())


@pytest.mark.parametrize("seed", range(6))
def test_the_quick_bound_is_the_least_of_all_cases(seed: int) -> None:
    scenario = random_scenario(random.Random(seed))
    fastest = replace(scenario, system=with_fastest_links(scenario.system))
    cases = (
        BoundCase(fastest, mode, kernels, least_traffic(fastest, can_sum=mode.can_sum), division)
        for kind in EngineKind
        for mode in copy_modes_of(fastest, kind)
        for kernels in kernel_limits(fastest)
        for division in divisions_of(fastest.gpu, mode)
        if kernels.persistent or not mode.from_tiles
    )
    bounds = [
        max(
            case.kernels.start + least_sm_ticks(fastest) // case.division.most,
            *(term.ticks for term in (make(case) for make in CHEAP) if term is not None),
        )
        for case in cases
    ]

    least = quick_bound_ticks(scenario)
    assert least == max(1, min(bounds))
    for beside in (least - 1, least, 1.1 * least, 2 * max(bounds)):
        known = quick_bound_ticks(scenario, beside=beside)
        assert known == least if beside < least else least <= known <= beside


def test_what_is_split_along_k_is_not_below_the_bound_of_those_that_ask_for_it() -> None:
    """Without parts the bound is that of whole tiles, which such a kernel may undercut."""
    case = ag_gemm(512, 5120, 8192, gpu=h100(), fabric=switch(nvlink()))
    asked, tactics = exploring(case, Explore.of(split_k=(4,))), options_from({"kernel": "persistent", "split_k": 4})
    choice = OpChoice("serial", 8, EngineChoice(SM, 32), tactics=tactics)
    plan = build_op_plan(case, choice)
    ticks, bound, whole = makespan(case, plan, 1024), lower_bound(asked), lower_bound(case)

    assert (
        bound == lower_bound(case.covering(plan)) == lower_bound(replace(case, schedules=(NamedSchedule("s", choice),)))
    )
    assert quick_bound_ticks(asked) <= bound.ticks < whole.ticks < ticks


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    pattern=st.sampled_from([Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR]),
    rows=st.sampled_from([64, 512, 2048]),
    cols=st.sampled_from([256, 1024]),
    inner=st.sampled_from([4096, 8192, 32768]),
    split=st.sampled_from([1, 2, 4, 8]),
    template=st.sampled_from(["serial", "hetero_unfused_1d"]),
)
def test_no_plan_is_below_the_bound_that_covers_it(
    pattern: Pattern, rows: int, cols: int, inner: int, split: int, template: str
) -> None:
    case = scenario_of(pattern, SYSTEMS[0], 4, rows, cols, inner)
    tactics = options_from({"kernel": "persistent", "split_k": split})
    choice = OpChoice(template, 4, EngineChoice(SM, 16), tactics=tactics)
    if reject_choice(case, choice) is None:
        plan = build_op_plan(case, choice)
        assert lower_bound(case.covering(plan)).ticks <= makespan(case, plan, 4096)
        assert (case.covering(plan) == case) == (split == 1)


def test_parts_along_k_take_no_less_than_the_least_of_all() -> None:
    """Nothing of whole tiles of that inner dimension ends within 8 us."""
    gemm, sms = GemmShape(512, 640, 8192, DType.BF16), h100().sms
    least = least_ratios(h100(), gemm, KernelClass(sms, sms, persistent=True, splits=SPLITS))
    whole = least_ratios(h100(), gemm, KernelClass(sms, sms, persistent=True))
    works = [gemm_work(h100(), gemm, sms, static_order=True, split=split).body_ticks for split in SPLITS]

    assert 0 < least.least * 512 * 640 * 8192 <= sms * min(works) / TICKS_PER_US
    soon = np.array([8.0])
    assert np.isfinite(least.within(soon)).all() and np.isinf(whole.within(soon)).all()


def test_results_of_persistent_kernels_come_back_once_they_are_summed() -> None:
    case = scenario_of(Pattern.GEMM_AR, SYSTEMS[1], 4, 256, 256, 256)
    cases = (
        BoundCase(case, mode, kernels, least_traffic(case, can_sum=mode.can_sum), division)
        for mode in copy_modes_of(case, EngineKind.DMA)
        for kernels in kernel_limits(case)
        for division in divisions_of(case.gpu, mode)
        if kernels.persistent
    )

    for each in some([each for each in cases if each.sums_by_kernels]):
        assert each.after_kernels > each.kernels.sum_launch + each.first_byte_latency + each.last_byte_latency


def test_service_is_never_overestimated() -> None:
    rng = random.Random(1)

    for _ in range(2000):
        line, rate = rng.choice((32, 64, 128)), rng.randrange(10**9, 10**14)
        unit, units = line * rng.randint(1, 200), rng.randint(1, 1000)
        assert served_ticks(unit * units, rate, line) <= units * max(1, ticks_for(unit, rate))


def test_a_bound_in_figures() -> None:
    """Seven links of 46.5 GB/s bring 1 MiB each: 22.55 us, and 0.5 + 0.137 + 0.29 us before and 0.7 + 0.29 us after."""
    bound = lower_bound(lone_gather(4096, 1024), (SM,))

    assert bound.ticks / TICKS_PER_US == pytest.approx(22.55 + 0.927 + 0.99, abs=0.01)


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", first(range(4), 1))
@pytest.mark.parametrize("pattern", thinned(Pattern, 2), ids=lambda pattern: pattern.value)
def test_no_algorithm_and_no_tactics_beat_the_bound(pattern: Pattern, seed: int) -> None:
    """Templates, algorithms with sums in the switch among them, put and get, protocols, kernels, modes of engines."""
    rng = random.Random(f"{pattern} {seed}")
    scenario = draw_scenario(rng, pattern)
    bounds = {kind: lower_bound(scenario, (kind,)).ticks for kind in EngineKind}
    choices, done = draw_choices(rng, scenario, 4), 0

    for choice in choices:
        result = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=rng.choice((1024, 4096)))
        if result.outcome is RunOutcome.DONE:  # persistent kernels may leave no SM to copies that share theirs
            done += 1
            assert result.makespan_ticks >= bounds[choice.engine.kind] > 0, expression_of(choice)
    assert done


def test_an_all_reduce_without_a_switch_that_sums_moves_it_nearly_twice() -> None:
    """2 (n - 1) / n of 64 MiB over seven links, against 1 + 6 / 7 / 8 of it through a port of a switch that sums."""
    mesh = lower_bound(scenario_of(Pattern.ALL_REDUCE, SYSTEMS[1], 8, 8192, 4096, 4096))
    summed = lower_bound(scenario_of(Pattern.ALL_REDUCE, SYSTEMS[0], 8, 8192, 4096, 4096))
    rate = 46.5e9 * 7

    assert mesh.binding == summed.binding == "links"
    assert mesh.ticks / TICKS_PER_US == pytest.approx(2 * 7 / 8 * 2**26 / rate * 1e6, rel=0.02)
    assert summed.ticks / TICKS_PER_US == pytest.approx((1 + 6 / 7 / 8) * 2**26 / 375e9 * 1e6, rel=0.02)


def test_a_matrix_times_a_vector_is_no_gemm() -> None:
    scenario = lone_gemm(4096, 1, 4096, gpu=h100())
    schedule = build_op_plan(scenario, OpChoice("serial", 1, EngineChoice(DMA, 1)))

    assert 0 < lower_bound(scenario).ticks <= simulate_op(scenario, schedule, unit_bytes=1024).makespan_ticks
