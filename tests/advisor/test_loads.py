"""Bounds, estimates and advice where ranks send differently."""

import random

import pytest

from magus.advisor import AdviceOptions, Advisor, lower_bound
from magus.advisor.bounds.link_loads import least_traffic
from magus.advisor.estimate.makespan import estimate_ticks
from magus.compiler import compile_text
from magus.compiler.ir import Direction, Scenario
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.tui.text.ops import scenario_line
from tests.helpers.marks import thinned
from tests.helpers.scenarios.loads import KINDS, drawn, legal_choices, scenario_of, text_of
from tests.helpers.some import some

FABRICS = ("full_mesh(xgmi)", "ring(xgmi, both_ways=yes)", "torus(xgmi, shape=[2, 2])")


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", thinned(KINDS, 3))
@pytest.mark.parametrize("fabric", FABRICS)
def test_no_schedule_beats_the_bound(kind: str, fabric: str) -> None:
    for seed in range(2):
        table = drawn(random.Random(seed), ranks=4, rows=1024)
        text = text_of(kind, table).replace(FABRICS[0], fabric)
        scenario = compile_text(text).scenario().case
        bound = lower_bound(scenario).ticks
        for choice in some(legal_choices(scenario)):
            found = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=1024).makespan_ticks
            assert bound <= found, (seed, choice)


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_gets_is_that_of_the_rank_that_gets_most(kind: str) -> None:
    scenario = scenario_of(kind, drawn(random.Random(7), ranks=4, rows=1024))
    for choice in some(legal_choices(scenario)):
        schedule = build_op_plan(scenario, choice)
        estimate = estimate_ticks(scenario, schedule)
        assert estimate > 0
        if choice.tactics.direction is Direction.GET and choice.template == "serial":
            found = simulate_op(scenario, schedule).makespan_ticks
            assert estimate == pytest.approx(found, rel=0.1), choice


def test_traffic_is_counted_by_rank() -> None:
    table = ((8, 16, 40), (24, 24, 16), (0, 8, 56))
    moved = least_traffic(scenario_of("alone", table))

    assert moved is not None
    row_bytes = 64 * 2
    assert moved.into == tuple(row_bytes * rows for rows in (24, 24, 56))
    assert moved.out == tuple(row_bytes * rows for rows in (56, 40, 8))
    assert (moved.total, moved.busiest_bytes, moved.read) == (104 * row_bytes, 56 * row_bytes, 8 * row_bytes)


def test_a_hot_rank_is_advised_on() -> None:
    scenario = scenario_of("GEMM", ((128, 128, 128, 640),) * 4)

    advice = Advisor.load().recommend(Scenario.of_one(scenario), AdviceOptions(top=3, workers=1))

    assert advice.recommended.simulated_ticks is not None
    assert advice.bound is not None and advice.bound.ticks <= advice.recommended.simulated_ticks


def test_the_line_that_says_what_is_requested_names_the_rank() -> None:
    hot = scenario_of("GEMM", ((128, 128, 128, 640),) * 4)

    assert "2560 x 64 x 64 at rank 3, which gets most, on 4 x" in scenario_line(hot)
    assert scenario_line(scenario_of("alone", hot.shape.loads)) == "w: all_to_all on 4 x MI300X, full mesh"


def test_memory_is_that_of_the_rank_that_gets_most() -> None:
    hot = scenario_of("GEMM", ((128, 128, 128, 640),) * 4)
    schedule = build_op_plan(hot, next(iter(legal_choices(hot))))

    assert schedule.staging_bytes >= 3 * 640 * 64 * 2
