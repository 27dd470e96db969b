"""Schedules of graphs as text: what is written compiles to the same schedule."""

import random
from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, HandOff, OpCase, OpMode, Scenario, Schedule, WrittenPlan
from magus.compiler.planning.build import ScheduleError, expression_of_schedule, schedule_block
from magus.compiler.planning.parts import PlanError
from magus.compiler.planning.plan import build_plan
from tests.helpers.oracle.drawn_graphs import draw_whole
from tests.helpers.oracle.drawn_programs import draw_choice
from tests.helpers.scenarios.mlp_backward import plain_backward, plain_text

MORE = "n = norm(dx)"


@pytest.fixture(scope="module")
def back() -> Scenario:
    return plain_backward(4096, MORE)


def draw(rng: random.Random, scenario: Scenario, name: str) -> Schedule:
    """A schedule with something of everything that a block can say, drawn until it can be kept."""
    ops = scenario.workload.ops
    names = [op.name for op in ops]

    def mode(op_index: int) -> OpMode:
        op = ops[op_index]
        if op.is_pair and rng.random() < 0.4:
            return OpMode(op.name, separate=draw_whole(rng, OpCase(op.name, scenario.system, op.shape)))
        return OpMode(op.name, draw_choice(rng, OpCase(op.name, scenario.system, op.shape)))

    while True:
        chosen = rng.sample(range(len(ops)), rng.randint(0, len(ops)))
        choice = Schedule(
            name,
            tuple(mode(index) for index in chosen),
            tuple(rng.sample(names, rng.randint(0, len(names)))) if rng.random() < 0.5 else (),
            tuple((each, rng.choice((1, 2))) for each in names if rng.random() < 0.2),
            (("xg", rng.choice(("dx", "dh"))),) if rng.random() < 0.5 else (),
            tuple(rng.sample(names, rng.randint(0, 2))),
            rng.random() < 0.5,
            rng.choice(list(HandOff)),
        )
        try:
            build_plan(scenario.system, scenario.workload, choice)
            return choice
        except PlanError:
            continue


@pytest.mark.slow
def test_what_is_written_compiles_to_the_same_schedule(back: Scenario) -> None:
    rng = random.Random("blocks")
    drawn = tuple(draw(rng, back, f"s{number}") for number in range(60))

    schedules = "".join(schedule_block(choice, "back") for choice in drawn)
    (read,) = compile_text(plain_text(4096, MORE, schedules)).workloads

    assert read.schedules == drawn


def test_one_line_says_the_same_in_every_order(back: Scenario) -> None:
    rng = random.Random("lines")
    drawn = [draw(rng, back, "s") for _ in range(20)]
    mixed = [
        replace(
            choice,
            name="t",
            modes=tuple(reversed(choice.modes)),
            streams=tuple(reversed(choice.streams)),
            low=tuple(reversed(choice.low)),
        )
        for choice in drawn
    ]

    assert list(map(expression_of_schedule, mixed)) == list(map(expression_of_schedule, drawn))
    assert len(set(map(expression_of_schedule, drawn))) == len(set(drawn))


def test_nothing_said() -> None:
    assert schedule_block(Schedule("usual"), "back") == "schedule usual for back { }\n"
    assert expression_of_schedule(Schedule("usual", streams=(("dh", 0),))) == "{ }"


def test_a_plan_written_out_has_no_words_here() -> None:
    mode = OpMode("dh", WrittenPlan(EngineChoice(EngineKind.DMA, 7), ()))
    with pytest.raises(ScheduleError, match="dh has a plan written out"):
        schedule_block(Schedule("s", (mode,)), "back")
