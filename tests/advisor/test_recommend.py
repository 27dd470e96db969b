"""From a scenario to advice, with the shipped model and with estimates that are wrong on purpose."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from magus.advisor import AdviceOptions, Advisor, NoFeasibleSchedule
from magus.advisor.candidates import predicted
from magus.advisor.candidates.advice import Advice, Confidence
from magus.advisor.candidates.predicted import LIBRARY, chosen_algorithm, predicted_candidates
from magus.advisor.solver import enumerate_space
from magus.compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    CopyProtocol,
    EngineChoice,
    EngineKind,
    Explore,
    NamedSchedule,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Scenario,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs import base
from magus.compiler.planning.knobs.library import library_rejection
from magus.compiler.planning.staging import template_input
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.templates.base import TemplateInput
from magus.simcore import RunOutcome
from magus.simcore.cores.engine import Core
from tests.helpers.marks import thinned
from tests.helpers.scenarios.drawn import LONE, SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, gemm_rs, lone_gather

DMA = EngineChoice(EngineKind.DMA, 7)


def backwards(
    scenario: OpCase, choices: Sequence[OpChoice], schedules: Sequence[OpPlan], **options: object
) -> tuple[float, ...]:
    """Times that like the worst best: what they say must change what is simulated, never what is true."""
    return tuple(1e6 / len(schedule.steps) for schedule in schedules)


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


@pytest.fixture(scope="module")
def advice(advisor: Advisor) -> Advice:
    scenario = exploring(ag_gemm(4096, 2048, 8192), Explore.of(chunks=(8, 16), engine=(DMA,)))
    return advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=3, bespoke=20))


def test_each_schedule_is_looked_at_and_built_once(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = exploring(ag_gemm(4096, 8192, 16384), Explore.of(chunks=(8, 16, 32), engine=(DMA,)))
    structures = enumerate_space(scenario).structures
    requested: list[OpChoice] = []

    def counting(scenario: OpCase, choice: OpChoice) -> TemplateInput:
        requested.append(choice)
        return template_input(scenario, choice)

    monkeypatch.setattr(base, "template_input", counting)
    candidates = predicted_candidates(scenario, structures)

    assert len(candidates) >= len(structures) > 3
    assert Counter(requested) == Counter(candidate.choice for candidate in candidates)


def test_overlap_is_recommended_where_it_pays(advice: Advice) -> None:
    assert advice.verdict is Verdict.WORTH_TRYING, "GEMMs of MI300X are not validated"
    assert advice.speedup >= 1.02 and not advice.recommended.is_serial
    assert advice.recommended.best_us <= advice.serial.best_us


def test_the_answer_and_the_baseline_are_confirmed_in_lines(advice: Advice) -> None:
    line = advice.scenario.gpu.line_bytes

    assert advice.result is not None and advice.serial_result is not None
    assert advice.recommended.unit_bytes == advice.serial.unit_bytes == line
    assert advice.result.outcome is RunOutcome.DONE
    assert advice.result.makespan_ticks == advice.recommended.simulated_ticks


def test_the_answer_and_the_baseline_tell_loads_over_time(advice: Advice) -> None:
    assert advice.result is not None
    assert advice.serial_result is not None
    for result in (advice.result, advice.serial_result):
        assert result.loads.each
        assert result.loads.span_ticks >= result.makespan_ticks


def test_no_candidate_beats_the_bound(advice: Advice) -> None:
    assert advice.bound is not None
    assert all(c.simulated_ticks is None or c.simulated_ticks >= advice.bound.ticks for c in advice.candidates)
    assert advice.gap_to_bound is not None and advice.gap_to_bound >= 0


def test_candidates_are_ranked_simulated_ones_first(advice: Advice) -> None:
    simulated = [c.simulated_ticks for c in advice.candidates if c.simulated_ticks is not None]
    predicted = [c.predicted_us for c in advice.candidates if c.simulated_ticks is None]

    assert simulated == sorted(simulated)
    assert predicted == sorted(predicted, key=lambda us: us or 0.0)
    assert advice.candidates[0].simulated_ticks is not None


def test_a_tie_is_what_the_profile_cannot_tell_apart(advice: Advice) -> None:
    resolution = float(advice.scenario.gpu.gemm.resolution)
    by_name = {c.expression: c for c in advice.candidates}

    assert advice.recommended.expression not in advice.ties
    assert all(abs(by_name[tie].best_us / advice.recommended.best_us - 1) <= resolution for tie in advice.ties)


def test_a_profile_that_is_not_validated_is_marked_and_never_trusted_fully(advice: Advice) -> None:
    assert any("not validated" in mark and "25%" in mark for mark in advice.marks)
    assert advice.confidence is not Confidence.HIGH


def test_the_waterfall_of_the_answer_sums_exactly(advice: Advice) -> None:
    assert advice.result is not None and advice.result.waterfall is not None
    losses = advice.result.waterfall

    total = losses.launch_sync_ticks + losses.contention_ticks + losses.decomposition_ticks + losses.exposed_ticks
    assert total + losses.bound_ticks == losses.makespan_ticks
    assert advice.bound is not None and losses.bound_ticks == advice.bound.ticks


def test_serial_is_said_where_overlap_does_not_pay(advisor: Advisor) -> None:
    advice = advisor.recommend(Scenario.of_one(ag_gemm(16, 8192, 28672)), AdviceOptions(bespoke=0))

    assert advice.verdict is Verdict.SERIAL
    assert advice.recommended.is_serial
    assert advice.speedup == 1
    assert any("slower than serial" in reason or "faster than serial" in reason for reason in advice.reasons)


@pytest.mark.slow
def test_bad_estimates_cost_speed_but_never_truth(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = exploring(gemm_rs(2048, 8192, 4096), Explore.of(chunks=(8, 16)))

    good = advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=2, bespoke=0))
    monkeypatch.setattr(predicted, "predicted_us", backwards)
    bad = advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=2, bespoke=0))

    assert (bad.serial.expression, bad.serial.simulated_ticks) == (good.serial.expression, good.serial.simulated_ticks)
    assert bad.recommended.best_us <= bad.serial.best_us


@pytest.mark.slow
def test_the_baseline_does_not_follow_the_engines_explored(advisor: Advisor) -> None:
    scenario = exploring(ag_gemm(2048, 8192, 4096), Explore.of(chunks=(16,), engine=(EngineChoice(EngineKind.SM, 8),)))

    assert advisor.recommend(Scenario.of_one(scenario), AdviceOptions(bespoke=0)).serial.schedule.engine == DMA


def test_a_space_without_overlap_is_not_a_workload_without_it(advisor: Advisor) -> None:
    advice = advisor.recommend(Scenario.of_one(exploring(ag_gemm(1024, 1024, 4096), Explore.of(schedules=("serial",)))))

    assert "No overlap schedule is in the space that the file explores." in advice.reasons


def test_a_plan_by_hand_for_a_lone_collective_is_no_overlap(advisor: Advisor) -> None:
    scenario = lone_gather(1024, 1024)
    steps = build_op_plan(scenario, OpChoice("serial", 8, DMA)).steps
    scenario = replace(
        scenario, schedules=(NamedSchedule("mine", WrittenPlan(EngineChoice(EngineKind.SM, 32), steps)),)
    )

    advice = advisor.recommend(Scenario.of_one(scenario))

    assert advice.verdict is Verdict.USE
    assert not next(c for c in advice.candidates if c.expression == "mine").is_serial


def test_declared_schedules_are_always_simulated(advisor: Advisor) -> None:
    choice = OpChoice("shard_p2p", 8, DMA)
    scenario = replace(
        exploring(ag_gemm(1024, 1024, 4096), Explore.of(schedules=("serial",), engine=(DMA,))),
        schedules=(NamedSchedule("mine", choice),),
    )

    advice = advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=1))

    (mine,) = [c for c in advice.candidates if c.expression == "shard_p2p(engine=dma(7))"]
    assert mine.simulated_ticks is not None


@pytest.mark.slow
def test_plans_written_out_take_part(advisor: Advisor) -> None:
    scenario = exploring(ag_gemm(1024, 1024, 4096), Explore.of(schedules=("serial",), engine=(DMA,)))
    steps = build_op_plan(scenario, OpChoice("hetero_fused_1d", 16, DMA)).steps
    scenario = replace(scenario, schedules=(NamedSchedule("by_hand", WrittenPlan(DMA, steps)),))

    advice = advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=1))

    (by_hand,) = [c for c in advice.candidates if c.expression == "by_hand"]
    assert by_hand.predicted_us is None
    assert by_hand.simulated_ticks is not None


@pytest.mark.parametrize("pattern", [Pattern.GEMM, Pattern.KERNEL])
def test_a_lone_kernel_has_nothing_to_overlap(advisor: Advisor, pattern: Pattern) -> None:
    advice = advisor.recommend(Scenario.of_one(scenario_of(pattern, SYSTEMS[0], 2, 256, 256, 256)))

    assert advice.verdict is Verdict.SERIAL
    assert len(advice.candidates) == 1
    assert advice.gap_to_bound is not None and advice.gap_to_bound >= 0
    assert "There is nothing to move, and so nothing to overlap in this workload." in advice.reasons
    assert advice.why_serial == "there is one kernel and nothing to move"


# Each second: every collective, and both systems.
@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "case", thinned(product(SYSTEMS[:2], [each for each in LONE if each is not Pattern.SEND_RECV]), 2)
)
def test_of_a_lone_collective_the_algorithms_are_compared(advisor: Advisor, case: tuple[str, Pattern]) -> None:
    system, pattern = case
    scenario = scenario_of(pattern, system, 4, 256, 256, 256)

    advice = advisor.recommend(Scenario.of_one(scenario))

    simulated = [c for c in advice.candidates if c.simulated_ticks is not None]
    tried = {chosen_algorithm(c.choice) for c in simulated if c.choice is not None}
    possible = {chosen_algorithm(choice) for choice in enumerate_space(scenario).choices}
    possible |= {LIBRARY} if library_rejection(scenario) is None else set()
    possible |= {"forest"} if pattern is Pattern.BROADCAST else set()  # its root sends each row once
    assert advice.verdict is (Verdict.LIBRARY if advice.recommended.is_library else Verdict.USE)
    assert tried == possible
    assert any(c.choice is not None and c.choice.tactics.protocol is CopyProtocol.LL for c in simulated)
    assert advice.serial.expression.startswith("serial(")
    assert advice.speedup == advice.serial.best_us / advice.recommended.best_us
    assert advice.recommended == advice.serial or advice.speedup >= 1.02
    assert advice.bound is not None
    assert all(c.best_us >= advice.bound.ticks / TICKS_PER_US for c in simulated)
    assert any(reason.startswith("The algorithms, each at its best") for reason in advice.reasons)


@pytest.mark.quick(1)
@pytest.mark.parametrize("pattern", [Pattern.GEMM_BESIDE_A2A, Pattern.GEMM_BESIDE_AG])
def test_what_runs_beside_is_an_overlap(advisor: Advisor, pattern: Pattern) -> None:
    advice = advisor.recommend(Scenario.of_one(scenario_of(pattern, SYSTEMS[1], 4, 1024, 1024, 1024)))

    assert advice.verdict is not Verdict.SERIAL
    assert advice.recommended.expression.startswith("bulk(")
    assert advice.serial.expression.startswith("serial(")
    assert any("beside the GEMM" in reason for reason in advice.reasons)


@pytest.mark.quick(1)
@pytest.mark.parametrize("pattern", [Pattern.GEMM_A2A, Pattern.GEMM_BESIDE_AG, Pattern.ALL_GATHER])
def test_where_estimates_were_not_judged_is_said(advisor: Advisor, pattern: Pattern) -> None:
    advice = advisor.recommend(
        Scenario.of_one(scenario_of(pattern, SYSTEMS[0], 2, 128, 128, 128)), AdviceOptions(top=2)
    )

    assert "were not compared with simulations of such scenarios" in advice.confidence_reason
    assert advice.confidence is not Confidence.HIGH


def test_without_verification_nothing_is_simulated(advisor: Advisor) -> None:
    advice = advisor.recommend(Scenario.of_one(ag_gemm(4096, 8192, 16384)), AdviceOptions(verify=False))

    assert advice.result is None
    assert all(c.simulated_ticks is None for c in advice.candidates)
    assert advice.confidence is Confidence.LOW


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGUS_ENGINE", Core.COMPILED.value)  # in all of them
    scenario = exploring(ag_gemm(512, 1024, 4096), Explore.of(chunks=(8, 16), engine=(DMA,)))

    alone, together = (
        advisor.recommend(Scenario.of_one(scenario), AdviceOptions(workers=workers)) for workers in (1, 2)
    )

    assert replace(alone, timing=together.timing) == together


def test_why_serial_wins_is_said(advice: Advice) -> None:
    overlapping = [one for one in advice.candidates if not one.is_serial and one.simulated_ticks is not None]
    fastest_ticks = min(one.simulated_ticks or 0 for one in overlapping)

    def reason(share: float) -> str:
        """The reason where serial takes so much of the time of the fastest overlap."""
        serial = replace(advice.serial, simulated_ticks=round(fastest_ticks * share))
        return replace(advice, recommended=serial).why_serial

    assert reason(1.02) == "1.02x by overlap is less than the profile can tell apart (8%)"
    assert reason(0.9) == reason(1.2) == "overlap does not pay here"
    alone = replace(advice, candidates=tuple(one for one in advice.candidates if one.is_serial))
    assert alone.why_serial == "no overlap schedule was in the space"


def test_a_stop_is_heard(advisor: Advisor) -> None:
    with pytest.raises(Cancelled):
        advisor.recommend(Scenario.of_one(ag_gemm(4096, 8192, 16384)), should_stop=lambda: True)


@pytest.mark.slow
def test_progress_is_reported(advisor: Advisor) -> None:
    heard: list[tuple[str, int, int]] = []
    scenario = exploring(ag_gemm(256, 512, 1024), Explore.of(chunks=(8,), engine=(DMA,)))

    advisor.recommend(Scenario.of_one(scenario), progress=lambda stage, done, total: heard.append((stage, done, total)))

    assert {stage for stage, _, _ in heard} == {"propose", "enumerate", "rank", "simulate", "bespoke", "confirm"}


def test_nothing_feasible_names_the_constraints(advisor: Advisor) -> None:
    with pytest.raises(NoFeasibleSchedule) as caught:
        advisor.recommend(Scenario.of_one(exploring(ag_gemm(4096, 8192, 16384), Explore.of(staging_limit_bytes=1024))))

    assert any("staging" in reason for reason in caught.value.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("learned", [False, True])
def test_a_gain_by_options_alone_does_not_look_like_overlap(advisor: Advisor, learned: bool) -> None:
    """The proposed serial schedule is persistent already; its estimate must not price other protocols out."""
    used = advisor if learned else Advisor()

    found = used.recommend(Scenario.of_one(gemm_rs(16, 4096, 2048, ranks=2)))

    assert found.verdict is Verdict.SERIAL and found.recommended.is_serial
    assert found.recommended.choice is not None and found.recommended.choice.tactics.protocol is CopyProtocol.LL
