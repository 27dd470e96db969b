"""The stage of advice: what it offers, when it is skipped, and that a tie goes to the simpler schedule."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.answer.rule import finalists, is_worth_it
from magus.advisor.bespoke import SearchBudget, SearchOptions, optimize
from magus.advisor.bespoke.stage import _without_features, is_searched, sentence_of
from magus.advisor.bounds.lower_bound import lower_bound
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, SearchProvenance
from magus.compiler import compile_text
from magus.compiler.ir import (
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    Kernels,
    OpChoice,
    Pattern,
    Scenario,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.verify.check import check_plan
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import ag_gemm, exploring
from tests.helpers.some import some

DMA = EngineChoice(EngineKind.DMA, 7)
DMA_CHOICE = OpChoice("hetero_fused_1d", 8, DMA)
EVALUATIONS = 100
SCENARIO = exploring(ag_gemm(4096, 4096, 8192), Explore.of(chunks=(8, 16), engine=(DMA,)))
PROVENANCE = SearchProvenance("local search", 0, 10, 2, True, "9.15", (("own shard as filler", 0.02),))


@pytest.fixture(scope="module")
def advice() -> Advice:
    return Advisor.load().recommend(Scenario.of_one(SCENARIO), AdviceOptions(top=3, bespoke=EVALUATIONS))


def candidate(us: float, provenance: SearchProvenance | None) -> Candidate:
    schedule = build_op_plan(SCENARIO, DMA_CHOICE)
    return Candidate(
        f"{us} {provenance}",
        DMA_CHOICE,
        schedule,
        ScheduleOrigin.BESPOKE if provenance else ScheduleOrigin.TEMPLATE,
        us,
        round(us * TICKS_PER_US),
        1024,
        provenance,
    )


def test_winners_are_offered_with_their_simulated_times(advice: Advice) -> None:
    bespoke = [each for each in advice.candidates if each.provenance is not None]
    templates = [each.best_us for each in advice.candidates if each.provenance is None]

    assert bespoke and advice.recommended is bespoke[0]
    assert all(each.simulated_ticks is not None and each.best_us < min(templates) for each in bespoke)
    assert resolve_schedule(SCENARIO, bespoke[0].expression) == bespoke[0].schedule


def test_the_reasons_say_what_is_bespoke(advice: Advice) -> None:
    assert any(reason.startswith("No template has these chunks") for reason in advice.reasons)


def test_the_document_says_where_it_comes_from(advice: Advice) -> None:
    first = next(each for each in advice_document(advice)["candidates"] if each["provenance"])

    assert first["provenance"]["reproducible"] is True
    assert first["provenance"]["found_by"] and first["provenance"]["ortools"]
    assert first["provenance"]["evaluations"] <= EVALUATIONS + 10


@pytest.mark.slow
def test_none_are_searched_where_none_are_wanted() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(SCENARIO), AdviceOptions(bespoke=0))

    assert all(each.provenance is None for each in some(advice.candidates))


def test_kernels_side_by_side_and_engines_for_links_are_features() -> None:
    template = OpChoice("uniform_fused_1d", 8, EngineChoice(EngineKind.SM, 16))
    choice = replace(template, streams=2, lanes=3)

    assert list(_without_features(SCENARIO, choice, template)) == [
        ("kernels side by side", replace(choice, streams=1)),
        ("an engine for each link", replace(choice, lanes=0)),
    ]


def test_a_tie_goes_to_the_simpler_one() -> None:
    resolution = SCENARIO.resolution
    serial = replace(candidate(200.0, None), origin=ScheduleOrigin.SERIAL)
    simple, odd = candidate(100.0, None), candidate(99.0, None)
    odd = replace(odd, choice=replace(DMA_CHOICE, tactics=ExecutionOptions(kernel=Kernels.PERSISTENT)))
    close, clear = candidate(98.0 / (1 + resolution / 2), PROVENANCE), candidate(98.0 / (1 + resolution), PROVENANCE)

    assert resolution > 0.01
    assert finalists(Scenario.of_one(SCENARIO), [close, odd, simple, serial]) == (simple, serial)
    assert finalists(Scenario.of_one(SCENARIO), [clear, odd, simple, serial]) == (clear, serial)
    assert finalists(Scenario.of_one(SCENARIO), [serial]) == (serial, serial)


def test_what_the_profile_cannot_tell_from_serial_is_not_worth_it() -> None:
    resolution = SCENARIO.resolution
    serial = replace(candidate(100.0, None), origin=ScheduleOrigin.SERIAL)
    near, clear = candidate(100.0 / (1 + 0.9 * resolution), PROVENANCE), candidate(99.0 / (1 + resolution), PROVENANCE)

    assert not is_worth_it(Scenario.of_one(SCENARIO), serial, near)
    assert is_worth_it(Scenario.of_one(SCENARIO), serial, clear)
    # What is not worth it does not stand in the way of what is.
    assert finalists(
        Scenario.of_one(SCENARIO), [clear, replace(near, provenance=None, origin=ScheduleOrigin.TEMPLATE), serial]
    ) == (
        clear,
        serial,
    )


def test_serial_schedules_that_were_simulated_before_a_stop_keep_no_proposal_from_the_answer() -> None:
    serial, other = (replace(candidate(us, None), origin=ScheduleOrigin.SERIAL) for us in (200.0, 190.0))
    proposed = replace(candidate(100.0, PROVENANCE), simulated_ticks=None)
    slower = candidate(150.0, None)

    assert finalists(Scenario.of_one(SCENARIO), [proposed, other, serial]) == (proposed, other)
    assert finalists(Scenario.of_one(SCENARIO), [proposed, slower, other, serial]) == (
        slower,
        other,
    )  # simulated, and it overlaps


def test_the_sentence_names_the_freedoms() -> None:
    assert sentence_of(candidate(1.0, None)) is None
    assert "own shard as filler (2.0% slower without)" in (sentence_of(candidate(1.0, PROVENANCE)) or "")


@pytest.mark.parametrize("pattern", list(Pattern))
def test_one_gemm_that_overlaps_is_searched(pattern: Pattern) -> None:
    scenario = scenario_of(pattern, SYSTEMS[0], 4, 256, 256, 256)
    searched = pattern.overlaps and scenario.shape.num_kernels == 1

    assert is_searched(scenario) is searched
    assert is_searched(exploring(scenario, Explore.of(schedules=("bespoke",)))) is searched
    assert not is_searched(exploring(scenario, Explore.of(schedules=("serial",))))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("workload", "searched"),
    [
        ("w = tensor bf16[1024, 256]; y = grouped_gemm(all_to_all(x), w, rows=[300, 212])", True),
        ("w = tensor bf16[1024, 256]; y = all_to_all(grouped_gemm(x, w, rows=[300, 212]))", True),
        ("y = attention(all_to_all(x), heads=4, kv_heads=2)", False),
    ],
)
def test_of_other_kernels_only_grouped_gemms_are_searched(workload: str, searched: bool) -> None:
    source = f"""use "amd/mi300x"
system node {{ gpus 4 x MI300X; fabric full_mesh(xgmi) }}
workload some on node {{ x = tensor bf16[512, 512]; {workload} }}
"""
    scenario = compile_text(source).scenario().case

    assert is_searched(scenario) is searched
    if searched:
        outcome = optimize(scenario, SearchBudget(80, 12, 0.02), SearchOptions(lambda schedule: 8192))
        assert outcome.best_bespoke is not None
        assert all(check_plan(scenario, found.schedule) == () for found in outcome.plans)
        assert lower_bound(scenario).ticks <= outcome.plans[0].ticks


def test_ranks_that_are_not_alike_are_left_alone() -> None:
    assert not is_searched(scenario_of(Pattern.AG_GEMM, SYSTEMS[4], 4, 256, 256, 256))
