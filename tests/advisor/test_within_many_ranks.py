"""A limit of time holds for a thousand GPUs too: whatever was found by then, the baseline at least, is the answer."""

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer import stages
from magus.compiler import compile_text
from magus.compiler.ir import Scenario
from magus.tui.text.render import verdict_sentence
from tests.helpers.work import calls_of

MOST_CALLS = 6_000_000
"""Of Python functions, some seconds: without a limit these questions take minutes."""
_SYSTEM = 'use "nvidia/h100"\nsystem s { gpus 1024 x H100; fabric full_mesh(nvlink) }\nworkload w on s { '
_FAT_TREE = _SYSTEM.replace("full_mesh(nvlink)", "fat_tree(wide, link=nvlink, leaf=32, spines=16)").replace(
    "system", "switch wide extends nvswitch { ports 72 }\nsystem"
)
PAIR = "x = tensor bf16[65536, 8192] shard rows; v = tensor bf16[8192, 65536] shard cols; y = gemm(all_gather(x), v) }"
GATHER = "x = tensor bf16[65536, 8192] shard rows; y = all_gather(x) }"
SUM = "x = tensor bf16[65536, 8192]; y = all_reduce(x) }"
SUMS = (
    "x = tensor bf16[65536, 1024]; v = tensor bf16[1024, 8192] shard cols; u = tensor bf16[8192, 1024] shard rows;"
    "h = gemm(x, v); p = gemm(h, u); y = all_reduce(p); repeat 4 y as x }"
)
LAYER = "x = tensor bf16[65536, 8192] shard rows; n = norm(x); g = all_gather(n); repeat 4 n as x }"


@pytest.fixture(autouse=True)
def _late_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on where it is looked at, as long work does that asks whether to stop."""
    seconds = iter(range(10**9))
    monkeypatch.setattr(stages, "perf_counter", lambda: next(seconds) / 100)


@pytest.mark.quick(2)
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("workload", [PAIR, GATHER, SUM], ids=["pair", "all_gather", "all_reduce"])
def test_a_pair_is_answered_in_time(workload: str, verify: bool) -> None:
    scenario, found = compile_text(_SYSTEM + workload).scenario().case, []
    options = AdviceOptions(within_s=2.0, verify=verify)
    advisor = Advisor.load()

    assert calls_of(lambda: found.append(advisor.recommend(Scenario.of_one(scenario), options))) < MOST_CALLS
    (advice,) = found
    assert advice.interrupted and advice.serial.best_us > 0
    assert any("stopped after 2 s" in note for note in advice.notes)


@pytest.mark.slow
def test_a_thousand_ranks_that_see_different_networks_are_answered_by_estimates() -> None:
    """However fast the machine is; the answer says so, and what simulates."""
    rails = _SYSTEM.replace("full_mesh(nvlink)", "rails(nvswitch, link=nvlink, node=8, nic=nvlink)")
    scenario, found = compile_text(rails + GATHER).scenario(), []
    advisor = Advisor.load()

    assert calls_of(lambda: found.append(advisor.recommend(scenario, AdviceOptions()))) < 5 * MOST_CALLS
    (advice,) = found
    assert not advice.interrupted and advice.recommended.is_estimate
    assert any(mark.startswith("1,024 GPUs") and mark.endswith("--within 10min simulates") for mark in advice.marks)


def test_a_layer_that_cannot_be_simulated_in_time_has_an_estimate() -> None:
    (graph,) = compile_text(_SYSTEM + LAYER).workloads

    advice = Advisor.load().recommend(graph, AdviceOptions(within_s=0.0))
    whole = Advisor.load().recommend(graph, AdviceOptions(within_s=0.0)).serial

    assert advice.interrupted and advice.recommended is advice.serial and advice.serial.is_estimate
    assert advice.serial.best_us == whole.best_us > 0 and advice.searched == 0
    assert advice.marks[1].startswith("nothing was simulated in time")


def test_the_baseline_is_ranked_by_one_rank_if_all_take_too_long() -> None:
    scenario, found = compile_text(_FAT_TREE + SUM).scenario().case, []
    options = AdviceOptions(within_s=2.0, verify=False)
    advisor = Advisor.load()

    assert calls_of(lambda: found.append(advisor.recommend(Scenario.of_one(scenario), options))) < MOST_CALLS
    (advice,) = found
    assert [one.is_serial for one in advice.candidates] == [True] and advice.serial.best_us > 0
    assert "no other schedule was ranked in time" in verdict_sentence(advice)


def test_the_baseline_that_had_its_time_takes_none_beyond_the_limit() -> None:
    few = "\nexplore w { schedules serial; engine dma(8) }"  # so that most of the time is for the baseline
    scenario = compile_text(_FAT_TREE + SUM + few).scenario()
    advisor, over = Advisor.load(), [stages.lateness(60.0, more_s) for more_s in (0.0, 0.5)]

    advice = advisor.recommend(scenario, AdviceOptions(within_s=60.0, verify=False))

    assert advice.interrupted and [late() for late in over] == [True, False]


def test_so_is_each_op_of_a_layer() -> None:
    (graph,), found = compile_text(_FAT_TREE + SUMS).workloads, []
    advisor = Advisor.load()

    assert calls_of(lambda: found.append(advisor.recommend(graph, AdviceOptions(within_s=2.0)))) < MOST_CALLS
    (advice,) = found
    assert advice.interrupted and advice.serial.is_estimate and advice.serial.best_us > 0
