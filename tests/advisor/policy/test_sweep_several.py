"""Sweeps of graphs: which schedules are compared where, and the rules that follow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest

from magus.advisor.answer.stages import AdviceOptions
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import ScheduleOrigin, joint_candidate
from magus.advisor.policy.layer_rules import Simulate, said_of
from magus.advisor.policy.sweep import OtherSizes, Sweep, block_of, swept
from magus.advisor.policy.table import PolicyRule
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Cancelled,
    EngineChoice,
    EngineKind,
    HandOff,
    OpMode,
    Rejection,
    Scenario,
    Schedule,
    Settings,
    WrittenPlan,
)
from magus.compiler.planning.build import ScheduleError, expression_of_schedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.scenarios.mlp_backward import backward, rows_of

A = Schedule("joint", order=("dh", "du"))
B = Schedule("joint", low=("d_wup",))
TIMES: dict[int, dict[str, int | None]] = {
    1024: {"serial": 100, "a": 90, "b": 92},
    2048: {"serial": 200, "a": 161, "b": 160},
    4096: {"serial": 400, "a": 380, "b": 300},
    8192: {"serial": 800, "a": None, "b": 800},
}
"""By rows: the ticks of each schedule."""
BEST = {1024: A, 2048: B, 4096: B, 8192: SERIAL}


def word(choice: Schedule) -> str:
    said = expression_of_schedule(choice)
    return {expression_of_schedule(A): "a", expression_of_schedule(B): "b"}.get(said, "serial")


@pytest.fixture(scope="module")
def scenarios() -> Mapping[int, Scenario]:
    return {m: backward(m=m) for m in TIMES}


def advise(scenario: Scenario) -> Advice:
    m = rows_of(scenario)
    best = BEST[m]
    return advice_by_hand(scenario, best, TIMES[m][word(best)] or 0, TIMES[m]["serial"] or 0)


def simulate(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
    if rows_of(scenario) not in TIMES:
        return None
    assert word(choice) not in ("serial", word(advice.recommended.joint)), "what is known is not simulated again"
    return TIMES[rows_of(scenario)][word(choice)]


def at(settings: Settings) -> Scenario:
    return backward(m=int(dict(settings)["M"]))


Advise = Callable[[Scenario], Advice]
Points = Sequence[tuple[Settings, Scenario]]


def sweep_of(points: Points, tolerance: float = 0.02, advise: Advise = advise, simulate: Simulate = simulate) -> Sweep:
    def ask(scenarios: Sequence[Scenario]) -> list[Callable[[], Advice]]:
        return [partial(advise, scenario) for scenario in scenarios]

    others = OtherSizes(at, simulate)
    return swept(points, ask, options=AdviceOptions(), tolerance=tolerance, others=others)


def points_of(scenarios: Mapping[int, Scenario]) -> Points:
    return [((("M", str(m)),), one) for m, one in scenarios.items()]


def rules_of(sweep: Sweep) -> tuple[PolicyRule, ...]:
    assert sweep.policy is not None
    return sweep.policy.rules


def test_each_schedule_is_timed_at_each_point(scenarios: Mapping[int, Scenario]) -> None:
    sweep = sweep_of(points_of(scenarios))

    assert [choice.name for choice in sweep.schedules] == ["serial", "joint_1", "joint_2"]
    assert [point.schedule for point in sweep.points] == ["joint_1", "joint_2", "joint_2", "serial"]
    assert [dict(point.ticks) for point in sweep.points] == [
        {"serial": 100, "joint_1": 90, "joint_2": 92},
        {"serial": 200, "joint_1": 161, "joint_2": 160},
        {"serial": 400, "joint_1": 380, "joint_2": 300},
        {"serial": 800, "joint_2": 800},
    ]


@pytest.mark.slow
def test_rules_are_as_few_as_the_tolerance_allows(scenarios: Mapping[int, Scenario]) -> None:
    def rules(tolerance: float) -> list[tuple[tuple[int, ...], str]]:
        return [(rule.sizes, rule.schedule) for rule in rules_of(sweep_of(points_of(scenarios), tolerance))]

    assert rules(0.0) == [((1024,), "joint_1"), ((2048, 4096, 8192), "joint_2")]
    assert rules(0.01) == [((1024, 2048), "joint_1"), ((4096, 8192), "joint_2")]
    assert rules(0.03) == [((1024, 2048, 4096, 8192), "joint_2")]
    (rule,) = rules_of(sweep_of(points_of(scenarios), 0.03))
    assert rule.gain == (1.0, 400 / 300)
    assert rule.loss == pytest.approx(92 / 90 - 1)
    assert rule.verdict == "worth_trying", "overlap pays at some of its sizes, and not at all"


def test_where_no_overlap_does_it_is_the_rule(scenarios: Mapping[int, Scenario]) -> None:
    sweep = sweep_of(points_of({8192: scenarios[8192]}))

    assert rules_of(sweep) == (), "one point is no range"
    assert [point.schedule for point in sweep.points] == ["serial"]
    both = sweep_of(points_of({m: scenarios[m] for m in (4096, 8192)}), tolerance=0.4)
    assert [(rule.schedule, rule.verdict) for rule in rules_of(both)] == [("serial", "serial")]


def test_the_document(scenarios: Mapping[int, Scenario]) -> None:
    document = sweep_of(points_of(scenarios)).document()

    assert document["schema"] == "magus-sweep/2" and document["scenario"] == "back"
    blocks = {each["name"]: each["block"] for each in document["schedules"]}
    assert blocks["serial"] is None
    assert blocks["joint_1"] == "schedule joint_1 for back {\n  order dh, du\n}\n"
    assert document["points"][0]["gain"] == pytest.approx(100 / 90)
    assert document["policy"]["rules"][-1]["max"] == 8192


def test_names_of_the_file_are_kept_and_not_taken(scenarios: Mapping[int, Scenario]) -> None:
    one = scenarios[1024]
    declared = replace(one, schedules=(replace(B, name="mine"), replace(B, name="joint_1", handoff=HandOff.WHOLE)))

    def by_file(scenario: Scenario) -> Advice:
        advice = advise(scenario)
        own = joint_candidate(replace(B, name="mine"), ScheduleOrigin.DECLARED, ticks=advice.recommended.ticks)
        return replace(advice, recommended=own) if scenario is declared else advice

    points: Points = [((("N", "a"),), one), ((("N", "b"),), declared)]
    sweep = sweep_of(points, advise=by_file, simulate=lambda scenario, choice, advice: None)

    assert [choice.name for choice in sweep.schedules] == ["serial", "joint_2", "mine"]
    assert rules_of(sweep) == (), "what varies is no number"


def test_a_schedule_in_outline_is_known_by_its_name() -> None:
    outlined = Schedule("mine", (OpMode("dh", WrittenPlan(EngineChoice(EngineKind.DMA, 3), ())),))

    assert (said_of(outlined), block_of(outlined, "back")) == ("mine", None)
    assert block_of(SERIAL, "back") is None


def test_what_fails_leaves_the_others_without_rules(scenarios: Mapping[int, Scenario]) -> None:
    def fails(scenario: Scenario) -> Advice:
        if rows_of(scenario) == 2048:
            raise ScheduleError(Rejection(Code.MGS402, "too large"))
        return advise(scenario)

    sweep = sweep_of(points_of(scenarios), advise=fails)

    assert len(sweep.points) == 3 and rules_of(sweep) == ()
    assert [dict(settings) for settings, _ in sweep.failed] == [{"M": "2048"}]


def test_a_sweep_that_is_stopped_has_what_was_found(scenarios: Mapping[int, Scenario]) -> None:
    def stopped(scenario: Scenario) -> Advice:
        if rows_of(scenario) > 1024:
            raise Cancelled
        return advise(scenario)

    sweep = sweep_of(points_of(scenarios), advise=stopped)

    assert sweep.interrupted and [point.schedule for point in sweep.points] == ["joint_1"]
    with pytest.raises(Cancelled):
        sweep_of(points_of(scenarios)[1:], advise=stopped)
