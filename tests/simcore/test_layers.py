"""Layers by their period equal layers one by one, tick for tick; where none shows all are simulated."""

from dataclasses import replace
from typing import Any

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import Plan, Scenario, System
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.simcore import Result, RunTooLarge, simulate
from magus.simcore import simulate_layers as layers
from magus.simcore.fold import run as fold_run
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.scenarios.mlp_backward import plain_backward, plain_text

SCHEDULES = """
schedule pairs for back { dh = hetero_fused_1d(chunks=8); dx = hetero_fused_1d(chunks=8); start xg with dx }
schedule late for back { separate dx, xg; order dh, dx, d_wdn, d_wup; start xg with dx; priority sums, d_wup low }
schedule ahead for back { stream 1 n }
schedule span for back {
  separate dh, dx, xg; order dh, d_wup, dx, xg, d_wdn; deferred d_wup; start xg with dx; priority sums
}
schedule far for back {
  dh = hetero_fused_1d(chunks=8); dx = hetero_fused_1d(chunks=8); xg = direct(chunks=16, engine=dma(1))
  order dh, dx, xg, d_wdn, d_wup; deferred d_wup, d_wdn; priority sums
}
"""


@pytest.fixture(scope="module")
def back() -> Scenario:
    return plain_backward(1024, "n = norm(h)\n  repeat 12 dx as dy", SCHEDULES)


def simulated(scenario: Scenario, schedule: str, count: int = 12) -> Result:
    repeat = scenario.workload.repeat
    assert repeat is not None
    graph = replace(scenario.workload, repeat=replace(repeat, count=count))
    choice = next(choice for choice in scenario.schedules if choice.name == schedule)
    return simulate_layers(scenario.system, graph, choice, unit_bytes=4096)


@pytest.mark.quick(2)
@pytest.mark.parametrize("schedule", ["pairs", "late", "span", "far"])
def test_by_period_is_as_one_by_one(back: Scenario, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulated(back, schedule)
    monkeypatch.setattr(layers, "FEWEST_LAYERS", 1000)
    every = simulated(back, schedule)

    assert found.num_simulated < 12 and found.period_ticks is not None
    rest = (12 - found.num_simulated) * found.period_ticks
    assert found.total_ticks == found.makespan_ticks + rest
    assert (every.num_simulated, every.period_ticks) == (12, None)
    assert every.total_ticks == found.total_ticks
    # The period of the last layers is that of the first few too.
    choice = next(choice for choice in back.schedules if choice.name == schedule)
    plan = build_plan(back.system, back.workload, choice, 12)
    assert simulate(back.system, plan, unit_bytes=4096).period_ticks == found.period_ticks


def test_a_derived_backward_pass_is_the_written_one_tick_for_tick(back: Scenario) -> None:
    forward = """
workload layer on hgx {
  x   = tensor bf16[1024, 1024] shard rows
  wup = tensor bf16[1024, 4096] shard cols
  wdn = tensor bf16[4096, 1024] shard rows
  h = gemm(all_gather(x), wup)
  y = reduce_scatter(gemm(h, wdn))
  repeat 12 y as x
}
workload derived on hgx { backward layer; keep h }
"""
    written = plain_text(1024, "repeat 12 dx as dy")
    graphs = {each.name: each for each in compile_text(written + forward).workloads}
    ticks = {
        name: simulate_layers(graphs[name].system, graphs[name].workload, SERIAL, unit_bytes=4096).total_ticks
        for name in ("derived", "back")
    }
    assert ticks["derived"] == ticks["back"]


@pytest.mark.slow
def test_what_lasts_into_the_layer_after_the_next_has_a_period(back: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last layers but the last, what is deferred runs otherwise than of all before."""
    assert simulated(back, "far").num_simulated == 10
    monkeypatch.setattr(fold_run, "DEPTHS", (1,))
    assert simulated(back, "far").period_ticks is None


def test_what_runs_ahead_has_no_period(back: Scenario) -> None:
    """Nothing holds up the norm, so that those of later layers begin earlier and earlier before theirs."""
    found = simulated(back, "ahead")

    assert (found.num_simulated, found.period_ticks) == (12, None)


def test_of_too_many_layers_without_a_period_the_last_stand_for_the_rest(
    back: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = simulated(back, "ahead")
    monkeypatch.setattr(layers, "MOST_OPS", 70)
    found = simulated(back, "ahead")

    assert found.is_estimate and (found.layers, found.num_simulated) == (12, 10)
    assert found.period_ticks == pytest.approx(every.total_ticks / 12, rel=0.02)
    assert found.total_ticks == pytest.approx(every.total_ticks, rel=0.005)
    assert not simulated(back, "late").is_estimate and not every.is_estimate


@pytest.mark.slow
def test_layers_that_take_too_much_effort_are_stood_for_by_those_that_were_run(back: Scenario) -> None:
    choice = next(choice for choice in back.schedules if choice.name == "ahead")
    every = simulated(back, "ahead")
    effort = layers.effort_of(simulated(back, "ahead", 5))
    found = [
        simulate_layers(back.system, back.workload, choice, unit_bytes=4096, most_effort=effort * number)
        for number in (1, 2, 3)
    ]

    assert [one.num_simulated for one in found] == [5, 10, 12]
    assert [one.is_estimate for one in found] == [True, True, False]
    for one in found:
        assert one.total_ticks == pytest.approx(every.total_ticks, rel=0.02)
    assert found[-1].total_ticks == every.total_ticks


def test_layers_too_large_for_one_run_too(back: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was simulated before is the answer, once something was."""
    every, run, limits = simulated(back, "ahead"), simulate, [10, 5, 4]

    def small(system: System, plan: Plan, **options: Any) -> Result:
        if plan.num_layers > limits[0]:
            raise RunTooLarge("too large")
        return run(system, plan, **options)

    monkeypatch.setattr(layers, "simulate", small)
    for _ in range(2):
        found = simulated(back, "ahead")
        assert found.is_estimate and found.num_simulated == limits.pop(0)
        assert found.total_ticks == pytest.approx(every.total_ticks, rel=0.02)
    with pytest.raises(RunTooLarge):
        simulated(back, "ahead")


def test_few_layers_are_simulated_one_by_one(back: Scenario) -> None:
    assert simulated(back, "late", 3).num_simulated == 3


@pytest.mark.slow
def test_eighty_layers(back: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    by_period = simulated(back, "late", 80)
    monkeypatch.setattr(layers, "FEWEST_LAYERS", 1000)

    assert simulated(back, "late", 80).total_ticks == by_period.total_ticks
    assert by_period.num_simulated < 12
