"""The compiled core beside the others: slices, room, wide clocks, loops of servers, polls, and when it is loaded."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given

from magus.compiler.ir import makes_code
from magus.simcore.cores import compiled, compiled_state
from magus.simcore.cores.compiled_types import FLOW, HOP, OP, STAGE
from magus.simcore.cores.engine import Core, load_core, run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import NEVER, Flow, OpKind, OpSpec, Program, Run, RunOutcome, Stage
from tests.helpers.marks import examples
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.oracle.strategies import ALL, programs, random_program, symmetric_program


def assert_equals_oracle(program: Program) -> None:
    assert differences(program, run(program, core=Core.COMPILED), Oracle(program).run()) == []


@pytest.fixture
def slices() -> Iterator[None]:
    """Puts the size of slices back."""
    budget = compiled._LINE_HOPS_PER_SLICE
    yield
    compiled._LINE_HOPS_PER_SLICE = budget


def disturbed_by_polls(program: Program, result: Run) -> set[str]:
    """What the rules leave open where polls go on beside a deadlock: it depends on when that is noticed."""
    polling = program.stage_op[program.stage_polls]
    in_vain = (result.op_start[polling] != NEVER) & (result.op_done[polling] == NEVER)
    return {"server_free", "line_hops", "polls", "blocked"} if in_vain.any() else set()


@pytest.mark.usefixtures("slices")
@examples(80, deep=2000)
@given(program=programs(max_ranks=4))
def test_slices_of_any_size_are_exact(program: Program) -> None:
    for compiled._LINE_HOPS_PER_SLICE in (1, 37):
        assert_equals_oracle(program)


@pytest.mark.usefixtures("slices")
@examples(30, deep=2000)
@given(program=programs(max_ranks=4, features=ALL))
def test_slices_of_any_size_are_exact_when_units_are_held_back(program: Program) -> None:
    expected = Oracle(program).run()
    for compiled._LINE_HOPS_PER_SLICE in (1, 37, 1 << 16):
        result = run(program, core=Core.COMPILED)
        assert set(differences(program, result, expected)) <= disturbed_by_polls(program, result)


def test_records_of_the_longest_search_of_a_layer_are_kept() -> None:
    """That of the backward pass of Kimi-K2 in examples/moe: so many hops, flows, ops and stages, one for each op."""
    counts = {HOP: 1_443_120, FLOW: 855_756, OP: 292_959, STAGE: 292_959}

    assert sum(layout.itemsize * count for layout, count in counts.items()) < compiled_state._KEPT_BYTES


@pytest.mark.quick(3)
@pytest.mark.parametrize("shape", ["mesh", "switch", "ring"])
@pytest.mark.parametrize("folded", [True, False])
def test_equals_oracle_on_symmetric_programs(shape: str, folded: bool) -> None:
    for seed in range(8):
        assert_equals_oracle(symmetric_program(seed, shape, 6, folded=folded))


def test_trains_of_one_gap_and_of_many_meet_at_a_server() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s, onward = b.server("s", 1, 0), b.server("onward", 2, 3)
    for number in range(60):
        flow = Flow(((s, 0), (onward, 0)), 1 + number % 40, number % 7, number % 5)
        b.op(0, OpSpec(OpKind.TILE, "t", [Stage(0, (flow,))], release_ticks=number * 3 % 50))

    assert_equals_oracle(b.build())


def test_units_wait_in_many_blocks() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    fast, slow = b.server("fast", 1, 1), b.server("slow", 9, 1)
    flow = Flow(((fast, 0), (slow, 0), (fast, 0), (slow, 0)), 3000)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (flow,))]), count=2)

    assert_equals_oracle(b.build())


@pytest.mark.quick(5)
@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("window", [1, 31, 32, 33, 64, 65, 300, 999, 1000])
@pytest.mark.parametrize("polls", [False, True])
def test_windows_of_many_blocks(window: int, polls: bool) -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    fast, slow = b.server("fast", 1, 1), b.server("slow", 3, 40, buffer_units=3, credit_ticks=5)
    flows = tuple(Flow(((fast, 0), (slow, 0)), 1000, gap, window_units=window) for gap in (0, 1, 7))
    (work,) = b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(1, flows, polls=polls)]))
    (last,) = b.op(0, OpSpec(OpKind.TILE, "u", [Stage(20_000, flows)]))
    if polls:
        b.flags([work], [last])
    program = b.build()

    for compiled._LINE_HOPS_PER_SLICE in (10, 1 << 16):
        assert_equals_oracle(program)


def ring_without_room(b: ProgramBuilder) -> list[int]:
    """Ops whose units fill the buffers between two servers, each of which waits for the other."""
    one, two = (b.server(name, 1, 3, buffer_units=2) for name in ("one", "two"))
    there, back = Flow(((one, 0), (two, 0), (one, 0)), 50), Flow(((two, 0), (one, 0), (two, 0)), 50)
    return [b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (flow,))]))[0] for flow in (there, back)]


def test_servers_without_room_for_each_other_are_a_deadlock() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    ring_without_room(b)
    program = b.build()

    result = run(program, core=Core.COMPILED)
    assert result.outcome is RunOutcome.DEADLOCK
    assert program.hop_server[result.server_blocked].tolist() == [0, 1]
    assert_equals_oracle(program)


def test_polls_for_the_flags_of_each_other_end() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s = b.server("s", 1, 2)
    ops = b.op(0, OpSpec(OpKind.TILE, "t", [Stage(3, (Flow(((s, 0),), 2),), polls=True)]), count=2)
    b.flags([ops[0]], [ops[1]])
    b.flags([ops[1]], [ops[0]])
    program = b.build()

    assert run(program, core=Core.COMPILED).outcome is RunOutcome.DEADLOCK
    assert_equals_oracle(program)


@pytest.mark.parametrize("units", [0, 3])
def test_polls_for_the_flag_of_what_is_held_up_for_ever_end(units: int) -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    held_up = ring_without_room(b)
    s = b.server("s", 1, 2)
    poll = Stage(3, (Flow(((s, 0),), units),), polls=True)
    b.flags(b.op(0, OpSpec(OpKind.TILE, "p", [poll])), held_up)
    b.op(0, OpSpec(OpKind.TILE, "long", [Stage(0, (Flow(((s, 0),), 200_000),))]))  # must be done nevertheless

    result = run(b.build(), core=Core.COMPILED)
    assert result.outcome is RunOutcome.DEADLOCK
    assert result.stuck == (0, 1, 2)


def test_polls_for_the_flag_of_what_is_far_behind_what_is_held_up_end() -> None:
    """The units that the flag waits for stand in neither the first nor the last block of a long queue."""
    b = ProgramBuilder(1, unit_bytes=128)
    ring_without_room(b)
    source, queue = b.server("source", 1, 1), b.server("queue", 1, 1)
    no_room = tuple((number, 0) for number in (source, queue, 0, 1, 0))
    b.op(0, OpSpec(OpKind.TRANSFER, "before", [Stage(0, (Flow(no_room, 200),))], release_ticks=100))
    behind = Flow(((source, 0), (queue, 0)), 5)
    last = b.op(0, OpSpec(OpKind.TRANSFER, "behind", [Stage(0, (behind,))], release_ticks=5000))
    b.op(0, OpSpec(OpKind.TRANSFER, "after", [Stage(0, (Flow(behind.route, 200),))], release_ticks=6000))
    b.flags(b.op(0, OpSpec(OpKind.TILE, "p", [Stage(3, polls=True)])), last)
    program, looks = b.build(), list[int]()

    result = run(program, core=Core.COMPILED, progress=looks.append, should_stop=lambda: len(looks) > 50)

    assert result.outcome is RunOutcome.DEADLOCK
    assert result.stuck == (0, 1, 2, 3, 4, 5)
    assert_equals_oracle(program)


def test_polls_without_units_can_be_stopped() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    far = b.server("far", 1 << 50, 0)
    b.flags(
        b.op(0, OpSpec(OpKind.TILE, "p", [Stage(1, polls=True)])), b.op(0, OpSpec(OpKind.TILE, "l", [Stage(1 << 50)]))
    )
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((far, 0),), 1),))], release_ticks=5))

    looks: list[int] = []
    result = run(b.build(), core=Core.COMPILED, progress=looks.append, should_stop=lambda: len(looks) == 4)
    assert result.outcome is RunOutcome.CANCELLED


def test_clock_up_to_the_horizon() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s = b.server("s", 1 << 40, 1 << 50)
    flow = Flow(((s, 0), (s, 0)), 100, 1 << 41)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(1 << 59, (flow,))], setup_ticks=1 << 58), count=2)

    assert_equals_oracle(b.build())


@pytest.mark.usefixtures("slices")
def test_what_is_known_when_stopped_is_exact() -> None:
    program = random_program(5, num_ranks=3)
    whole = run(program, core=Core.COMPILED)
    compiled._LINE_HOPS_PER_SLICE = 5
    for looks in range(1, 12):
        reported: list[int] = []
        part = run(program, core=Core.COMPILED, progress=reported.append, should_stop=lambda: len(reported) == looks)  # noqa: B023
        if part.outcome is not RunOutcome.CANCELLED:
            break
        assert reported == sorted(reported) and part.line_hops == reported[-1]
        for name in ("op_ready", "op_start", "op_done", "flow_last"):
            known, expected = getattr(part, name), getattr(whole, name)
            np.testing.assert_array_equal(known[known != NEVER], expected[known != NEVER])


def test_the_first_run_says_that_numba_makes_code(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[bool] = []

    def run_slices(*_: object) -> bool:
        during.append(makes_code.is_set())
        return True

    monkeypatch.setattr(compiled, "_has_code", set[bool]())
    monkeypatch.setattr(compiled, "run_slices", run_slices)
    for _ in range(2):
        run(random_program(1), core=Core.COMPILED)

    assert during == [True, False, False] and not makes_code.is_set()


def test_what_is_loaded_ahead_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_has_code", set[bool]())
    load_core(10)
    assert not compiled._has_code, "the windows run so few line-hops"
    load_core(10**9)

    assert compiled._has_code == {True}


@pytest.mark.slow
def test_numba_is_loaded_by_the_first_run_that_needs_it() -> None:
    code = """
import sys
import magus.simcore, magus.advisor.work.workers
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
program = ProgramBuilder(1, unit_bytes=128).build()
run(program)
print("numba" in sys.modules)
run(program, core=Core.COMPILED)
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["False", "True"]
