"""What is shown of a run: the parts of a graph, whose steps and waits are found by the names in the timeline."""

import pytest

from magus.compiler.ir import OpChoice
from magus.simcore import run_of
from magus.simcore.figures.result import IntervalKind
from magus.simcore.shown_run import op_times
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.scenarios.exchange import DMA, along, exchange
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

    assert run.result.layers == 40 and run.result.num_simulated == 5 and run.result.period_ticks is not None
    assert 0 < start < end < run.result.makespan_ticks
    assert run.makespan_ticks == run.result.makespan_ticks + 35 * run.result.period_ticks
    one = graph_run("pairs", ONE_LAYER)
    assert one.shown_span == (0, one.result.makespan_ticks) == (0, one.makespan_ticks)


def test_copies_that_another_op_waits_for_flow_to_it() -> None:
    """A GEMM that is cut along an all_to_all: three copies to each kernel, and what the rank made itself."""
    scenario = exchange("below")
    choice = along(OpChoice("uniform_fused_1d", 8, DMA))
    result = simulate_layers(scenario.system, scenario.workload, choice, unit_bytes=8192)

    run = run_of(scenario, result, choice)
    flows = [flow for flow in run.flows(1) if flow.waiter.name.startswith("y_gemm.")]

    copies = {(flow.issuer, flow.transfer.name, flow.waiter.name) for flow in flows if flow.path}
    assert copies == {
        ((1 - peer) % 4, f"y.x{piece}_{peer}", f"y_gemm.g{piece}") for piece in (0, 1) for peer in (1, 2, 3)
    }
    assert {flow.transfer.name for flow in flows if not flow.path} == {"y.g0", "y.g1"}
    assert all(flow.transfer.end_ticks <= flow.waiter.end_ticks for flow in flows)
    assert {each.span.schedule for each in op_times(run) if each.name == "y_gemm"} == {
        "chained to uniform_fused_1d(chunks=8, engine=dma(3))"
    }
