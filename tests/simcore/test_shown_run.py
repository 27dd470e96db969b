"""What is shown of a run: the parts of a graph, whose steps and waits are found by the names in the timeline."""

import pytest

from magus.simcore.figures.result import IntervalKind
from tests.helpers.scenarios.graph_runs import ONE_LAYER, SCHEDULES, graph_run

pytestmark = pytest.mark.usefixtures("compiled_core")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_interval_is_a_step_of_its_part(schedule: str) -> None:
    run = graph_run(schedule)
    intervals = run.result.timeline.of_rank(0)

    assert intervals
    assert all(each.name.startswith(run.part_of(0, each.name).prefix) for each in intervals)
    assert {each.op for each in run.parts} == {op.name for op in run.ops}
    found = [run.step_of(0, each.name) for each in intervals if each.kind is not IntervalKind.COMM]
    assert None not in found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_flows_lead_forward_in_time_and_between_ops(schedule: str) -> None:
    run = graph_run(schedule)
    flows = run.flows(0)

    assert flows
    assert all(flow.transfer.start_ticks <= flow.waiter.end_ticks for flow in flows)
    between = {
        (run.part_of(0, flow.transfer.name).op, run.part_of(0, flow.waiter.name).op)
        for flow in flows
        if flow.path == ()
    }
    assert {("u_norm", "u"), ("u", "y"), ("y", "y_add"), ("y_add", "u_norm@2")} <= between


def test_of_layers_that_repeat_one_within_is_looked_at_first() -> None:
    run = graph_run("pairs")
    start, end = run.shown_span

    assert run.layers == 40 and run.num_simulated == 5 and run.period_ticks is not None
    assert 0 < start < end < run.result.makespan_ticks
    assert run.makespan_ticks == run.result.makespan_ticks + 35 * run.period_ticks
    one = graph_run("pairs", ONE_LAYER)
    assert one.shown_span == (0, one.result.makespan_ticks) == (0, one.makespan_ticks)
