"""Systems of joined nodes: collectives in two steps, one rank for all while searching, and an end of the search."""

from dataclasses import replace
from functools import cache

import pytest

from magus.advisor import AdviceOptions, recommend_workload
from magus.advisor.layers import joint
from magus.advisor.layers import op_runs as alike
from magus.advisor.layers.joint import COARSE_BYTES, JointRuns, LayerSpace, space_of
from magus.advisor.layers.op_runs import AlikeRanks, copiers_of
from magus.advisor.layers.options import OpOptions
from magus.advisor.layers.recommend import NOT_SEARCHED, SHORTENED
from magus.advisor.layers.search import JointSearch
from magus.compiler.ir import UNCUT, EngineChoice, EngineKind, OpChoice, OpMode, Scenario, Schedule
from magus.compiler.planning.plan import build_plan
from magus.simcore.lower.plan import plan_period

from .test_recommend import scenario_of

pytestmark = pytest.mark.usefixtures("compiled_core")

RAILS = """
link ib { source nominal "400 Gb/s"; bandwidth 50 GB/s; achieved 42 GB/s @assumed; latency 2 us @assumed }
system pod { gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=ib) }
workload back on pod {
  x = tensor bf16[4096, 4096] shard rows
  u = tensor bf16[4096, 8192] shard rows
  w = tensor bf16[4096, 8192]
  d_w = all_reduce(gemm(x.t, u))
  y = gemm(u, w.t)
  repeat 12 y as x
}
"""

ONE_SIZE = RAILS + "explore back { chunks 16 }"
"""The same with pieces of one size: as many nodes and ranks, and a fraction of the candidates."""

SMALL = (
    RAILS.replace("8 x", "4 x")
    .replace("node=4", "node=2")  # runs take the square of the ranks
    .replace("4096", "256")
    .replace("8192", "512")
    .replace("repeat 12", "repeat 3")
)


@cache
def rails(text: str = ONE_SIZE) -> tuple[Scenario, AlikeRanks, LayerSpace]:
    scenario = scenario_of(text)
    ranks = AlikeRanks(scenario.system)
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    op_options = OpOptions(scenario.system, copier, COARSE_BYTES, scenario.explore, ranks=ranks)
    return scenario, ranks, space_of(op_options, UNCUT, scenario.workload)


def test_a_whole_collective_goes_within_nodes_and_across_where_that_is_faster() -> None:
    scenario, _, space = rails()
    apart = [option for option in space.op_options["d_w"] if option.is_separate]
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    limited = OpOptions(
        scenario.system, copier, COARSE_BYTES, scenario.explore, paced=False
    )  # a file that says how collectives go
    usual = next(option for option in limited.of(scenario.workload.op("d_w")) if option.is_separate)

    assert apart[0].mode.separate is not None and apart[0].mode.separate.template == "hierarchical"
    assert apart[0].total < usual.total


@pytest.mark.slow
def test_the_fastest_option_has_the_time_of_all_ranks() -> None:
    scenario, _, space = rails(RAILS)
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    exact = {
        option.mode: option
        for option in OpOptions(scenario.system, copier, COARSE_BYTES).of(scenario.workload.op("d_w"))
    }
    together = [option for option in space.op_options["d_w"] if not option.is_separate]
    best = min(together, key=lambda option: option.total)

    assert best.total == pytest.approx(exact[best.mode].total, rel=alike.MOST_ERROR)
    assert best.total == pytest.approx(
        min(option.total for option in exact.values() if not option.is_separate), rel=0.01
    )


def test_of_many_ranks_op_options_are_searched_in_which_one_stands_for_all() -> None:
    scenario, ranks, space = rails()
    first, *_ = op_options = space.op_options["d_w"]
    ring = OpChoice("pipelined", 16, EngineChoice(EngineKind.DMA, 8), algorithm="ring")
    unlike = replace(first, mode=OpMode("d_w", ring))
    quick = replace(space, op_options={**space.op_options, "d_w": (*op_options, unlike)}).quick(ranks)

    assert quick.op_options["d_w"] and unlike not in quick.op_options["d_w"]
    assert replace(space, op_options={**space.op_options, "d_w": (unlike,)}).quick(ranks).op_options["d_w"] == (unlike,)
    for option in quick.op_options["d_w"]:
        plan = build_plan(scenario.system, scenario.workload, Schedule("one", (option.mode,)), 1)
        assert plan_period(scenario.system, plan, alike=True) == 1 < plan_period(scenario.system, plan)


def test_what_was_not_searched_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_of(SMALL + "explore back { chunks 4 }")
    full = recommend_workload(scenario, AdviceOptions(bespoke=0))
    monkeypatch.setattr(alike, "LARGE", 4)
    few = recommend_workload(scenario, AdviceOptions(bespoke=0))

    assert not any(NOT_SEARCHED.format("SMs") in mark for mark in full.marks)
    assert any(NOT_SEARCHED.format("SMs") in mark and mark.startswith("4 GPUs") for mark in few.marks)
    assert few.searched < full.searched
    assert few.recommended.ticks <= min(each.ticks for each in few.candidates if each.result is not None) * 1.01


def test_a_search_ends_when_it_has_taken_what_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_of(SMALL + "explore back { engine dma(3); chunks 4 }")
    whole = JointSearch(scenario, JointRuns(scenario.system, scenario.workload))
    whole.run()
    assert not whole.runs.is_spent
    monkeypatch.setattr(joint, "SEARCH_EFFORT", 1)
    runs = JointRuns(scenario.system, scenario.workload)
    search = JointSearch(scenario, runs)
    search.run()

    assert runs.is_spent
    assert runs.num_runs < whole.runs.num_runs
    assert set(search.known) == set(whole.known)  # what people have is simulated all the same
    assert SHORTENED in recommend_workload(scenario, AdviceOptions()).marks
