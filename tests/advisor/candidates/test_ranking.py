"""Who is trusted to predict, and which candidates are simulated."""

from dataclasses import replace

import pytest

from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin
from magus.advisor.candidates.predicted import (
    JUDGED_ON,
    MAX_NAMED_VALUES,
    baselines,
    best_of_explored,
    chosen_algorithm,
    is_judged,
    protocol_variants,
    shortlisted,
)
from magus.advisor.training.families import PATTERNS, draw
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    OpCase,
    OpChoice,
    Pattern,
)
from magus.compiler.planning.build import build_op_plan, expression_of, reject_choice
from tests.helpers.scenarios.drawn import SYSTEMS, TEXTS, scenario_of

SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 3)


def candidates(scenario: OpCase, choices: list[OpChoice]) -> list[Candidate]:
    """Simulated in the order given."""
    built = [(choice, build_op_plan(scenario, choice)) for choice in choices]
    return [
        Candidate(schedule.expression, choice, schedule, ScheduleOrigin.TEMPLATE, float(at), at + 1, 128)
        for at, (choice, schedule) in enumerate(built)
    ]


def test_estimates_are_judged_on_what_is_drawn() -> None:
    assert {pattern.value for pattern in JUDGED_ON} == set(PATTERNS)
    assert all(is_judged(draw(0, idx).scenario) for idx in range(20))


@pytest.mark.parametrize("pattern", TEXTS, ids=lambda pattern: pattern.value)
def test_and_with_nothing_else(pattern: Pattern) -> None:
    assert is_judged(scenario_of(pattern, SYSTEMS[0], 4, 256, 256, 256)) is (pattern in JUDGED_ON)
    assert not is_judged(scenario_of(pattern, SYSTEMS[3], 4, 256, 256, 256))


def test_the_best_of_each_algorithm_comes_before_the_second_best_of_any() -> None:
    scenario = scenario_of(Pattern.ALL_REDUCE, SYSTEMS[0], 4, 256, 256, 256)
    found = candidates(
        scenario,
        [OpChoice("nvls", 4, SM), OpChoice("nvls", 16, SM), OpChoice("ring", 4, SM), OpChoice("ring", 4, DMA)],
    )

    plain = shortlisted(found, 2, by_algorithm=False)
    fair = shortlisted(found, 2, by_algorithm=True)

    assert plain == found[:2]
    assert fair == [found[0], found[2], found[3]]


def test_variants_are_legal_new_and_of_the_fastest() -> None:
    scenario = scenario_of(Pattern.ALL_GATHER, SYSTEMS[0], 4, 256, 256, 256)
    slow = [OpChoice("halving_doubling", 4, SM), OpChoice("double_tree", 4, SM)]
    fast = [OpChoice("serial", 4, SM), OpChoice("nvls", 4, SM), OpChoice("ring", 4, SM)]
    known = [*fast, replace(fast[0], tactics=ExecutionOptions(protocol=CopyProtocol.LL)), *slow[:1]]

    found = protocol_variants(scenario, candidates(scenario, known))

    names = {expression_of(choice) for choice in found}
    assert len(names) == len(found)
    assert not names & {expression_of(choice) for choice in known}
    assert all(reject_choice(scenario, choice) is None for choice in found)
    assert replace(fast[0], tactics=ExecutionOptions(Direction.GET)) in found
    assert {chosen_algorithm(choice) for choice in found} == {"direct", "ring", "halving_doubling"}, (
        "nvls has no other way"
    )


def test_no_algorithm_is_varied_that_is_far_behind() -> None:
    """As direct copies on a ring of many ranks, whose variants are simulated for seconds each."""
    scenario = scenario_of(Pattern.ALL_GATHER, SYSTEMS[0], 4, 256, 256, 256)
    ring, direct = candidates(scenario, [OpChoice("ring", 4, SM), OpChoice("serial", 4, SM)])
    for times, varied in ((9, {"ring", "direct"}), (11, {"ring"})):
        timed = [
            replace(ring, simulated_ticks=1000, choice=OpChoice("ring", 4, SM)),
            replace(direct, simulated_ticks=1000 * times, choice=OpChoice("serial", 4, SM)),
        ]
        assert {chosen_algorithm(choice) for choice in protocol_variants(scenario, timed)} == varied


def beside(choices: list[OpChoice], explore: Explore | None = None) -> tuple[OpCase, list[Candidate]]:
    scenario = replace(scenario_of(Pattern.GEMM_RS, SYSTEMS[1], 4, 256, 256, 256), explore=explore or Explore())
    found = candidates(scenario, choices)
    return scenario, [
        replace(each, origin=ScheduleOrigin.SERIAL) if each.choice and each.choice.template == "serial" else each
        for each in found
    ]


def test_the_best_of_each_algorithm_beside_kernels_is_tried() -> None:
    few = [
        OpChoice("hetero_fused_1d", 8, SM),
        *(OpChoice("pipelined", 8, SM, algorithm=name) for name in ("ring", "ring")),
    ]
    scenario, found = beside(
        [*few, OpChoice("pipelined", 16, SM, algorithm="double_ring"), OpChoice("shard_p2p", 4, SM)]
    )

    assert best_of_explored(scenario, found) == [found[0], found[1], found[3]]


def test_what_a_file_names_is_tried() -> None:
    choices = [OpChoice("hetero_fused_1d", 8, SM), OpChoice("hetero_fused_1d", 16, DMA), OpChoice("shard_p2p", 4, SM)]
    choices += [OpChoice("pipelined", 8, SM, algorithm="ring"), OpChoice("pipelined", 16, SM, algorithm="ring")]
    named = Explore.of(schedules=("shard_p2p", "pipelined"), engine=(SM, DMA), chunks=(8, 16))
    many = Explore.of(chunks=tuple(range(4, 4 * MAX_NAMED_VALUES + 8, 4)))

    assert best_of_explored(*beside(choices, named)) == [beside(choices)[1][place] for place in (0, 1, 2, 3)]
    assert best_of_explored(*beside(choices, many)) == [beside(choices)[1][place] for place in (0, 3)]


def test_of_serial_schedules_by_other_algorithms_the_best_of_each_is_a_baseline() -> None:
    names = ["ring", "", "ring", "double_ring", ""]
    _, found = beside([OpChoice("serial", 4, (SM, DMA)[at % 2], algorithm=name) for at, name in enumerate(names)])
    again = replace(found[4], expression="by other engines")

    assert baselines([*found[:4], again, replace(found[0], origin=ScheduleOrigin.TEMPLATE)]) == [
        found[0],
        found[1],
        found[3],
        again,
    ]
