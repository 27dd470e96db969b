"""Which hardware number changes an answer: the table, what is simulated of it, and what is said."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.answer.export_members import sensitivity_document
from magus.advisor.candidates.candidate import Candidate
from magus.advisor.candidates.predicted import predicted_candidates
from magus.advisor.candidates.sensitivity import ChangedNumber, Sensitivity
from magus.advisor.candidates.shortlist import simulate_shortlist
from magus.advisor.questions import one_op as advice_run
from magus.advisor.sensitivity import sensitivity
from magus.advisor.sensitivity.sensitivity import hardware_numbers, sensitivity_of, with_number
from magus.advisor.work.workers import Workers, open_workers
from magus.compiler.ir import Cancelled, EngineChoice, EngineKind, Explore, LaunchCost, OpCase, OpChoice, Scenario
from magus.simcore import simulate_op
from magus.tui.text.render import advice_text
from magus.tui.text.sweep import sensitivity_lines
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, lone_gather, lone_gemm, ticks
from tests.helpers.some import some

DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 12)
BY_DMA, BY_SM = OpChoice("hetero_fused_1d", 8, DMA), OpChoice("hetero_fused_1d", 8, SM)
BASE = ag_gemm(2048, 2048, 8192, ranks=4)


def unreported(stage: str, done: int, total: int) -> None:
    """Progress that nobody sees."""


def with_gpu(scenario: OpCase, **changes: object) -> OpCase:
    gpu = replace(scenario.gpu, **changes)  # type: ignore[arg-type]
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


# Copies by SMs are 1.6 % slower than by copy engines; both lose to nothing else.
CLOSE = with_gpu(BASE, sm_copy=replace(BASE.gpu.sm_copy, bytes_per_s=11 * 10**9))
SLOW_SMS = with_gpu(BASE, sm_copy=replace(BASE.gpu.sm_copy, bytes_per_s=6 * 10**9))


def slow_launches(us: float) -> OpCase:
    """Launches so slow that many chunks hardly pay."""
    base = ag_gemm(2048, 3072, 8192, ranks=4)
    gemm = replace(base.gpu.gemm, start_ticks=ticks(us))
    return with_gpu(base, gemm=gemm, launch=LaunchCost(ticks(us), ticks(us / 2)))


def candidates(scenario: OpCase, choices: Sequence[OpChoice]) -> list[Candidate]:
    ranked = predicted_candidates(scenario, choices)
    return simulate_shortlist(Workers(), scenario, ranked, 12, unreported)


def found(scenario: OpCase, choices: Sequence[OpChoice], pool: Workers | None = None) -> Sensitivity:
    """The sensitivity of the fastest overlapping schedule."""
    simulated = candidates(scenario, choices)
    answer = next(one.expression for one in simulated if not one.is_serial)
    table = sensitivity_of(scenario, simulated, simulated, answer, pool)
    assert table is not None and table.schedules[0] == answer
    return table


def change(table: Sensitivity, name: str, factor: float) -> ChangedNumber:
    return next(each for each in table.changes if each.name == name and each.factor == factor)


def test_the_number_that_flips_the_answer_is_named() -> None:
    table = found(CLOSE, (BY_DMA, BY_SM), Workers())
    by_sm = next(idx for idx, name in enumerate(table.schedules) if "sm(12)" in name)

    faster_sms = change(table, "sm_copy.bandwidth", 1.1)
    assert faster_sms in table.exceptions and faster_sms.fastest == by_sm
    assert faster_sms.simulated[0] and faster_sms.simulated[by_sm], "what is claimed is simulated"
    assert change(table, "sm_copy.bandwidth", 0.9) not in table.exceptions
    assert change(table, "hbm.latency", 1.1) not in table.exceptions
    text = "\n".join(sensitivity_lines(table, {}))
    assert "except:" in text and "hetero_fused_1d(chunks=8, engine=sm(12)) is faster by" in text
    assert "sm_copy.bandwidth +10%" in text.replace("\n   ", "")


def test_what_is_claimed_is_what_a_simulation_gives() -> None:
    simulated = candidates(CLOSE, (BY_DMA, BY_SM))
    table = found(CLOSE, (BY_DMA, BY_SM), Workers())
    schedules = {one.expression: one for one in simulated}
    number = next(each for each in hardware_numbers(CLOSE.system) if each.name == "sm_copy.bandwidth")
    there = with_number(CLOSE, number, 1.1)
    changed = change(table, "sm_copy.bandwidth", 1.1)

    for name, us, known in some(zip(table.schedules, changed.us, changed.simulated, strict=True)):
        one = schedules[name]
        assert one.unit_bytes is not None
        expected = simulate_op(there, one.schedule, unit_bytes=one.unit_bytes).makespan_us
        assert us == pytest.approx(expected, rel=1e-9 if known else 0.01)


def test_an_answer_far_ahead_holds_and_nothing_is_simulated() -> None:
    table = found(SLOW_SMS, (BY_DMA, BY_SM), Workers())

    assert table.exceptions == () and table.flips == () and table.robust is None
    assert not any(any(each.simulated) for each in table.changes)
    text = "\n".join(sensitivity_lines(table, {}))
    assert "holds, to 1%," in text and "except" not in text and "robust" not in text
    assert len(text.splitlines()) <= 4


def test_few_chunks_are_the_robust_choice_where_a_launch_may_cost_twice_as_much() -> None:
    choices = tuple(OpChoice("uniform_fused_1d", chunks, DMA) for chunks in (8, 16, 32))
    table = found(slow_launches(10), choices, Workers())
    robust = table.robust

    assert "chunks=16" in table.schedules[0] and robust is not None
    assert "chunks=8" in table.schedules[robust.schedule]
    assert (robust.answer_worst.name, robust.answer_worst.factor) == ("launch", 2.0)
    assert robust.answer_max_loss > 0.1 > 0.03 > robust.max_loss and 0 < robust.price < 0.03
    assert all(robust.answer_worst.simulated[idx] for idx in (0, robust.schedule))
    assert robust.worst is None or robust.worst.simulated[robust.schedule]
    text = " ".join("\n".join(sensitivity_lines(table, {})).split())
    assert "More robust is that one: it loses at most 2.2%, the answer up to 14.4% (launch x2);" in text
    assert text.endswith("with the numbers as given it takes 2.0% longer.")


def test_it_is_the_same_with_more_workers() -> None:
    alone = found(CLOSE, (BY_DMA, BY_SM), Workers())
    with open_workers(2, threads=True) as pool:
        assert found(CLOSE, (BY_DMA, BY_SM), pool) == alone


def test_without_a_pool_nothing_is_simulated() -> None:
    table = found(CLOSE, (BY_DMA, BY_SM))

    assert not table.simulated and not any(any(each.simulated) for each in table.changes)
    assert "(predicted)" in "\n".join(sensitivity_lines(table, {}))
    assert sensitivity_document(table)["checked"] == "predicted"


def test_runs_are_limited_and_what_was_not_simulated_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "MAX_RUNS", 3)
    table = found(CLOSE, (BY_DMA, BY_SM), Workers())

    assert sum(sum(each.simulated) for each in table.changes) == 3
    assert "(predicted)" in "\n".join(sensitivity_lines(table, {}))


def test_a_run_that_fails_leaves_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Workers()
    monkeypatch.setattr(pool, "run", lambda jobs: [None] * len(jobs))
    table = found(CLOSE, (BY_DMA, BY_SM), pool)

    assert table.changes == found(CLOSE, (BY_DMA, BY_SM)).changes and table.exceptions


def test_a_stop_leaves_none() -> None:
    simulated = candidates(CLOSE, (BY_DMA, BY_SM))
    answer = simulated[0].expression
    with pytest.raises(Cancelled):
        sensitivity_of(CLOSE, simulated, simulated, answer, Workers(should_stop=lambda: True))


def test_one_schedule_alone_has_no_sensitivity() -> None:
    question, options = Scenario.of_one(lone_gemm(512, 512, 512)), AdviceOptions(top=1, bespoke=0, sensitivity=True)
    assert Advisor.load().recommend(question, options).sensitivity is None


# -- what follows from a table ----------------------------------------------------------------------------------------


def table_of(
    before: tuple[float, ...], *changed: tuple[str, float, tuple[float, ...]], pays: bool = True
) -> Sensitivity:
    names = tuple(f"s{idx}" for idx in range(len(before)))
    changes = (
        ChangedNumber(name, (name,), factor, us, (True,) * len(us), pays and us[0] < 200)
        for name, factor, us in changed
    )
    return Sensitivity(names, before, pays, tuple(changes), True)


def test_an_answer_that_was_behind_before_holds_until_it_falls_further_behind() -> None:
    table = table_of((105.0, 100.0), ("a", 0.9, (105.9, 100.0)), ("b", 1.1, (106.5, 100.0)))

    assert table.loss == pytest.approx(0.05)
    assert [each.name for each in table.exceptions] == ["b"]
    assert table.robust is None, "simplicity is no want of robustness"
    (line,) = [line for line in sensitivity_lines(table, {}) if line.startswith("  - ")]
    assert line == "  - s1 is faster by 6.5% with b +10%; by 5.0% with the numbers as given"


def test_exceptions_begin_with_the_worst_and_name_each_schedule_once() -> None:
    table = table_of(
        (100.0, 110.0, 120.0),
        ("a", 0.9, (110.0, 104.0, 120.0)),
        ("b", 1.1, (120.0, 110.0, 100.0)),
        ("c", 2.0, (110.0, 100.0, 120.0)),
        ("d", 0.9, (101.0, 100.5, 120.0)),
    )

    assert [each.name for each in table.exceptions] == ["b", "c", "a"]
    assert [line for line in sensitivity_lines(table, {}) if line.startswith("  - ")] == [
        "  - s2 is faster by 20.0% with b +10%",
        "  - s1 is faster by 10.0% with c x2, 5.8% with a -10%",
    ]


def test_flips_of_the_verdict_are_reported() -> None:
    table = table_of((100.0, 300.0), ("a", 0.9, (250.0, 300.0)))

    assert [each.name for each in table.flips] == ["a"]
    assert "Overlap does not pay with a -10%." in sensitivity_lines(table, {})


def test_the_robust_choice_must_gain_clearly() -> None:
    def with_worst(us: float) -> Sensitivity:
        return table_of((100.0, 101.0), ("a", 2.0, (us, 100.0)))

    assert with_worst(102.5).robust is None
    robust = with_worst(104.0).robust
    assert robust is not None and robust.schedule == 1 and robust.worst is None
    assert (robust.max_loss, robust.answer_max_loss, robust.price) == pytest.approx((0.01, 0.04, 0.01))


@pytest.mark.quick(1)
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    table = found(CLOSE, (BY_DMA, BY_SM), Workers())
    lines = some(sensitivity_lines(table, {}))

    longest = max(map(len, (word for name in table.schedules for word in name.split())))
    assert max(map(len, lines)) <= max(columns, longest + 4)


# -- as a stage of advice ---------------------------------------------------------------------------------------------

SCENARIO = exploring(ag_gemm(1024, 2048, 4096, ranks=4), Explore.of(chunks=(4, 8, 16), engine=(DMA, SM)))
OPTIONS = AdviceOptions(top=3, bespoke=0)


@pytest.mark.slow
def test_it_is_part_of_advice_and_does_not_change_the_answer() -> None:
    advisor = Advisor.load()
    without, advice = (
        advisor.recommend(Scenario.of_one(SCENARIO), replace(OPTIONS, sensitivity=requested))
        for requested in (False, True)
    )

    assert without.sensitivity is None and advice.sensitivity is not None
    assert replace(advice, sensitivity=None, timing=without.timing) == without
    assert advice.sensitivity.schedules[0] == advice.recommended.expression
    assert advice.serial.expression in advice.sensitivity.schedules
    assert all(
        line in advice_text(advice, 8) for line in some(sensitivity_lines(advice.sensitivity, advice.short_names))
    )
    assert advice_document(without)["sensitivity"] is None


@pytest.fixture(scope="module")
def advice() -> Advice:
    return Advisor.load().recommend(Scenario.of_one(SCENARIO), replace(OPTIONS, sensitivity=True))


@pytest.mark.slow
def test_the_document_has_all_times(advice: Advice) -> None:
    document, table = advice_document(advice)["sensitivity"], advice.sensitivity

    assert table is not None and isinstance(document, dict)
    assert document["checked"] == "simulated" and document["schedules"] == list(table.schedules)
    assert len(document["changes"]) == sum(len(each.factors) for each in hardware_numbers(SCENARIO.system))
    keys = {"number", "factor", "paths", "us", "simulated", "fastest", "loss", "holds", "overlap_pays"}
    for each in some(document["changes"]):
        assert each.keys() == keys
        assert len(each["us"]) == len(each["simulated"]) == len(table.schedules)
        assert each["fastest"] in table.schedules and each["paths"]
    assert document["robust"] is None or document["robust"]["schedule"] in table.schedules


@pytest.mark.parametrize("verify", [True, False])
def test_collectives_alone_have_one_and_no_verdict_flips(verify: bool) -> None:
    options = AdviceOptions(top=3, bespoke=0, verify=verify, sensitivity=True)
    table = Advisor.load().recommend(Scenario.of_one(lone_gather(1024, 1024, ranks=4)), options).sensitivity

    assert table is not None and table.simulated is verify and table.flips == ()


@pytest.mark.slow
def test_a_failure_leaves_the_answer(advice: Advice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(advice_run, "sensitivity_of", fail)
    without = Advisor.load().recommend(Scenario.of_one(SCENARIO), replace(OPTIONS, sensitivity=True))

    assert without.sensitivity is None and not without.interrupted
    assert without.notes == (
        "the sensitivity failed and was left out: ValueError: on purpose (a fault of Magus, not of your file)",
    )
    assert without.recommended == advice.recommended and without.verdict is advice.verdict


@pytest.mark.slow
def test_a_stop_in_the_stage_leaves_the_answer_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = False

    def pressed(*args: object) -> None:
        nonlocal stop
        stop = True
        raise Cancelled

    advisor = Advisor.load()
    before = advisor.recommend(Scenario.of_one(SCENARIO), OPTIONS)
    monkeypatch.setattr(advice_run, "sensitivity_of", pressed)
    advice = advisor.recommend(Scenario.of_one(SCENARIO), replace(OPTIONS, sensitivity=True), should_stop=lambda: stop)

    assert advice.interrupted and advice.sensitivity is None
    assert advice.notes == ("stopped early: this is the best of what was found until then",)
    assert advice.recommended == before.recommended


def test_with_no_time_there_is_an_answer_without_it() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(SCENARIO), AdviceOptions(within_s=1e-9, sensitivity=True))

    assert advice.interrupted and advice.sensitivity is None


def test_of_long_plans_fewer_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = tuple(OpChoice("uniform_fused_1d", chunks, DMA) for chunks in (8, 16, 32))
    every = found(CLOSE, choices)
    monkeypatch.setattr(sensitivity, "MAX_STEPS", 0)
    few = found(CLOSE, choices)

    assert few.schedules == every.schedules[: sensitivity.MIN_COMPARED] and len(every.schedules) > len(few.schedules)
    assert "serial" in few.schedules[1], "the baseline is kept"
