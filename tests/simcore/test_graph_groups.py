"""Experts in groups: exact on every core, with one rank for all, and in every layer."""

import pytest

from magus.compiler.planning.plan import build_plan, written_out
from magus.simcore import RunOptions
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.plan import lower
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.experts import experts

BY_DMA = "separate t, z by dma(3)"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "block", ["groups 4", "groups of 1, 5, 2; handoff whole; " + BY_DMA, "batches 2; groups 2; " + BY_DMA]
)
@pytest.mark.parametrize("routed", ["", "routing=power_law(1.2, seed=1)"])
def test_groups_equal_the_oracle(block: str, routed: str) -> None:
    scenario = experts(block, routed=routed)
    plan = build_plan(scenario.system, scenario.workload, scenario.schedules[0])
    whole = lower(scenario.system, plan, unit_bytes=8192, fold=False).program
    expected = Oracle(whole).run()

    assert 0 < whole.num_line_hops < 14_000
    for core in Core:
        assert differences(whole, run(whole, core=core), expected) == [], core
    folded = lower(scenario.system, plan, unit_bytes=8192).program
    assert folded.folded and run(folded).makespan_ticks == expected.makespan


@pytest.mark.slow
def test_layers_in_groups_repeat_to_the_tick() -> None:
    scenario = experts("groups 4; " + BY_DMA, layers=12)
    choice, options = scenario.schedules[0], RunOptions(observe=True)
    by_period = simulate_layers(scenario.system, scenario.workload, choice, unit_bytes=4096, options=options)
    written, again = written_out(scenario.workload, choice, 12)
    every = simulate_layers(scenario.system, written, again, unit_bytes=4096, options=options)

    assert by_period.num_simulated < 12 and not by_period.is_estimate
    assert by_period.total_ticks == every.total_ticks
