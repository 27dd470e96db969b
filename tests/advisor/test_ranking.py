"""Who is trusted to predict, and which candidates are simulated."""

from dataclasses import replace

import pytest

from magus.advisor.advice import Candidate
from magus.advisor.randomised import SYSTEMS as TRAINED_SYSTEMS
from magus.advisor.randomised import WORKLOADS, base_scenario
from magus.advisor.ranking import TRAINED_ON, algorithm_of, is_trained, shortlisted, variants
from magus.compiler.expression import expression_of
from magus.compiler.plan import build_schedule, why_illegal
from magus.compiler.scenario import Pattern, Scenario
from magus.compiler.schedule import Choice, Direction, EngineChoice, EngineKind, Protocol, Tactics
from tests.advisor.drawing import SYSTEMS, TEXTS, scenario_of

SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 3)


def candidates(scenario: Scenario, choices: list[Choice]) -> list[Candidate]:
    """Simulated in the order given."""
    built = [(choice, build_schedule(scenario, choice)) for choice in choices]
    return [
        Candidate(schedule.expression, choice, schedule, False, float(at), at + 1, 128)
        for at, (choice, schedule) in enumerate(built)
    ]


def test_the_ranker_is_trusted_with_what_it_was_trained_on() -> None:
    assert set(TRAINED_ON) == set(WORKLOADS)
    assert all(is_trained(base_scenario(gpu, fabric, 4)) for _, gpu, fabric in TRAINED_SYSTEMS)


@pytest.mark.parametrize("pattern", TEXTS, ids=lambda pattern: pattern.value)
def test_and_with_nothing_else(pattern: Pattern) -> None:
    assert is_trained(scenario_of(pattern, SYSTEMS[0], 4, 256, 256, 256)) is (pattern in TRAINED_ON)
    assert not is_trained(scenario_of(pattern, SYSTEMS[3], 4, 256, 256, 256))


def test_the_best_of_each_algorithm_comes_before_the_second_best_of_any() -> None:
    scenario = scenario_of(Pattern.ALL_REDUCE, SYSTEMS[0], 4, 256, 256, 256)
    found = candidates(
        scenario,
        [Choice("nvls", 4, SM), Choice("nvls", 16, SM), Choice("ring", 4, SM), Choice("ring", 4, DMA)],
    )

    plain = shortlisted(found, 2, by_algorithm=False)
    fair = shortlisted(found, 2, by_algorithm=True)

    assert plain == found[:2]
    assert fair == [found[0], found[2], found[3]]


def test_variants_are_legal_new_and_of_the_fastest() -> None:
    scenario = scenario_of(Pattern.ALL_GATHER, SYSTEMS[0], 4, 256, 256, 256)
    slow = [Choice("halving_doubling", 4, SM), Choice("double_tree", 4, SM)]
    fast = [Choice("serial", 4, SM), Choice("nvls", 4, SM), Choice("ring", 4, SM)]
    known = [*fast, replace(fast[0], tactics=Tactics(protocol=Protocol.LL)), *slow[:1]]

    found = variants(scenario, candidates(scenario, known))

    names = {expression_of(choice) for choice in found}
    assert len(names) == len(found)
    assert not names & {expression_of(choice) for choice in known}
    assert all(why_illegal(scenario, choice) is None for choice in found)
    assert replace(fast[0], tactics=Tactics(Direction.GET)) in found
    assert {algorithm_of(choice) for choice in found} == {"direct", "ring", "halving_doubling"}, "nvls has no other way"
