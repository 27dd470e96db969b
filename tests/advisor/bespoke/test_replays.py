"""Simulations of proposals: each once, no more than allowed, and none once one is as good as any."""

from magus.advisor.bespoke.result import PlanSimulator, Proposer
from magus.advisor.work.workers import Workers
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from tests.helpers.scenarios.scenarios import ag_gemm

DMA3 = EngineChoice(EngineKind.DMA, 3)
CHOICES = [(OpChoice("hetero_fused_1d", 4 * pieces, DMA3), Proposer.OPTIONS) for pieces in (1, 2, 4)]


def simulator(limit: int) -> PlanSimulator:
    scenario = ag_gemm(512, 512, 512, ranks=4)
    return PlanSimulator(scenario, Workers(), limit, lambda schedule: 4096, lambda done, total: None)


def test_each_is_simulated_once_and_no_more_than_allowed() -> None:
    found = simulator(limit=2)
    found.simulate(CHOICES[:1])
    found.simulate(CHOICES)

    assert found.count == len(found.plans) == 2 and not found.left
    assert [each.ticks for each in found.ranked()] == sorted(each.ticks for each in found.plans.values())


def test_what_is_good_enough_ends_it() -> None:
    every = simulator(limit=3)
    every.simulate(CHOICES)
    first = every.plans[CHOICES[0][0]].ticks

    for enough, count in ((first, 1), (min(each.ticks for each in every.plans.values()) - 1, 3)):
        ended = simulator(limit=3)
        ended.enough_ticks = enough
        ended.simulate(CHOICES)
        assert ended.count == count and ended.enough is (count == 1)
