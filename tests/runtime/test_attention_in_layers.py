"""Attention before and after collectives of a graph: exact, and found out where a wait or a key is missing."""

import random
from dataclasses import replace

import numpy as np
import pytest

from magus.compiler.ir import (
    Op,
    OpCase,
    OpMode,
    Plan,
    Read,
    Schedule,
    System,
    TileGroup,
    Workload,
)
from magus.compiler.planning.parts import PlanError
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.runtime import Outcome, carry_out
from magus.runtime.memory import Array
from magus.runtime.operands import MODULUS, drawn
from magus.runtime.run import PlanRun
from tests.helpers.marks import thinned
from tests.helpers.oracle.drawn_graphs import draw_whole
from tests.helpers.oracle.drawn_programs import draw_choice
from tests.helpers.scenarios.mlp_backward import plan_of_layers
from tests.helpers.scenarios.ulysses import OPERANDS, ulysses
from tests.helpers.scenarios.workloads import TEXTS, workload_of
from tests.helpers.some import some
from tests.runtime.test_attention import plainly, unpacked
from tests.runtime.test_wrong_layers import changed, dropped, follows_anyhow, last_run, side_by_side

PAIRS = [name for name in TEXTS if "attention" in name]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["chunked", "by_sms", "apart_", "serial"])
@pytest.mark.parametrize("operands", OPERANDS)
def test_every_schedule_and_form_of_operands(name: str, operands: str) -> None:
    scenario = ulysses(operands)
    choice = {each.name: each for each in (*scenario.schedules, SERIAL)}[name]

    report = carry_out(scenario.system, *plan_of_layers(scenario, choice, 2))

    assert [run.outcome for run in report.runs] == [Outcome.EXACT] * 3, report.runs[-1].sentences


@pytest.mark.parametrize("operands", OPERANDS)
def test_a_layer_is_that_of_plain_numpy(operands: str) -> None:
    """Every row and column is there, and every op is computed on whole tensors."""
    scenario, seed, n = ulysses(operands, m=8, inner=64, ranks=2), 5, 2
    run = PlanRun(scenario.system, *plan_of_layers(scenario, SERIAL, 1), seed, detail=None)

    assert run.report().outcome is Outcome.EXACT

    def declared(name: str, rows: int, cols: int) -> Array:
        return drawn(seed, name, np.arange(rows), np.arange(cols))

    def left(op: str, rank: int) -> Array:
        output = run.problems[op].memories[rank].outputs[-1]
        assert output is not None
        return np.vstack(list(output.values)) % MODULUS

    sent = [left("a_norm", rank) for rank in range(n)]
    found: list[Array] = []
    for rank in range(n):
        delivered = np.vstack([whole[4 * rank : 4 * rank + 4] for whole in sent])
        a = plainly(*unpacked(delivered, 8, 2), 2, 8) % MODULUS
        assert np.array_equal(left("a", rank), a)
        weights = {"qkv": declared("w", 64, 128), "q": declared("wq", 64, 64), "kv": declared("wq", 64, 64)}
        weights |= {name: declared("wk", 64, 32) for name in "kv"}
        made = [a @ weights[name] % MODULUS for name in operands.split(", ")]
        if len(made) == 3:
            q, k, v = made
        else:
            q, k, v = unpacked(np.hstack(made), 8, 2) if len(made) == 1 else (made[0], *unpacked(made[1], 8, 0)[1:])
        found.append(plainly(q, k, v, 2, 8))
    for rank in range(n):
        memory = run.problems["t"].memories[rank]
        for source in range(n):
            got = (memory.data if source == rank else memory.result).values[source]
            assert np.array_equal(got, found[source][4 * rank : 4 * rank + 4])


def draw_op(rng: random.Random, number: int, scenario: OpCase, before: list[Op]) -> Op:
    """Each operand is declared, or what an op before it leaves; the collective of a pair takes the last one."""
    workload = scenario.shape
    own = [tensor.name for tensor in workload.tensors if tensor.name not in workload.made]
    moved = own[-1] if not workload.pattern.produces else ""
    reads = (Read(name, rng.choice(["", *(op.name for op in before)]), moves=name == moved) for name in own)
    return Op(f"op{number}", workload, tuple(reads))


def draw_mode(rng: random.Random, op: Op, scenario: OpCase) -> OpMode:
    if op.shape.then is None and rng.random() < 0.3:
        return OpMode(op.name, separate=draw_whole(rng, scenario))
    return OpMode(op.name, draw_choice(rng, scenario))


def draw_plan(rng: random.Random) -> tuple[System, Workload, Plan]:
    """Three ops and a plan, drawn again where a get would not be told that its peer has made what it reads."""
    scenarios = [workload_of(name, 2, 64, 16) for name in rng.sample(PAIRS, 3)]
    while True:
        ops: list[Op] = []
        for number, scenario in enumerate(scenarios):
            ops.append(draw_op(rng, number, scenario, ops))
        modes = [draw_mode(rng, op, one) for op, one in zip(ops, scenarios, strict=True)]
        graph, choice = Workload("drawn", "", tuple(ops)), Schedule("drawn", tuple(modes))
        try:
            return scenarios[0].system, graph, build_plan(scenarios[0].system, graph, choice)
        except PlanError:
            continue


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", thinned(range(60), 6))
def test_drawn_graphs_of_attention(seed: int) -> None:
    """Every pattern with attention, ring attention and chains too, reading of each other whatever they leave."""
    report = carry_out(*draw_plan(random.Random(seed)))

    assert report.exact, report.runs[-1].sentences


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["chunked", "apart_"])
def test_a_wait_that_is_left_out_is_found(name: str) -> None:
    scenario = ulysses("q, k, v")
    choice = {each.name: each for each in scenario.schedules}[name]
    graph, plan = plan_of_layers(scenario, choice, 1)
    plan = side_by_side(plan)
    assert last_run(scenario, graph, plan).outcome is Outcome.EXACT

    cases = dropped(plan)
    runs = [last_run(scenario, graph, without) for _, _, without in cases]
    implied = [follows_anyhow(scenario, plan, without) for _, _, without in cases]

    assert implied.count(False) >= 6
    assert [run.outcome is Outcome.EXACT for run in runs] == implied


def test_keys_that_never_count_or_count_twice_are_found() -> None:
    scenario = ulysses()
    graph, plan = plan_of_layers(scenario, scenario.schedules[0], 1)
    part = plan.part("a")
    kernels = [step for step in part.schedule.steps if isinstance(step, TileGroup)]
    for kernel in some(kernels):
        first = kernel.regions[0]
        rows = replace(first, rows=replace(first.rows, stop=first.rows.stop // 2))
        for regions in (kernel.regions[1:], (rows, *kernel.regions[1:]), (first, *kernel.regions)):
            steps = tuple(replace(step, regions=regions) if step is kernel else step for step in part.schedule.steps)
            wrong = changed(plan, "a", schedule=replace(part.schedule, steps=steps))
            run = last_run(scenario, graph, wrong)
            assert run.outcome is not Outcome.EXACT, (kernel.name, regions)
