"""Slower collectives: what they cost kernels, who offers them, and that a layer is faster with them."""

from dataclasses import replace
from functools import cache

import pytest

from magus.advisor.layers.declared import slowly
from magus.advisor.layers.joint import COARSE_BYTES, JointRuns, LayerSpace, space_of
from magus.advisor.layers.op_runs import Copier, Uses, copiers_of
from magus.advisor.layers.options import OpOptions, is_limited, slowed_ticks, slower
from magus.advisor.layers.placement import other_paces
from magus.advisor.layers.search import at_its_paces
from magus.advisor.layers.timing import estimated_ticks
from magus.compiler import compile_text
from magus.compiler.ir import UNCUT, EngineChoice, EngineKind, Scenario, Schedule
from magus.compiler.planning.build import schedule_block

from .test_recommend import BACKWARD, HEAD, scenario_of

pytestmark = pytest.mark.usefixtures("compiled_core")

WHOLE = """
schedule whole for back {
  separate dh, dx by dma(3)
  xg = serial(engine=dma(3))
  order dh, dx, d_wd, d_wu
  start xg with dh
  priority sums
}
"""


@cache
def problem() -> tuple[Scenario, LayerSpace, Schedule]:
    """A backward pass whose collectives are whole."""
    text = BACKWARD.replace("explore back { engine dma(3) }", WHOLE).replace("2048", "4096")
    scenario = scenario_of(text)
    op_options = OpOptions(
        scenario.system, next(copiers_of(scenario.system, scenario.workload, scenario.explore)), COARSE_BYTES
    )
    return scenario, space_of(op_options, UNCUT, scenario.workload), scenario.schedules[0]


@pytest.mark.slow
def test_slower_copies_cost_kernels_less_down_to_nothing() -> None:
    scenario, space, _ = problem()

    for name in ("dh", "dx", "xg"):
        whole = [option for option in space.op_options[name] if option.is_whole]
        assert len(whole) > 1 and [option.is_paced for option in whole] == [False] + [True] * (len(whole) - 1)
        times = [option.copies[1] for option in whole]
        assert times == sorted(times)
    gpu, fast = scenario.system.gpu, Uses(noc=0.18)
    costs = [slowed_ticks(gpu, Uses(noc=fast.noc / pace), 1000 * pace) for pace in (1, 2, 3)]
    assert costs == sorted(costs, reverse=True) and costs[0] > 100 and costs[2] == 0


@pytest.mark.slow
def test_a_layer_is_faster_with_them() -> None:
    scenario, space, whole = problem()
    runs = JointRuns(scenario.system, scenario.workload)
    paced = at_its_paces(space, whole)
    before = runs.ticks(whole)
    times = [runs.ticks(choice) for choice in other_paces(space.workload, space.op_options, whole)]

    assert paced != whole and estimated_ticks(space, paced) < estimated_ticks(space, whole)
    assert before is not None and min(each for each in times if each is not None) < before * 0.99


def test_what_is_paced_is_pasted_and_said() -> None:
    _, space, whole = problem()
    paced = at_its_paces(space, whole)
    (sentence,) = slowly(space.op_options, paced)
    assert "copied slowly" in sentence and not list(slowly(space.op_options, whole))
    text = BACKWARD.replace("explore back { engine dma(3) }", "").replace("2048", "4096")

    (found,) = compile_text(HEAD + text + schedule_block(paced, "back")).workloads
    assert set(found.schedules[0].modes) == set(paced.modes) and found.schedules[0].order == paced.order


def test_who_has_no_engine_to_spare_offers_none() -> None:
    system = problem()[0].system
    all_of_them = EngineChoice(EngineKind.DMA, system.gpu.dma.engines)

    assert list(slower(system, Copier(EngineChoice(EngineKind.DMA, 3))))
    assert not list(slower(system, Copier(all_of_them)))
    assert not list(slower(system, Copier(EngineChoice(EngineKind.SM, 16))))
    quiet = replace(system.gpu, noc=None)
    assert slowed_ticks(quiet, Uses(noc=0.5), 1000) == 0
    assert is_limited(scenario_of(BACKWARD).explore) and not is_limited(problem()[0].explore)
