"""Whole layers: what a joint plan gains, how exact it is, and how fast it is simulated, in packets on one core.

Last come two GEMMs with an all_to_all between them, and a norm: two ops cut along each other, against one plan and
whole.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from magus.advisor import Advisor
from magus.advisor.candidates.advice import Advice
from magus.advisor.layers.recommend import recommend_workload
from magus.compiler import compile_file, compile_text
from magus.compiler.ir import TICKS_PER_US, Op, OpCase, Scenario, Schedule, Workload
from magus.compiler.planning.parts import kernel_alone
from magus.compiler.planning.plan import build_plan, choice_of_layers, layers_of
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.examples import path
from magus.simcore import simulate, simulate_op
from magus.simcore.simulate_layers import simulate_layers

from .harness.report import Figure, main, timed

TEXT = """
use "nvidia/h100"
system hgx {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload chain on hgx {{
  x = tensor bf16[{rows}, {inner}]
  w = tensor bf16[{inner}, {columns}]
  v = tensor bf16[{columns}, {then}]
  y = gemm(all_to_all(gemm(x, w)), v)
  {more}
}}
"""
SHAPES = (
    (8192, 4096, 4096, 4096),
    (8192, 4096, 1024, 1024),
    (16384, 4096, 512, 4096),
    (4096, 8192, 4096, 1024),
    (32768, 7168, 2048, 7168),
)
"""Rows, columns and inner dimension of the first GEMM, and columns of the second."""


def _chains() -> Iterator[Figure]:
    """Yield for each shape what advice finds, as graph and as pair."""
    for shape in SHAPES:
        yield from _of_shape(*shape)


def _of_shape(rows: int, columns: int, inner: int, then: int) -> Iterator[Figure]:
    def text(more: str) -> str:
        return TEXT.format(rows=rows, columns=columns, inner=inner, then=then, more=more)

    name = f"{rows} x {columns} x {inner}, then x {then}"
    advice = recommend_workload(compile_text(text("z = norm(y)")).scenario())
    times = {
        along: min(one.ticks for one in advice.candidates if bool(one.joint.chained) is along)
        for along in (False, True)
    }
    pair = Advisor(None).recommend(compile_text(text("")).scenario())
    yield Figure(f"{name}: along", times[True] / TICKS_PER_US, "us", "lower")
    yield Figure(f"{name}: whole over along", times[False] / times[True], "x", "higher")
    alone = _until_the_norm(advice) / TICKS_PER_US
    yield Figure(f"{name}: answer over that of one plan", alone / pair.recommended.best_us, "x", "lower")


def _until_the_norm(advice: Advice) -> int:
    """When both GEMMs have ended in the answer."""
    begins = [op.begin_ticks for op in advice.ops]
    return max(op.end_ticks for op in advice.ops if op.name != "z") - min(begins)


LATE = "late"


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    back = compile_file(path("layers/llama70b_backward")).scenario()
    forward = compile_file(path("layers/llama70b_layer")).scenario()
    yield from _exact(back)
    yield from _gains(back)
    yield from _speed(back, forward)
    yield from _chains()


def _choice(scenario: Scenario, name: str) -> Schedule:
    return next((choice for choice in scenario.schedules if choice.name == name), SERIAL)


def _one_layer(scenario: Scenario, name: str) -> int:
    graph = replace(scenario.workload, repeat=None)
    plan = build_plan(scenario.system, graph, _choice(scenario, name))
    return simulate(scenario.system, plan).makespan_ticks


def _exact(back: Scenario) -> Iterator[Figure]:
    """Ops of the example as graphs of one op, and layers by period against layers one by one."""
    off = 0
    for op in back.workload.ops:
        mode = next((mode for mode in _choice(back, LATE).modes if mode.op == op.name and mode.body), None)
        alone = Workload("one", "", (Op(op.name, op.shape),))
        choice = Schedule("one", (mode,) if mode else ())
        plan = build_plan(back.system, alone, choice)
        joint = simulate(back.system, plan).makespan_ticks
        part = plan.parts[0]
        single = simulate_op(OpCase(op.name, back.system, op.shape), part.schedule).makespan_ticks
        off += joint != single
    yield Figure("ops alone whose ticks differ from those of the pair", off, "ops", "lower", 0)
    count = 80
    by_period = simulate_layers(back.system, back.workload, _choice(back, LATE), unit_bytes=8192)
    plan = build_plan(back.system, layers_of(back.workload, count), choice_of_layers(_choice(back, LATE), count))
    direct = simulate(back.system, plan, unit_bytes=8192).makespan_ticks
    yield Figure("80 layers by period less one by one", abs(by_period.total_ticks - direct), "ticks", "lower", 0)


def _gains(back: Scenario) -> Iterator[Figure]:
    """Makespans of one layer, and of the kernels alone."""
    times = {name: _one_layer(back, name) for name in ("serial", "pairs", "te", LATE)}
    for name, ticks in times.items():
        yield Figure(f"MLP backward, 8192 tokens, {name}", ticks / 10**8, "us", "lower")
    kernels = sum(
        simulate(
            back.system,
            build_plan(back.system, Workload("k", "", (_kernel(op),)), Schedule("k")),
        ).makespan_ticks
        for op in back.workload.ops
        if op.shape.compute is not None
    )
    yield Figure("the same, kernels alone", kernels / 10**8, "us", "lower")
    yield Figure("late over kernels alone", times[LATE] / kernels, "x", "lower")


def _kernel(op: Op) -> Op:
    return Op(op.name, kernel_alone(op.shape) if op.is_pair else op.shape)


def _speed(back: Scenario, forward: Scenario) -> Iterator[Figure]:
    """Seconds of one layer, of two as 12 ops, and of 80, plans and lowering included."""
    one = replace(back.workload, repeat=None)
    two = layers_of(back.workload, 2)
    for name, graph, choice, target in (
        ("6 ops", one, _choice(back, LATE), None),
        ("12 ops", two, choice_of_layers(_choice(back, LATE), 2), 1.5),
    ):
        seconds, _ = timed(partial(_planned, back, graph, choice), repeats=3)
        yield Figure(f"backward of {name}, 8192 tokens, in packets", seconds, "s", "lower", target)
    for name, scenario, schedule in (("backward", back, LATE), ("forward", forward, "pairs")):
        seconds, _ = timed(partial(_layers, scenario, schedule))
        yield Figure(f"80 layers {name}, 8192 tokens, in packets", seconds, "s", "lower", 5)


def _planned(scenario: Scenario, graph: Workload, choice: Schedule) -> int:
    plan = build_plan(scenario.system, graph, choice)
    return simulate(scenario.system, plan).makespan_ticks


def _layers(scenario: Scenario, schedule: str) -> int:
    choice = _choice(scenario, schedule)
    return simulate_layers(scenario.system, scenario.workload, choice).total_ticks


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
