"""What a seed draws: within its distribution, the same every time, of each rank by itself."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
    Direction,
    Distribution,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Late,
    OpCase,
    OpChoice,
    OpPlan,
    Reach,
    Shape,
    Straggler,
    Transfer,
    Variability,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import RunTooLarge, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.lower.variability import Perturbation, perturbation_of, perturbed
from magus.simcore.program.limits import HorizonError
from magus.simcore.program.program import MAX_HORIZON_TICKS
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import late_part, lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.scenarios import ag_gemm, h100, lone_gather, lone_scatter
from tests.helpers.some import some

UNIT = 8192
US = TICKS_PER_US
SKEW = Distribution(Shape.UNIFORM, (Fraction(0), Fraction(5 * US)))
JITTER = Distribution(Shape.NORMAL, (Fraction(2, 100),))


def varied(scenario: OpCase, variability: Variability) -> OpCase:
    return replace(scenario, system=replace(scenario.system, variability=variability))


@pytest.fixture
def scenario() -> OpCase:
    return ag_gemm(512, 1024, 1024, ranks=4)


@pytest.fixture
def schedule(scenario: OpCase) -> OpPlan:
    return build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, EngineChoice(EngineKind.DMA, 3)))


def test_known_draws() -> None:
    """PCG64 and the inverse of the distributions do not change from machine to machine or release to release."""
    drawn = Perturbation(Variability(SKEW, JITTER), seed=7)

    assert [drawn.start_ticks(rank) for rank in range(3)] == [25155166, 230012216, 100257073]
    assert [drawn.factor(rank, "g0") * 2**20 for rank in range(3)] == [1017446, 1058367, 1049944]


@pytest.mark.parametrize(
    ("shape", "arguments", "mean", "low", "high"),
    [
        (Shape.CONSTANT, (3,), 3.0, 3.0, 3.0),
        (Shape.UNIFORM, (1, 5), 3.0, 1.0, 5.0),
        (Shape.NORMAL, (2,), 2 * (2 / np.pi) ** 0.5, 0.0, 8.0),  # a skew is the absolute value
        (Shape.EXPONENTIAL, (2,), 2.0, 0.0, 75.0),
    ],
)
def test_skew_follows_its_distribution(
    shape: Shape, arguments: tuple[int, ...], mean: float, low: float, high: float
) -> None:
    skew = Distribution(shape, tuple(Fraction(argument * US) for argument in arguments))
    drawn = np.array([Perturbation(Variability(skew), seed).start_ticks(rank=2) for seed in range(2000)]) / US

    assert drawn.mean() == pytest.approx(mean, rel=0.05)
    assert low <= drawn.min() <= drawn.max() <= high


def test_jitter_is_relative_and_cut_off_at_four_deviations() -> None:
    factors = [float(Perturbation(Variability(jitter=JITTER), seed).factor(0, "g")) for seed in range(2000)]

    assert np.mean(factors) == pytest.approx(1.0, abs=0.002)
    assert np.std(factors) == pytest.approx(0.02, rel=0.05)
    assert 0.92 <= min(factors) <= max(factors) <= 1.08


def test_about_as_many_ranks_are_slow_as_it_says_and_all_their_kernels() -> None:
    slow = Perturbation(Variability(straggler=Straggler(Fraction(1, 5), Fraction(13, 10))), seed=1)
    factors = np.array([[float(slow.factor(rank, step)) for step in ("a", "b")] for rank in range(1000)])

    assert (factors[:, 0] == factors[:, 1]).all()
    assert (factors[:, 0] > 1).mean() == pytest.approx(0.2, abs=0.04)
    assert set(np.unique(factors)) == {1.0, round(1.3 * 2**20) / 2**20}


def test_ranks_and_steps_have_luck_of_their_own() -> None:
    drawn = Perturbation(Variability(SKEW, JITTER), seed=7)

    assert len({drawn.start_ticks(rank) for rank in range(50)}) == 50
    assert len({drawn.factor(rank, step) for rank in range(20) for step in ("a", "b")}) == 40


def test_without_a_seed_only_what_is_late_is_late(scenario: OpCase, schedule: OpPlan) -> None:
    plain = simulate_op(scenario, schedule, unit_bytes=UNIT)
    drawn_only = simulate_op(varied(scenario, Variability(SKEW, JITTER)), schedule, unit_bytes=UNIT)
    late = simulate_op(varied(scenario, Variability(SKEW, JITTER, late=(Late(1, 20 * US),))), schedule, unit_bytes=UNIT)

    assert drawn_only == plain
    assert late.makespan_ticks == plain.makespan_ticks + 20 * US  # all wait for what rank 1 sends last
    assert min(interval.start_ticks for interval in late.timeline.of_rank(1)) >= 20 * US
    assert min(interval.start_ticks for interval in late.timeline.of_rank(0)) == min(
        interval.start_ticks for interval in plain.timeline.of_rank(0)
    )
    assert late.ranks_simulated > 1 and plain.ranks_simulated == 1


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("template", ["serial", "hetero_fused_1d", "uniform_fused_2d"])
def test_data_of_a_rank_is_there_when_it_has_begun(scenario: OpCase, template: str, direction: Direction) -> None:
    """Rank 1 sends nothing before it begins, and nobody gets anything from it; others do not wait for it."""
    engine, pieces = EngineChoice(EngineKind.SM, 6), 4 if template == "serial" else 8
    schedule = build_op_plan(scenario, OpChoice(template, pieces, engine, tactics=ExecutionOptions(direction)))
    late = varied(scenario, Variability(late=(Late(1, 20 * US),)))
    lowered = late_part(late, schedule, UNIT)
    started = run(lowered.program).op_start

    for rank, step, work in some((ops.rank, ops.step, ops.work) for ops in lowered.steps):
        if isinstance(step, Transfer):
            waits = rank == 1 or (direction is Direction.GET and (rank + step.peer) % 4 == 1)
            assert (min(started[work]) >= 20 * US) == waits, (rank, step.name)


@pytest.mark.parametrize("make", [lone_gather, lone_scatter])
def test_what_a_switch_copies_or_sums_waits_for_all_ranks(make) -> None:  # type: ignore[no-untyped-def]
    """A sum reads the data of all ranks, and a copy to all writes to all of them."""
    node = make(512, 1024, ranks=4, gpu=h100())
    switch = node.system.fabric.switch
    assert switch is not None
    fabric = replace(node.system.fabric, switch=replace(switch, multicast=True, reduces=True))
    node = replace(node, system=replace(node.system, fabric=fabric, variability=Variability(late=(Late(1, 20 * US),))))
    schedule = build_op_plan(node, OpChoice("nvls", 4, EngineChoice(EngineKind.SM, 8)))
    lowered = late_part(node, schedule, UNIT)
    started = run(lowered.program).op_start
    to_all = [ops for ops in lowered.steps if isinstance(ops.step, Transfer) and ops.step.reach is Reach.ALL]

    assert {ops.rank for ops in to_all} == {0, 1, 2, 3}
    assert {ops.rank for ops in to_all if min(started[ops.work]) >= 20 * US} == {0, 1, 2, 3}


def test_a_constant_delay_of_all_ranks_moves_everything(scenario: OpCase, schedule: OpPlan) -> None:
    plain = simulate_op(scenario, schedule, unit_bytes=UNIT)
    skew = Distribution(Shape.CONSTANT, (Fraction(3 * US),))
    moved = simulate_op(varied(scenario, Variability(skew)), schedule, unit_bytes=UNIT, seed=5)

    assert moved.makespan_ticks == plain.makespan_ticks + 3 * US
    assert moved.compute_ticks == plain.compute_ticks


def test_slower_kernels_take_as_much_longer(scenario: OpCase, schedule: OpPlan) -> None:
    plain = lower_op(scenario, schedule, unit_bytes=UNIT, fold=False).program
    slow = Perturbation(Variability(straggler=Straggler(Fraction(1), Fraction(3, 2))), seed=0)
    found = perturbed(plain, slow, range(plain.num_ranks))
    held = plain.stage_hold_ticks > 0

    np.testing.assert_allclose(found.stage_hold_ticks[held], 1.5 * plain.stage_hold_ticks[held], rtol=1e-6)
    assert (found.op_setup_ticks == plain.op_setup_ticks).all()


def test_ranks_left_out_begin_as_before(scenario: OpCase, schedule: OpPlan) -> None:
    plain = lower_op(scenario, schedule, unit_bytes=UNIT, fold=False).program
    found = perturbed(plain, Perturbation(Variability(SKEW), seed=1), (0,))

    assert (found.op_release_ticks[plain.op_rank != 0] == 0).all()
    assert (found.op_release_ticks[plain.op_rank == 0] > 0).all()


def test_what_cannot_be_varied_is_refused(scenario: OpCase, schedule: OpPlan) -> None:
    with pytest.raises(ValueError, match="whole number from 0"):
        perturbation_of(varied(scenario, Variability(SKEW)).system, -1)
    folded = lower_op(scenario, schedule, unit_bytes=UNIT).program
    with pytest.raises(ValueError, match="fold=False"):
        perturbed(folded, Perturbation(Variability(SKEW), 0), (0,))
    plain = lower_op(scenario, schedule, unit_bytes=UNIT, fold=False).program
    endless = replace(plain, stage_hold_ticks=np.where(plain.stage_hold_ticks > 0, MAX_HORIZON_TICKS >> 4, 0))
    with pytest.raises(HorizonError):
        perturbed(endless, Perturbation(Variability(jitter=JITTER), 0), (0,))


def test_a_rank_that_begins_past_the_clock_is_refused_with_the_schedule(scenario: OpCase, schedule: OpPlan) -> None:
    late = varied(scenario, Variability(late=(Late(1, MAX_HORIZON_TICKS),)))

    with pytest.raises(RunTooLarge, match=r"^hetero_fused_1d\(.*simulated clock"):
        simulate_op(late, schedule, unit_bytes=UNIT)


def test_varied_programs_agree_with_the_oracle() -> None:
    scenario = ag_gemm(256, 256, 256, ranks=4)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 8, EngineChoice(EngineKind.SM, 6)))
    plain = lower_op(scenario, schedule, unit_bytes=4096, fold=False).program
    everything = Variability(SKEW, JITTER, Straggler(Fraction(1, 2), Fraction(2)), (Late(1, US),))
    for seed in range(3):
        program = perturbed(plain, Perturbation(everything, seed), range(4))
        assert differences(program, run(program), Oracle(program).run()) == []
