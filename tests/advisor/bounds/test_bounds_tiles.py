"""The bound against stores from tiles, with sums by the kernel or where the partial ones land, and against pulls."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler.ir import (
    Direction,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Reduction,
    TileGroup,
    Transfer,
    Wait,
    WaitPer,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.knobs.engine import tiles_engine
from magus.compiler.templates import ALL_TEMPLATES
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from magus.simcore.program.program import RunOutcome
from tests.helpers.marks import first
from tests.helpers.scenarios.drawn import draw_scenario

PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A, Pattern.A2A_GEMM)
PER_TILE = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)


def with_memory(scenario: OpCase, rate: int) -> OpCase:
    """``scenario`` on memories of ``rate`` bytes per second."""
    hbm = replace(scenario.gpu.hbm, achieved_bytes_per_s=rate, peak_bytes_per_s=rate)
    return replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, hbm=hbm)))


def adding_where_it_lands(scenario: OpCase, schedule: OpPlan) -> OpPlan:
    """``schedule`` without its sums: partial sums add where they land."""
    steps = tuple(
        replace(step, reduce=True) if isinstance(step, Transfer) else step
        for step in schedule.steps
        if not isinstance(step, Reduction)
    )
    return build_op_plan(scenario, WrittenPlan(schedule.engine, steps, tactics=schedule.tactics), "landing")


def _straight(schedule: OpPlan) -> bool:
    """Whether partial sums go to their owner at once."""
    groups = {step.name for step in schedule.steps if isinstance(step, TileGroup)}
    return all(groups.issuperset(step.after) for step in schedule.steps if isinstance(step, Transfer))


def stored(scenario: OpCase) -> Iterator[OpPlan]:
    """Schedules of all templates whose tiles store or pull."""
    engine, pulls = tiles_engine(scenario.gpu), scenario.shape.pattern.consumes
    options = replace(PER_TILE, direction=Direction.GET) if pulls else PER_TILE
    for template in ALL_TEMPLATES:
        for pieces in (1, 2):
            choice = OpChoice(template.name, pieces * scenario.num_ranks, engine, 1, options)
            if scenario.shape.pattern in template.patterns and reject_choice(scenario, choice) is None:
                schedule = build_op_plan(scenario, choice)
                yield schedule
                if scenario.shape.pattern is Pattern.GEMM_RS and _straight(schedule):
                    yield adding_where_it_lands(scenario, schedule)


@pytest.mark.parametrize("seed", first(range(12), 1))
@pytest.mark.parametrize("pattern", first(PATTERNS, 1))
def test_no_stores_or_pulls_of_tiles_beat_the_bound(pattern: Pattern, seed: int) -> None:
    rng = random.Random(f"tiles {seed}")
    drawn = draw_scenario(rng, pattern)
    ratios = []
    for scenario in (drawn, with_memory(drawn, 10**11)):
        bound = lower_bound(scenario, (EngineKind.SM,)).ticks
        for schedule in stored(scenario):
            assert check_plan(scenario, schedule) == ()
            result = simulate_op(scenario, schedule, unit_bytes=rng.choice((512, 4096, 16384)))
            assert result.outcome is RunOutcome.DONE
            ratios.append(result.makespan_ticks / bound)

    assert ratios
    assert min(ratios) >= 1
