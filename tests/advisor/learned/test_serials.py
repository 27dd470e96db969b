"""Baselines without simulation: the fastest serial schedules, of any algorithm and with all options."""

import pytest

from magus.advisor.answer.stages import AdviceOptions
from magus.advisor.learned.proposal_model import fastest, serial_proposals
from magus.advisor.learned.situation import Situation
from magus.advisor.questions.advisor import Advisor
from magus.advisor.training.families import draw
from magus.advisor.training.ways import least_serial_ticks
from magus.compiler.ir import EngineChoice, EngineKind, Explore, OpChoice, Scenario
from magus.compiler.planning.build import reject_choice
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, ring

SM16, DMA7 = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 7)
AT_ONCE = AdviceOptions(verify=False)


def test_on_a_ring_neighbours_pass_blocks_on() -> None:
    first, *others = serial_proposals(ag_gemm(8192, 8192, 8192, fabric=ring()))

    direct = min(each.estimate_ticks for each in others if not each.choice.algorithm)
    assert first.choice.algorithm == "double_ring" and first.estimate_ticks < 0.8 * direct


@pytest.mark.parametrize("idx", range(4))
def test_no_usual_serial_schedule_is_faster(idx: int) -> None:
    scenario = draw(21, idx).scenario

    assert serial_proposals(scenario)[0].estimate_ticks <= 1.001 * least_serial_ticks(scenario)


def test_without_simulation_gains_are_over_the_best_serial_schedule() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(ag_gemm(8192, 8192, 8192, fabric=ring())), AT_ONCE)

    assert advice.serial.choice is not None and advice.serial.choice.algorithm == "double_ring"
    assert 1 <= advice.speedup < 1.5
    assert sum(candidate.is_serial for candidate in advice.candidates) <= 8


def test_a_screen_yields_what_is_legal_and_explored() -> None:
    scenario = exploring(ag_gemm(8192, 8192, 8192), Explore.of(engine=(SM16,)))
    choices = [OpChoice("uniform_fused_1d", chunks, engine) for chunks in (12, 16, 32, 64) for engine in (SM16, DMA7)]

    found = list(fastest(scenario, Situation.of(scenario), [*choices, *choices]))

    assert sorted(choice.chunks for choice in found) == [16, 32, 64]
    assert all(choice.engine == SM16 and reject_choice(scenario, choice) is None for choice in found)
    assert not list(fastest(scenario, Situation.of(scenario), []))
