"""Many seeds: in any way they run, each has the result that it has alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    Late,
    OpCase,
    OpChoice,
    OpPlan,
    Straggler,
    Variability,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Result, plan_of, simulate_op, simulate_seeds
from tests.helpers.scenarios.fabrics import torus
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs
from tests.simcore.lower.test_variability import JITTER, SKEW, varied

UNIT = 8192
ALL = Variability(
    SKEW, JITTER, Straggler(JITTER.arguments[0] * 10, 1 + JITTER.arguments[0] * 15), (Late(1, TICKS_PER_US),)
)
SCENARIOS = [ag_gemm(512, 1024, 1024, ranks=4), gemm_rs(512, 1024, 1024, ranks=4, fabric=torus(2, 2))]


def apart(result: Result) -> Result:
    """Without the name of what ran it."""
    return replace(result, core="")


def seeded(scenario: OpCase, schedule: OpPlan, seeds: Sequence[int]) -> tuple[Result, ...]:
    plan = plan_of(scenario, schedule)
    return simulate_seeds(scenario.system, plan, seeds, name=scenario.name, unit_bytes=UNIT)


@pytest.mark.quick(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_seeds_together_and_alone(scenario: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = varied(scenario, ALL)
    schedule = build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, EngineChoice(EngineKind.DMA, 3)))
    alone = [simulate_op(scenario, schedule, unit_bytes=UNIT, seed=seed) for seed in range(5)]
    assert len({result.makespan_ticks for result in alone}) > 1

    for core in ("", "windows"):
        monkeypatch.setenv("MAGUS_ENGINE", core)
        together = seeded(scenario, schedule, range(5))
        assert [apart(result) for result in together] == [apart(result) for result in alone], core
        assert not core or {result.core for result in together} == {core}


def test_the_order_of_seeds_does_not_matter() -> None:
    scenario = varied(SCENARIOS[0], ALL)
    schedule = build_op_plan(scenario, OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3)))

    forwards = seeded(scenario, schedule, (3, 8, 5))
    backwards = seeded(scenario, schedule, (5, 8, 3))

    assert forwards == backwards[::-1]
    assert seeded(scenario, schedule, ()) == ()


@pytest.mark.parametrize("variability", [None, Variability(late=(Late(1, TICKS_PER_US),))])
def test_where_nothing_is_drawn_one_run_stands_for_all(variability: Variability | None) -> None:
    scenario = SCENARIOS[0] if variability is None else varied(SCENARIOS[0], variability)
    schedule = build_op_plan(scenario, OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3)))

    assert set(map(id, results := seeded(scenario, schedule, range(3)))) == {id(results[0])}
    assert results[0] == simulate_op(scenario, schedule, unit_bytes=UNIT, seed=1)
