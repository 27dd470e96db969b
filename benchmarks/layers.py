"""Whole layers: what a joint plan gains, how exact it is, and how fast it is simulated, in packets on one core."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from magus.compiler import compile_file
from magus.compiler.ir import Op, OpCase, Scenario, Schedule, Workload
from magus.compiler.planning.parts import kernel_alone
from magus.compiler.planning.plan import build_plan, choice_of_layers, layers_of
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.examples import path
from magus.simcore import simulate, simulate_op
from magus.simcore.simulate_layers import simulate_layers

from .harness.report import Figure, main, timed

LATE = "late"


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    back = compile_file(path("layers/llama70b_backward")).scenario()
    forward = compile_file(path("layers/llama70b_layer")).scenario()
    yield from _exact(back)
    yield from _gains(back)
    yield from _speed(back, forward)


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
