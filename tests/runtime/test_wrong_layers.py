"""What is wrong with a plan of a graph shows, whatever the threads do: waits, circles, and memory that is free."""

from dataclasses import replace
from graphlib import TopologicalSorter

import pytest

from magus.compiler.ir import Awaited, OpChoice, Part, PartWait, Plan, Scenario, StepWait, Transfer, Workload
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.runtime import Outcome, carry_out
from magus.runtime.report import SeedRun
from magus.runtime.tasks import Mark, Task, landing_ranks, marks_of, tasks_of
from tests.helpers.marks import first
from tests.helpers.scenarios.exchange import DMA, along, exchange
from tests.helpers.scenarios.mlp_backward import backward, plan_of_layers


@pytest.fixture(scope="module")
def back() -> Scenario:
    return backward()


def last_run(scenario: Scenario, graph: Workload, plan: Plan) -> SeedRun:
    return carry_out(scenario.system, graph, plan).runs[-1]


def changed(plan: Plan, name: str, **changes: object) -> Plan:
    parts = (replace(part, **changes) if part.name == name else part for part in plan.parts)  # type: ignore[arg-type]
    return replace(plan, parts=tuple(parts))


def side_by_side(plan: Plan) -> Plan:
    """Every part with kernels in a stream of its own, nothing beside it: nothing follows from what begins when."""
    parts = []
    for place, part in enumerate(plan.parts, start=1):
        waits = tuple(wait for wait in part.waits if wait.what is not Awaited.BEGUN)
        stream = part.stream if part.stream < 0 else place
        parts.append(replace(part, stream=stream, waits=waits, behind_kernels=False))
    return replace(plan, parts=tuple(parts))


def dropped(plan: Plan) -> list[tuple[Part, PartWait | StepWait, Plan]]:
    """Each wait that feeds a part, and the plan without it."""
    found: list[tuple[Part, PartWait | StepWait, Plan]] = []
    for part in plan.parts:
        for place, wait in enumerate(part.waits):
            waits = (*part.waits[:place], *part.waits[place + 1 :])
            found.append((part, wait, changed(plan, part.name, waits=waits)))
        for place, step in enumerate(part.step_waits):
            steps = (*part.step_waits[:place], *part.step_waits[place + 1 :])
            found.append((part, step, changed(plan, part.name, step_waits=steps)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", first(["late", "pairs", "ring", "serial"], 1))
def test_a_wait_that_is_left_out_is_found(back: Scenario, name: str) -> None:
    """The step that reads too early is named. A few follow from others, as a sum from a later one of its stream."""
    choice = {each.name: each for each in (*back.schedules, SERIAL)}[name]
    graph, plan = plan_of_layers(back, choice, 2)
    plan = side_by_side(plan)
    assert last_run(back, graph, plan).outcome is Outcome.EXACT

    cases = dropped(plan)
    runs = [last_run(back, graph, without) for _, _, without in cases]
    implied = [follows_anyhow(back, plan, without) for _, _, without in cases]

    assert implied.count(False) >= 12 > 4 * implied.count(True)
    assert [run.outcome is Outcome.EXACT for run in runs] == implied
    for (part, _, _), run in zip(cases, runs, strict=True):
        assert run.outcome is Outcome.EXACT or f": {part.name}." in run.sentences[0], run.sentences


def follows_anyhow(scenario: Scenario, plan: Plan, without: Plan) -> bool:
    """Whether what steps no longer wait for is certain to come before them by other waits."""
    tasks, lost = (tasks_of(each, scenario.num_ranks).all for each in (plan, without))
    n = scenario.num_ranks
    reached: dict[Mark, list[Task]] = {}
    for task in lost:
        for mark in marks_of(task, n):
            reached.setdefault(mark, []).append(task)
    before = {task: {each for mark in task.waits for each in reached[mark]} for task in lost}
    known: dict[Task, set[Task]] = {}
    for task in TopologicalSorter(before).static_order():
        known[task] = before[task].union(*(known[each] for each in before[task]))
    needed = [
        (maker, late)
        for task, late in zip(tasks, lost, strict=True)
        for mark in set(task.waits) - set(late.waits)
        for maker in reached[mark]
        if not isinstance(maker.step, Transfer) or late.rank in landing_ranks(maker.step, maker.rank, n)
    ]
    return all(maker in known[late] for maker, late in needed)


def test_what_the_order_of_a_stream_implies_need_not_be_said(back: Scenario) -> None:
    graph, plan = plan_of_layers(back, SERIAL, 1)

    assert last_run(back, graph, changed(plan, "du", waits=())).outcome is Outcome.EXACT
    assert last_run(back, graph, changed(side_by_side(plan), "du", waits=())).outcome is Outcome.FAULT


def test_parts_that_wait_for_each_other_stand_still_and_are_named(back: Scenario) -> None:
    graph, plan = plan_of_layers(back, SERIAL, 1)
    circle = changed(plan, "dh", waits=(PartWait("du"),))

    run = last_run(back, graph, circle)

    assert run.outcome is Outcome.DEADLOCK
    assert len(run.sentences) == 2, "a circle of two steps"
    assert any("du.g0 waits for dh." in sentence for sentence in run.sentences)
    assert any(": dh." in sentence and "waits for du.g0" in sentence for sentence in run.sentences)


def test_memory_that_is_free_too_early_is_found(back: Scenario) -> None:
    """d_wdn comes behind dh by du, so that its data is there; but nothing holds what dh gathers for it."""
    graph, plan = plan_of_layers(back, SERIAL, 1)
    assert plan.holders()["dh"] == ("d_wdn",)
    parts = {part.name: part for part in plan.parts}
    order = [parts[name] for name in ("dh", "du", "d_wdn", "dx", "xg", "d_wup")]
    behind = changed(replace(plan, parts=tuple(order)), "d_wdn", waits=(PartWait("du"),))

    runs = [carry_out(back.system, graph, behind, seeds=(seed,)).runs[-1] for seed in range(4)]

    assert behind.holders()["dh"] == ()
    assert {run.outcome for run in runs} == {Outcome.FAULT}
    assert all("d_wdn.g0 reads" in run.sentences[0] and "free again by then" in run.sentences[0] for run in runs)


def test_rows_of_the_wrong_place_are_found(back: Scenario) -> None:
    """Each step of dh in the second layer waits for the rows of another one."""
    graph, plan = plan_of_layers(back, back.schedules[0], 2)
    waits = plan.part("dh@2").step_waits
    assert waits
    turned = tuple(replace(one, of=other.of) for one, other in zip(waits, (*waits[1:], waits[0]), strict=True))

    run = last_run(back, graph, changed(plan, "dh@2", step_waits=turned))

    assert run.outcome is Outcome.FAULT
    assert "dh@2." in run.sentences[0] and "rows " in run.sentences[0]


def test_a_step_that_computes_less_is_a_wrong_result(back: Scenario) -> None:
    graph, plan = plan_of_layers(back, back.schedules[0], 1)
    dh = plan.part("dh")
    steps = dh.schedule.steps
    gone = next(step for step in reversed(steps) if step.name.startswith("g"))
    less = replace(dh, schedule=replace(dh.schedule, steps=tuple(step for step in steps if step is not gone)))
    lone = replace(plan, parts=(less,))

    run = last_run(back, replace(graph, ops=graph.ops[:1]), lone)

    assert run.outcome is Outcome.WRONG
    assert "has nothing in rows" in run.sentences[0] and "of dh" in run.sentences[0]


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["below", "beside"])
def test_a_wait_for_an_exchange_that_is_left_out_is_found(kind: str) -> None:
    scenario = exchange(kind)
    graph, plan = plan_of_layers(
        scenario, along(OpChoice("hetero_fused_1d", 8, DMA)), min(2, scenario.workload.num_layers)
    )
    plan = side_by_side(plan)
    assert last_run(scenario, graph, plan).outcome is Outcome.EXACT

    cases = [case for case in dropped(plan) if case[0].op.startswith("y_gemm")]
    runs = [last_run(scenario, graph, without) for _, _, without in cases]
    implied = [follows_anyhow(scenario, plan, without) for _, _, without in cases]

    assert implied.count(False) >= 6 > implied.count(True)
    assert [run.outcome is Outcome.EXACT for run in runs] == implied
