"""The compiled core beside the others: slices, room, wide clocks, loops through servers, and when it is loaded."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings

from magus.simcore import compiled
from magus.simcore.engine import Core, run
from magus.simcore.outcome import NEVER, Outcome
from magus.simcore.program import Flow, OpKind, Program, ProgramBuilder, Stage
from tests.oracle import Oracle
from tests.strategies import programs, random_program, symmetric_program


def assert_equals_oracle(program: Program) -> None:
    expected, result = Oracle(program).run(), run(program, core=Core.COMPILED)
    assert result.op_ready.tolist() == expected.ready
    assert result.op_start.tolist() == expected.start
    assert result.op_done.tolist() == expected.done
    assert result.flow_last.tolist() == expected.flow_last
    assert result.server_free.tolist() == expected.server_free
    assert (result.makespan_ticks, result.line_hops) == (expected.makespan, expected.line_hops)


@settings(max_examples=200, deadline=None)
@given(program=programs(max_ranks=4))
def test_slices_of_any_size_are_exact(program: Program) -> None:
    budget = compiled._LINE_HOPS_A_SLICE
    try:
        for compiled._LINE_HOPS_A_SLICE in (1, 37):
            assert_equals_oracle(program)
    finally:
        compiled._LINE_HOPS_A_SLICE = budget


@pytest.mark.parametrize("shape", ["mesh", "switch", "ring"])
@pytest.mark.parametrize("folded", [True, False])
def test_equals_oracle_on_symmetric_programs(shape: str, folded: bool) -> None:
    for seed in range(8):
        assert_equals_oracle(symmetric_program(seed, shape, 6, folded=folded))


def test_trains_of_one_gap_and_of_many_meet_at_a_server() -> None:
    b = ProgramBuilder(1, folded=False, unit_bytes=128)
    s, onward = b.server("s", 1, 0), b.server("onward", 2, 3)
    for number in range(60):
        flow = Flow(((s, 0), (onward, 0)), 1 + number % 40, number % 7, number % 5)
        b.op(0, OpKind.TILE, "t", [Stage(0, (flow,))], release_ticks=number * 3 % 50)

    assert_equals_oracle(b.build())


def test_units_wait_in_many_blocks() -> None:
    b = ProgramBuilder(1, folded=False, unit_bytes=128)
    fast, slow = b.server("fast", 1, 1), b.server("slow", 9, 1)
    flow = Flow(((fast, 0), (slow, 0), (fast, 0), (slow, 0)), 3000)
    b.op(0, OpKind.TRANSFER, "t", [Stage(0, (flow,))], count=2)

    assert_equals_oracle(b.build())


def test_clock_up_to_the_horizon() -> None:
    b = ProgramBuilder(1, folded=False, unit_bytes=128)
    s = b.server("s", 1 << 40, 1 << 50)
    flow = Flow(((s, 0), (s, 0)), 100, 1 << 41)
    b.op(0, OpKind.TRANSFER, "a", [Stage(1 << 59, (flow,))], count=2, setup_ticks=1 << 58)

    assert_equals_oracle(b.build())


def test_what_is_known_when_stopped_is_exact() -> None:
    program = random_program(5, num_ranks=3)
    whole = run(program, core=Core.COMPILED)
    budget, compiled._LINE_HOPS_A_SLICE = compiled._LINE_HOPS_A_SLICE, 5
    try:
        for looks in range(1, 12):
            told: list[int] = []
            part = run(program, core=Core.COMPILED, progress=told.append, should_stop=lambda: len(told) == looks)  # noqa: B023
            if part.outcome is not Outcome.CANCELLED:
                break
            assert told == sorted(told) and part.line_hops == told[-1]
            for name in ("op_ready", "op_start", "op_done", "flow_last"):
                known, expected = getattr(part, name), getattr(whole, name)
                np.testing.assert_array_equal(known[known != NEVER], expected[known != NEVER])
    finally:
        compiled._LINE_HOPS_A_SLICE = budget


def test_numba_is_loaded_by_the_first_run_that_needs_it() -> None:
    code = """
import sys
import magus.simcore, magus.advisor.workers
from magus.simcore.engine import Core, run
from magus.simcore.program import ProgramBuilder
program = ProgramBuilder(1, folded=False, unit_bytes=128).build()
run(program)
print("numba" in sys.modules)
run(program, core=Core.COMPILED)
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["False", "True"]
