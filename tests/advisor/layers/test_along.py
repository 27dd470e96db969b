"""Advice on a GEMM behind an all_to_all: what both take together is known, and what is cut along is found and said."""

from functools import cache

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.layers.joint import COARSE_BYTES, JointRuns, LayerSpace, space_of
from magus.advisor.layers.op_runs import copiers_of
from magus.advisor.layers.options import OpOptions, fastest_alone, fastest_with_next
from magus.advisor.layers.orders import IN_TURN, cut_as
from magus.advisor.layers.placement import small_changes
from magus.advisor.layers.recommend import recommend_workload
from magus.advisor.layers.timing import estimated_ticks
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, UNCUT, Scenario, Schedule
from magus.compiler.planning.build import schedule_block

pytestmark = pytest.mark.usefixtures("compiled_core")

TEXT = """mgs 1
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload chain on hgx {
  x = tensor bf16[8192, 1024]
  w = tensor bf16[1024, 4096]
  v = tensor bf16[4096, 1024]
  y = gemm(all_to_all(gemm(x, w)), v)
REST}
explore chain { engine dma(3); chunks 8, 16 }
"""


def scenario_of(rest: str = "  z = norm(y)\n") -> Scenario:
    return compile_text(TEXT.replace("REST", rest)).workloads[0]


@cache
def space() -> LayerSpace:
    scenario = scenario_of()
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    return space_of(OpOptions(scenario.system, copier, COARSE_BYTES), UNCUT, scenario.workload)


def cut(choice: Schedule) -> Schedule:
    return cut_as(space().workload, space().op_options, space().following, choice)


@pytest.mark.slow
def test_op_options_know_what_both_take() -> None:
    found, next_kernel = space().op_options["y"], space().kernels["y_gemm"]

    assert space().following == {"y": ("y_gemm",)}
    assert all(option.with_next == option.total + next_kernel for option in found if option.is_separate)
    assert fastest_with_next(found).with_next < fastest_alone(found).total + next_kernel
    assert all(option.with_next == 0 for name in ("y_gemm", "z") for option in space().op_options[name])


@pytest.mark.slow
def test_an_estimate_knows_what_is_cut_along() -> None:
    scenario = scenario_of()
    choice = cut(Schedule("p", order=("y", "y_gemm", "z")))

    simulated = JointRuns(scenario.system, scenario.workload).ticks(choice)

    assert choice.chained == ("y_gemm",)
    assert simulated is not None
    assert estimated_ticks(space(), choice) == pytest.approx(simulated, rel=0.05)


def test_small_changes_cut_along_or_not_and_only_what_is_cut() -> None:
    along = cut(Schedule("p", order=("y", "y_gemm", "z")))

    changes = list(small_changes(space().workload, space().op_options, space().following, along))

    assert any(not each.chained and each.modes == along.modes for each in changes)
    apart = [each for each in changes if any(mode.separate is not None for mode in each.modes)]
    assert apart and all(each.chained == () for each in apart)
    assert any(each.chained and each.modes != along.modes for each in changes)


def test_the_answer_is_cut_along_and_as_fast_as_that_of_a_pair() -> None:
    """Which one plan of both gives, norm aside."""
    advice = recommend_workload(scenario_of())
    pair = Advisor(None).recommend(compile_text(TEXT.replace("REST", "")).workloads[0], AdviceOptions(top=2))
    in_turn, best = advice.named(IN_TURN), advice.recommended
    norm = space().kernels["z"]

    assert in_turn is not None and best.several is not None
    assert best.joint.chained == ("y_gemm",)
    assert best.ticks * 1.05 < in_turn.ticks
    assert (best.ticks - norm) / TICKS_PER_US <= pair.recommended.best_us * 1.04
    assert next(op.how for op in advice.ops if op.name == "y_gemm") == "chained y"
    again = compile_text(TEXT.replace("REST", "  z = norm(y)\n") + schedule_block(best.joint, "chain")).workloads[0]
    assert again.schedules[0].chained == ("y_gemm",)
    assert "chained y_gemm" in str(advice_document(advice))


SEVERAL = """  n = norm(y)
  v2 = tensor bf16[4096, 2048]
  h = all_to_all(gemm(x, w))
  a = gemm(h, v)
  b = gemm(h, v2)
  z = norm(a)
  c = norm(b)
"""


@pytest.mark.slow
def test_of_several_the_longest_is_cut_and_comes_first() -> None:
    """In whichever order the file has them."""
    scenario = scenario_of(SEVERAL)
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    found = space_of(OpOptions(scenario.system, copier, COARSE_BYTES), UNCUT, scenario.workload)

    choice = cut_as(found.workload, found.op_options, found.following, Schedule("p"))
    changes = small_changes(found.workload, found.op_options, found.following, choice)

    assert found.following == {"y": ("y_gemm",), "h": ("b", "a")}
    assert choice.chained == ("y_gemm", "b")
    assert choice.order.index("b") == choice.order.index("h") + 1 == choice.order.index("a") - 1
    assert JointRuns(scenario.system, scenario.workload).ticks(choice) is not None
    assert any(each.chained == ("y_gemm", "b", "a") for each in changes)
