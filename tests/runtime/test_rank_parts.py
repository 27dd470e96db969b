"""Collectives whose rows do not divide among the ranks, carried out with real data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.ir import Choice, EngineChoice, EngineKind, Scenario
from magus.compiler.planning.build import build_schedule, reject_choice
from magus.compiler.templates import ALL_TEMPLATES
from magus.runtime import Outcome, carry_out
from tests.helpers.marks import examples
from tests.helpers.plans.alone import alone
from tests.helpers.scenarios.mlp_backward import plan_of_layers
from tests.helpers.scenarios.rank_parts import KINDS, scenario_of
from tests.helpers.some import some

LAYER = """mgs 1
use "nvidia/h100"
system node { gpus RANKS x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on node {
  x   = tensor bf16[ROWS, 1024]
  wup = tensor bf16[1024, 64 * RANKS] shard cols
  wdn = tensor bf16[64 * RANKS, 1024] shard rows
  u   = gemm(norm(x), wup)
  y   = add(x, all_reduce(gemm(gelu(u), wdn)))
  repeat 2 y as x
}
schedule cut for layer { y = pipelined(chunks=2 * RANKS, engine=sm(8)) }
schedule halves for layer { apart y by sm(8) }
schedule added for layer { apart y by sm(8); seams rows }
"""


def outcomes(scenario: Scenario, choice: Choice) -> set[Outcome]:
    report = carry_out(*alone(scenario, build_schedule(scenario, choice)), seeds=range(1))
    return {run.outcome for run in report.runs}


def choices_of(scenario: Scenario) -> list[Choice]:
    n, engines = scenario.num_ranks, (EngineChoice(EngineKind.DMA, 2), EngineChoice(EngineKind.SM, 4))
    choices = (
        Choice(template.name, n * (2 if template.cuts_shards else 1), engine, template.default_streams)
        for template in ALL_TEMPLATES
        for engine in engines
    )
    return [choice for choice in choices if reject_choice(scenario, choice) is None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols", "ranks"), [(3, 512, 4), (4, 50, 3)])
def test_every_template_is_exact(kind: str, rows: int, cols: int, ranks: int) -> None:
    scenario = scenario_of(kind, rows, cols, ranks)

    for choice in some(choices_of(scenario)):
        assert outcomes(scenario, choice) == {Outcome.EXACT}, choice


@examples(20)
@given(st.integers(1, 30), st.integers(7, 200), st.integers(2, 7), st.sampled_from(KINDS))
def test_any_number_of_rows_is_exact(rows: int, cols: int, ranks: int, kind: str) -> None:
    scenario = scenario_of(kind, rows, cols, ranks)

    assert outcomes(scenario, Choice("serial", ranks, EngineChoice(EngineKind.SM, 4))) == {Outcome.EXACT}


@pytest.mark.parametrize(("rows", "ranks"), [(1, 4), (6, 4), (5, 3), (12, 6)])
@pytest.mark.parametrize("index", range(3))
def test_layers_are_exact(rows: int, ranks: int, index: int) -> None:
    found = compile_text(LAYER.replace("ROWS", str(rows)).replace("RANKS", str(ranks))).graph()
    assert found is not None
    report = carry_out(found.system, *plan_of_layers(found, found.schedules[index], 2), seeds=range(1))

    assert {run.outcome for run in report.runs} == {Outcome.EXACT}
