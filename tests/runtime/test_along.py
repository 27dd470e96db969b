"""A GEMM that is cut along an all_to_all is exact with real data, and a wait that is left out is found."""

import pytest

from magus.compiler.ir import Choice, GraphChoice, GraphScenario, OpMode
from magus.runtime import Outcome, carry_out
from tests.helpers.scenarios.exchange import CASES, DMA, along, exchange, named
from tests.helpers.scenarios.mlp_backward import plan_of_layers
from tests.runtime.test_wrong_layers import dropped, follows_anyhow, last_run, side_by_side


def layers_of(scenario: GraphScenario) -> int:
    return min(2, scenario.graph.num_layers)


@pytest.mark.parametrize(("kind", "choice"), CASES, ids=named)
def test_all_cuts_are_exact(kind: str, choice: Choice) -> None:
    scenario = exchange(kind)
    graph, plan = plan_of_layers(scenario, along(choice), layers_of(scenario))

    report = carry_out(scenario.system, graph, plan, seeds=(0, 1))

    assert report.exact, report.runs[-1].sentences


@pytest.mark.parametrize("kind", ["below", "beside"])
def test_whole_it_takes_all_that_lands(kind: str) -> None:
    """Also what lies side by side: without the wait for copies, they are missed."""
    scenario = exchange(kind)
    whole = GraphChoice("whole", (OpMode("y", Choice("uniform_fused_1d", 16, DMA)),))
    graph, plan = plan_of_layers(scenario, whole, 1)

    assert carry_out(scenario.system, graph, plan).exact


@pytest.mark.parametrize("kind", ["below", "beside"])
def test_a_wait_that_is_left_out_is_found(kind: str) -> None:
    scenario = exchange(kind)
    graph, plan = plan_of_layers(scenario, along(Choice("hetero_fused_1d", 8, DMA)), layers_of(scenario))
    plan = side_by_side(plan)
    assert last_run(scenario, graph, plan).outcome is Outcome.EXACT

    cases = [case for case in dropped(plan) if case[0].op.startswith("y_gemm")]
    runs = [last_run(scenario, graph, without) for _, _, without in cases]
    implied = [follows_anyhow(scenario, plan, without) for _, _, without in cases]

    assert implied.count(False) >= 6 > implied.count(True)
    assert [run.outcome is Outcome.EXACT for run in runs] == implied
