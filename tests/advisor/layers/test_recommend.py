"""Advice on whole layers: never slower than what people have, and what it says is what is simulated."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from magus.advisor import AdviceOptions
from magus.advisor.answer.export import advice_document
from magus.advisor.answer.rule import finalists, recommended_of
from magus.advisor.answer.stages import Watcher
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from magus.advisor.layers import joint, recommend
from magus.advisor.layers import search as layer_search
from magus.advisor.layers.declared import reasons_for
from magus.advisor.layers.joint import JointRuns
from magus.advisor.layers.orders import IN_TURN
from magus.advisor.layers.placement import LIMIT_S, QUICK_LIMIT_S
from magus.advisor.layers.recommend import recommend_workload
from magus.advisor.layers.search import JointSearch
from magus.advisor.learned.model_file import load as load_proposals
from magus.compiler import compile_text
from magus.compiler.ir import UNCUT, Cancelled, EngineKind, HandOff, OpChoice, Plan, Scenario, Schedule
from magus.compiler.ir.stopping import never
from magus.compiler.planning.build import ScheduleError, schedule_block
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.simcore import Result
from magus.simcore.simulate_layers import simulate_layers
from magus.tui.text.render import advice_text
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("compiled_core")

HEAD = """mgs 1
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
"""

CHAIN = """
workload mlp on hgx {
  x  = tensor bf16[2048, 2048] shard rows
  wu = tensor bf16[2048, 8192] shard cols
  wd = tensor bf16[8192, 2048] shard rows
  u = gemm(all_gather(x), wu)
  y = reduce_scatter(gemm(gelu(u), wd))
}
explore mlp { engine dma(3) }
"""

BACKWARD = """
workload back on hgx {
  dy = tensor bf16[2048, 2048] shard rows
  x  = tensor bf16[2048, 2048] shard rows
  h  = tensor bf16[2048, 8192] shard cols
  wd = tensor bf16[8192, 2048] shard rows
  wu = tensor bf16[2048, 8192] shard cols
  dyg  = all_gather(dy)
  dh   = gemm(dyg, wd.t)
  d_wd = gemm(h.t, dyg)
  dx   = reduce_scatter(gemm(dh, wu.t))
  xg   = all_gather(x)
  d_wu = gemm(xg.t, dh)
  repeat 12 dx as dy
}
explore back { engine dma(3) }
"""

FEW = BACKWARD.replace("engine dma(3)", "engine dma(3); chunks 16").replace("repeat 12", "repeat 6")
"""The same of half as many layers in pieces of one size: a fraction of the candidates, where any may be the best."""

BATCHES = """
workload two on hgx {
  x  = tensor bf16[4096, 2048] shard rows
  wu = tensor bf16[2048, 8192] shard cols
  wd = tensor bf16[8192, 2048] shard rows
  u = gemm(all_gather(x), wu)
  y = reduce_scatter(gemm(gelu(u), wd))
  repeat 8 y as x
  batch x by 512
}
explore two { engine dma(3); batches 1, 2 }
"""


def scenario_of(text: str) -> Scenario:
    return compile_text(HEAD + text).workloads[0]


@cache
def advice_on(text: str) -> Advice:
    return recommend_workload(scenario_of(text))


def test_schedules_that_are_one_plan_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, simulated = scenario_of(CHAIN), list[Plan]()

    def counted(*args: Any, **options: Any) -> Result:
        simulated.append(args[2])
        return simulate_layers(*args, **options)

    monkeypatch.setattr(joint, "simulate_layers", counted)
    runs = JointRuns(scenario.system, scenario.workload)
    said = replace(SERIAL, order=tuple(op.name for op in scenario.workload.ops))

    assert runs.ticks(SERIAL) == runs.ticks(said) is not None
    assert len(simulated) == 1 and runs.num_runs == 2


def test_how_large_runs_are_is_known_without_one() -> None:
    scenario = scenario_of(FEW)
    start = JointRuns(scenario.system, scenario.workload).begin(SERIAL, never)

    assert start is not None
    assert JointRuns(scenario.system, scenario.workload, quick=True)._counted(SERIAL, never) == start.line_hops


IN_BATCHES = pytest.param(BATCHES, marks=pytest.mark.slow, id="batches")


@pytest.mark.slow
@pytest.mark.parametrize("text", [pytest.param(CHAIN, id="chain"), pytest.param(BACKWARD, id="backward"), IN_BATCHES])
def test_the_answer_is_no_slower_than_what_people_have(text: str) -> None:
    advice = advice_on(text)
    known = [one for one in advice.candidates if not one.is_searched and not one.is_outside and one.result is not None]

    assert {"serial", IN_TURN} <= {one.expression for one in known}
    fastest = min(known, key=lambda one: one.ticks)
    assert advice.recommended.ticks <= fastest.ticks * (1 + advice.scenario.resolution)
    assert advice.bound is not None and advice.recommended.ticks >= advice.bound.ticks


@pytest.mark.slow
def test_a_chain_is_answered_by_the_best_of_its_pairs() -> None:
    advice = advice_on(CHAIN)

    assert advice.recommended.expression == IN_TURN
    faster = [one for one in advice.candidates if one.ticks < advice.recommended.ticks]
    assert all(one.is_searched and one.expression in advice.ties for one in some(faster)), "by less than is resolved"


@pytest.mark.slow
def test_independent_work_is_used() -> None:
    advice = advice_on(BACKWARD)
    in_turn, table = advice.named(IN_TURN), advice.named("te_table")

    assert in_turn is not None and table is not None
    assert advice.recommended.expression == "joint"
    assert advice.recommended.ticks * 1.05 < min(in_turn.ticks, table.ticks)
    hidden = {op.name: op.hidden_by for op in advice.ops if op.comm_ticks}
    assert hidden and any(name.startswith("d_w") for each in hidden.values() for name, _ in each)
    assert any("kernels alone" in reason for reason in advice.reasons)


def test_small_changes_begin_at_the_best_of_what_is_known() -> None:
    scenario = scenario_of(BACKWARD)
    search = JointSearch(scenario, JointRuns(scenario.system, scenario.workload))
    declared, placed = Schedule("declared", handoff=HandOff.WHOLE), Schedule("placed", sums_first=True)
    search.known, search.searched = {declared: "declared in the file"}, {placed}
    search.spaces = [SimpleNamespace(cut=UNCUT, workload=scenario.workload)]  # type: ignore[list-item]

    search.found = {declared: 3, placed: 2}
    assert search._starts() == [placed]
    search.found = {declared: 1, placed: 2}
    first, second = search._starts()
    assert second == placed and first.handoff is HandOff.WHOLE and len(first.order) == len(scenario.workload.ops)


def test_of_two_as_fast_in_another_order_one_is_changed() -> None:
    scenario = scenario_of(BACKWARD)
    search = JointSearch(scenario, JointRuns(scenario.system, scenario.workload))
    one, swapped, other = (Schedule("a", order=("u", "v")), Schedule("b", order=("v", "u")), Schedule("c", low=("u",)))
    search.searched = {one, swapped, other}

    search.found = {one: 100_000, swapped: 100_010, other: 200_000}
    assert search._starts() == [one]
    search.found = {one: 100_000, swapped: 100_100, other: 200_000}
    assert search._starts() == [one, swapped]
    search.found = {one: 100_000, swapped: 200_000, other: 100_010}
    assert search._starts() == [one, other]


def test_a_change_that_gained_nothing_is_tried_again_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(*said: Any) -> list[Schedule]:
        *_, choice = said
        rest = [each for each in ("loses", "gains", "gains too") if each not in choice.low]
        return [replace(choice, low=(*choice.low, each)) for each in rest]

    def ticks(choice: Schedule) -> int:
        tried.append(choice.low)
        return 1000 + 5 * ("loses" in choice.low) - 10 * (len(choice.low) - ("loses" in choice.low))

    tried: list[tuple[str, ...]] = []
    runs: Any = SimpleNamespace(is_spent=False, ticks=ticks)
    space: Any = SimpleNamespace(workload=None, op_options={}, following={})
    monkeypatch.setattr(layer_search, "small_changes", changes)
    monkeypatch.setattr(layer_search, "_estimate", lambda *_: 1)

    (_, best) = layer_search.improved(runs, space, Schedule("start"))

    assert best.low == ("gains", "gains too")
    assert tried == [(), ("loses",), ("gains",), ("gains", "gains too"), ("gains", "gains too", "loses")]


@pytest.mark.slow
def test_ops_with_exposed_copies_may_be_bespoke() -> None:
    advice = advice_on(CHAIN)
    bespoke = [one for one in advice.candidates if one.is_searched and _has_parts(one)]
    in_turn = advice.named(IN_TURN)

    assert in_turn is not None and bespoke and min(one.ticks for one in bespoke) < in_turn.ticks
    plain = recommend_workload(scenario_of(CHAIN), AdviceOptions(bespoke=0))
    assert not any(_has_parts(one) for one in plain.candidates)


@pytest.mark.slow
def test_what_a_model_proposes_for_an_op_is_tried_in_the_best_schedule() -> None:
    model, _ = load_proposals()
    plain, proposed = (
        recommend_workload(scenario_of(CHAIN), AdviceOptions(bespoke=1), proposals=each) for each in (None, model)
    )

    in_turn = proposed.named(IN_TURN)
    assert in_turn is not None and not any(_has_parts(one) for one in plain.candidates)
    assert min(one.ticks for one in proposed.candidates if _has_parts(one)) < in_turn.ticks
    assert all(("chunks that no template has" in one.what) == _has_parts(one) for one in proposed.candidates)


def test_what_is_kept_depends_on_the_model_that_proposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another model, or without, the answer may be another one."""
    questions: list[object] = []

    def asked(question: tuple[object, ...], packages: tuple[str, ...]) -> None:
        questions.append(question)
        raise Cancelled

    monkeypatch.setattr(recommend, "memo_of", asked)
    model, _ = load_proposals()
    for proposals in (None, model, replace(model, digest="another"), model):
        with pytest.raises(Cancelled):
            recommend_workload(scenario_of(CHAIN), AdviceOptions(bespoke=1), proposals=proposals)

    assert questions[1] == questions[3] and len({str(each) for each in questions}) == 3


def _has_parts(candidate: Candidate) -> bool:
    return any(isinstance(mode.body, OpChoice) and mode.body.parts for mode in candidate.joint.modes)


@pytest.mark.slow
def test_batches_are_tried() -> None:
    advice = advice_on(BATCHES)

    assert {one.joint.batches for one in advice.candidates} == {1, 2}
    assert advice.named("half_batches") is not None


@pytest.mark.slow
@pytest.mark.parametrize("text", [pytest.param(FEW, id="backward"), IN_BATCHES])
def test_the_block_that_is_printed_is_what_was_simulated(text: str) -> None:
    advice = advice_on(text)
    best = advice.recommended
    block = schedule_block(best.joint, advice.scenario.name)
    again = compile_text(HEAD + text + block).workloads[0]

    assert again.schedules == (best.joint,)
    assert best.unit_bytes is not None
    result = simulate_layers(again.system, again.workload, again.schedules[0], unit_bytes=best.unit_bytes)
    assert result.total_ticks == best.ticks


@pytest.mark.slow
def test_the_same_again() -> None:
    scenario = scenario_of(CHAIN)
    first, second = advice_on(CHAIN), recommend_workload(scenario)

    assert advice_document(first) | {"timing": 0} == advice_document(second) | {"timing": 0}


@pytest.mark.slow
def test_what_stages_too_much_is_not_recommended() -> None:
    scenario = scenario_of(BACKWARD)
    limit = advice_on(BACKWARD).recommended.result
    assert limit is not None
    most = limit.schedule.staging_bytes - 1
    advice = recommend_workload(replace(scenario, explore=replace(scenario.explore, staging_limit_bytes=most)))

    simulated = [one.result for one in advice.candidates if one.result is not None and one.expression != "serial"]
    assert all(result.schedule.staging_bytes <= most for result in simulated)
    assert advice.recommended.ticks >= advice_on(BACKWARD).recommended.ticks


def test_a_stop_keeps_what_was_found() -> None:
    scenario, calls = scenario_of(CHAIN), 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 60

    advice = recommend_workload(scenario, watcher=Watcher(should_stop=stop))
    assert advice.interrupted and any("stopped early" in mark for mark in advice.marks)
    assert advice.candidates
    with pytest.raises(Cancelled):
        recommend_workload(scenario, watcher=Watcher(should_stop=lambda: True))


@pytest.mark.slow
def test_without_a_search_the_placed_schedules_are_compared() -> None:
    quick = recommend_workload(scenario_of(BACKWARD), AdviceOptions(bespoke=0))

    assert quick.searched < advice_on(BACKWARD).searched
    assert quick.recommended.ticks >= advice_on(BACKWARD).recommended.ticks


def test_what_does_not_fit_is_refused() -> None:
    large = BACKWARD.replace("repeat 12", "repeat 4000")
    with pytest.raises(ScheduleError, match="the tensors of 4000 layers take"):
        recommend_workload(scenario_of(large))


@pytest.mark.slow
def test_a_schedule_of_the_file_with_the_name_of_a_searched_one_keeps_its_own_time() -> None:
    declared = """schedule joint for mlp { separate u by dma(3); handoff whole }
schedule in_turn for mlp { separate y by dma(3) }"""
    scenario = scenario_of(CHAIN + declared)
    advice = recommend_workload(scenario, AdviceOptions(bespoke=0))

    names = [one.expression for one in advice.candidates]
    assert len(names) == len(set(names)) and {"joint", "in_turn", "in_turn_2"} <= set(names)
    for one in advice.candidates:
        assert (one.what == "declared in the file") is (one.joint in scenario.schedules)
        assert one.ticks == pytest.approx(one.predicted_ticks, rel=0.02)  # all layers are one: of the same schedule


@pytest.mark.slow
def test_estimates_answer_where_a_stop_left_no_time_for_more() -> None:
    advice = advice_on(FEW)
    estimated = [replace(one, result=None, simulated_ticks=None) for one in advice.candidates]

    best = recommended_of(advice.scenario, finalists(advice.scenario, estimated))
    assert best.expression == advice.recommended.expression


def test_times_of_layers_that_show_no_period_are_marked() -> None:
    advice = advice_on(CHAIN)
    exact = advice_text(advice, 8)
    assert not any(each.is_estimate for each in advice.candidates if each.result is not None)
    assert "show no period" not in exact

    def guessed(one: Candidate) -> Candidate:
        return one if one.result is None else replace(one, result=replace(one.result, is_estimate=True))

    candidates = tuple(map(guessed, advice.candidates))
    marked = replace(advice, recommended=guessed(advice.recommended), candidates=candidates)
    text, document = advice_text(marked, 8), advice_document(marked)
    assert text.count("show no period") == 1 and f"~{advice.recommended.best_us:.1f}" in text
    assert f"~{advice.recommended.best_us:.1f}" not in exact
    assert [each["estimated"] for each in document["candidates"]] == [True] * len(candidates)
    assert [each["estimated"] for each in advice_document(advice)["candidates"]] == [
        each.result is None for each in advice.candidates
    ]


@pytest.mark.slow
def test_kernels_side_by_side_in_the_file_end_no_search() -> None:
    beside = scenario_of(CHAIN + "schedule two for mlp { stream 1 u }")
    search = JointSearch(beside, JointRuns(beside.system, beside.workload), climbs=False)
    search.found[beside.schedules[0]] = 1  # faster than all kernels one after the other

    assert next(iter(search._spaces()), None) is not None


def test_an_answer_that_was_kept_is_shown_as_a_new_one() -> None:
    advice = advice_on(CHAIN)
    kept = replace(advice, recommended=replace(advice.recommended))  # equal, and another object

    assert f"* {advice.recommended.expression}" in advice_text(kept, 8)
    assert advice_text(kept, 8) == advice_text(advice, 8)


def test_a_limit_that_nothing_meets_is_said() -> None:
    declared = "schedule whole for mlp { separate u by dma(3) }"
    scenario = scenario_of(CHAIN.replace("engine dma(3) }", "engine dma(3); staging <= 1 KiB }") + declared)
    advice = recommend_workload(scenario, AdviceOptions(bespoke=0))

    assert advice.verdict is Verdict.SERIAL and len(advice.candidates) == 1
    marks = " ".join(advice.marks)
    assert "whole is left out: it stages" in marks and "more than the 1 KiB that the file allows" in marks
    assert "serial: it stages" in marks and "nothing that was found stages less" in marks


@pytest.mark.slow
def test_a_quick_answer_gives_the_solver_less(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, limits = scenario_of(FEW), list[float]()

    def placed(*given: object, limit: float, **more: object) -> tuple[Schedule, ...]:
        limits.append(limit)
        return ()

    monkeypatch.setattr(layer_search, "placed_choices", placed)
    for quick in (True, False):
        JointSearch(scenario, JointRuns(scenario.system, scenario.workload, quick=quick), climbs=False).run()

    half = len(limits) // 2
    assert half and limits == [QUICK_LIMIT_S] * half + [LIMIT_S] * half


def test_what_changes_have_gained_until_a_stop_is_kept() -> None:
    scenario = scenario_of(FEW)
    runs = JointRuns(scenario.system, scenario.workload)
    search = JointSearch(scenario, runs, climbs=False)
    search.run()
    start = search.best_searched()[-1]
    gained: list[int] = []

    def reported(choice: Schedule, ticks: int) -> None:
        gained.append(ticks)
        runs.should_stop = lambda: ticks < search.found[start] * 0.99

    runs.reported = reported
    with pytest.raises(Cancelled):
        search._climbed(start)
    assert search.found[search.best_searched()[0]] <= min(gained) < search.found[start]


def test_without_pairs_there_is_nothing_to_compare_with_but_no_overlap() -> None:
    kernels = "workload two on hgx { x = tensor bf16[1024, 2048] shard rows\n y = all_gather(x)\n z = norm(x) }"
    advice = recommend_workload(scenario_of(kernels + "\nexplore two { engine dma(3) }"))

    assert {one.expression for one in advice.candidates if not one.is_searched} == {"library", "serial"}


def test_the_mark_of_kernels_side_by_side_is_explained() -> None:
    advice = advice_on(CHAIN)
    beside = joint_candidate(Schedule("two", streams=(("u", 1),)), ScheduleOrigin.KNOWN, "by hand", 100)
    beside = replace(beside, simulated_ticks=100)
    text = advice_text(replace(advice, candidates=(*advice.candidates, beside)), 8)

    assert "! two" in text and "! kernels share the SMs" in text
    assert beside.engines == frozenset() and advice.recommended.engines == {EngineKind.DMA}
    assert "! kernels share the SMs" not in advice_text(advice, 8)


@pytest.mark.quick(1)
@pytest.mark.parametrize("climbs", [True, False])
@pytest.mark.parametrize("better", list(HandOff))
def test_each_searched_schedule_is_tried_with_the_other_seams(
    monkeypatch: pytest.MonkeyPatch, better: HandOff, climbs: bool
) -> None:
    def ticks(runs: JointRuns, choice: Schedule) -> int:
        return 100 - (choice.handoff is better) - 2 * choice.sums_first

    monkeypatch.setattr(JointRuns, "ticks", ticks)
    scenario = scenario_of(CHAIN)
    search = JointSearch(scenario, JointRuns(scenario.system, scenario.workload), places=False, climbs=climbs)
    search.run()

    best = search.best_searched()[0]
    assert (best.handoff, best.sums_first, search.found[best]) == (better, True, 97)


def test_no_schedule_is_said_to_take_less_than_its_kernels() -> None:
    serial = joint_candidate(SERIAL, ScheduleOrigin.SERIAL, "no overlap", 100)

    assert [said.rpartition(": ")[2] for said in reasons_for((), serial, None, 80)] == [
        "the schedule takes 25.0% more."
    ]
    assert list(reasons_for((), serial, None, 110)) == []
