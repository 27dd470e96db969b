"""What hands a schedule over: each format says what the command line says, or why it cannot."""

import json
from dataclasses import replace

import pytest

from magus.advisor.candidates.advice import Advice
from magus.advisor.targets import SCENARIO_TARGETS, TARGETS, Refused
from magus.compiler.ir import EngineKind, EngineMode, OpPlan, Scenario
from magus.compiler.planning.build import ScheduleError
from magus.tui.text.handover import HANDOVERS, PLAN_JSON, PLAN_MGS
from magus.tui.text.next_steps import shipped_lines
from tests.helpers.some import some
from tests.helpers.tui import real

BY_NAME = {each.name: each for each in HANDOVERS}


@pytest.fixture(scope="module")
def advice() -> Advice:
    scenario = real.gather()
    return real.RealStages(scenario).recommend(
        Scenario.of_one(scenario), lambda *_: None, lambda: False, lambda _: None
    )


@pytest.fixture(scope="module")
def picked(advice: Advice) -> OpPlan:
    return advice.candidates[1].schedule


def test_plans_come_first_and_every_target_has_a_line() -> None:
    names = [each.name for each in HANDOVERS]

    assert names[:8] == ["json", "mgs", "steps", "trace", "svg", "triton", "mscclpp", "syncopate"]
    assert names[8:] == [*(target.name for target in TARGETS), *(target.name for target in SCENARIO_TARGETS)]
    assert len({each.file for each in HANDOVERS}) == len(HANDOVERS)


def test_plans_are_those_of_the_picked_schedule(advice: Advice, picked: OpPlan) -> None:
    document = json.loads(PLAN_JSON.text(advice, picked, {}))

    assert document["expression"] == picked.expression
    assert PLAN_MGS.text(advice, picked, {}).startswith(f"# {picked.expression}\nschedule plan_1 for up")
    assert picked.expression in BY_NAME["steps"].text(advice, picked, {})
    assert "@triton.jit" in BY_NAME["triton"].text(advice, picked, {})


def test_runs_are_those_of_the_picked_schedule(advice: Advice, picked: OpPlan) -> None:
    trace = json.loads(BY_NAME["trace"].text(advice, picked, {}))

    assert any(event["ph"] == "X" for event in trace["traceEvents"])
    assert BY_NAME["svg"].text(advice, picked, {}).startswith("<svg")


def test_rules_are_those_of_the_recommended_schedule_at_its_size(advice: Advice, picked: OpPlan) -> None:
    rule, *fallbacks = json.loads(BY_NAME["policy"].text(advice, picked, {}))["rules"]

    assert rule["schedule"] == advice.recommended.expression
    assert {(each["min"], each["max"]) for each in (rule, *fallbacks)} == {(2048, 2048)}
    assert BY_NAME["policy"].of_advice


def test_what_a_format_cannot_say_is_refused(advice: Advice, picked: OpPlan) -> None:
    serial = advice.serial.schedule
    library = replace(serial, engine=replace(serial.engine, kind=EngineKind.SM, mode=EngineMode.LIBRARY))
    for handover in some((PLAN_JSON, PLAN_MGS)):
        with pytest.raises(ScheduleError):
            handover.text(advice, library, {})
    with pytest.raises(ScheduleError):
        BY_NAME["mscclpp"].text(advice, picked, {})
    with pytest.raises(Refused):
        BY_NAME["nccl"].text(advice, picked, {})
    with pytest.raises(Refused, match="nonsense"):
        BY_NAME["megatron"].text(advice, picked, {"nonsense": "1"})


def test_without_a_shipped_implementation_that_is_said(advice: Advice) -> None:
    (line,) = shipped_lines(advice, advice.candidates[0])

    assert line.startswith("No shipped implementation is known")
