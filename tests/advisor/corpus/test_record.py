"""Records: every simulated plan of a search, each as an expression that builds it again."""

import pytest

from magus.advisor.training.families import draw
from magus.advisor.training.record import Record, record_of
from magus.compiler.resolve.schedules.from_text import resolve_schedule


@pytest.fixture(scope="module")
def record() -> Record:
    return record_of(draw(1, 3))


@pytest.mark.slow
def test_a_record_has_every_plan_once_with_its_times(record: Record) -> None:
    expressions = [plan.expression for plan in record.plans]

    assert len(set(expressions)) == len(expressions) > 20
    assert record.baseline in expressions
    assert all(plan.ticks >= record.bound_ticks > 0 and plan.estimate_ticks > 0 for plan in record.plans)


@pytest.mark.slow
def test_plans_are_built_again_from_their_expressions(record: Record) -> None:
    scenario = draw(1, 3).scenario

    assert record.plans
    for plan in record.plans:
        assert resolve_schedule(scenario, plan.expression).expression == plan.expression


@pytest.mark.slow
def test_execution_options_are_tried_together(record: Record) -> None:
    assert any("ll128" in plan.expression and "persistent" in plan.expression for plan in record.plans)
