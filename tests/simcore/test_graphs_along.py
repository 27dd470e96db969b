"""A GEMM that is cut along an all_to_all takes as long as the second kernel of a pair, in layers too."""

from dataclasses import replace

import pytest

from magus.compiler.ir import Op, OpCase, OpChoice, OpMode, Schedule, Workload
from magus.compiler.planning.plan import build_plan
from magus.simcore import RunOptions, simulate
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.scenarios.exchange import ADDED_BESIDE, CASES, DMA, along, as_pair, both, exchange, named

pytestmark = pytest.mark.usefixtures("compiled_core")

UNIT = 1024
SHARED_STREAMS = ("uniform_fused_1d", "uniform_fused_2d")
"""In a pair the second kernel has a stream of its own, and begins before the last of the first ends."""


def ticks(scenario: OpCase, graph: Workload, choice: Schedule) -> int:
    plan = build_plan(scenario.system, graph, choice)
    options = RunOptions(loads=False)
    return simulate(scenario.system, plan, unit_bytes=UNIT, options=options).makespan_ticks


@pytest.mark.parametrize(("kind", "choice"), [case for case in CASES if case not in ADDED_BESIDE], ids=named)
def test_it_takes_as_long_as_in_a_pair(kind: str, choice: OpChoice) -> None:
    pair = as_pair(kind)

    together = ticks(pair, Workload("p", "", (Op("p", pair.shape),)), Schedule("p", (OpMode("p", choice),)))
    apart = ticks(pair, both(kind), along(choice))

    if choice.template in SHARED_STREAMS or choice.streams > 1:
        assert apart == pytest.approx(together, rel=0.08)
    else:
        assert apart == together


def test_it_begins_before_all_has_arrived() -> None:
    scenario = exchange("below")
    times = simulate(
        scenario.system, build_plan(scenario.system, both("below"), along(OpChoice("uniform_fused_1d", 8, DMA)))
    )

    assert times.op("y_gemm").begin_ticks < times.op("y").end_ticks < times.op("y_gemm").end_ticks


def test_layers_by_period_are_those_one_by_one() -> None:
    scenario, choice = exchange("below"), along(OpChoice("hetero_fused_1d", 8, DMA))
    repeat = scenario.workload.repeat
    assert repeat is not None
    graph = replace(scenario.workload, repeat=replace(repeat, count=12))

    found = simulate_layers(scenario.system, graph, choice, unit_bytes=4096)
    direct = simulate(scenario.system, build_plan(scenario.system, graph, choice, 12), unit_bytes=4096).makespan_ticks

    assert found.num_simulated < 12
    assert (found.total_ticks, found.is_estimate) == (direct, False)
