"""Every core equals the event-driven oracle, tick for tick; and the comparison would notice if it did not."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.cores import engine, keys, windows
from magus.simcore.cores.endings import at_rest
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.assembly import _Assembly
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import RunTooLarge
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Run, Stage
from tests.helpers.marks import examples, first
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.mutants import (
    half_as_long_again,
    with_larger_buffers,
    with_later_credits,
    with_no_priorities,
    with_slower_polls,
    with_ties_backwards,
    with_wider_windows,
)
from tests.helpers.oracle.oracle import NEVER, Oracle, OracleRun
from tests.helpers.oracle.strategies import ALL, PLAIN, Feature, random_program

FEATURES = (PLAIN, *Feature, ALL)


def num_wrong(programs: list[Program], oracle: list[OracleRun], core: Core = Core.WINDOWS) -> int:
    """Programs of which a core gets anything wrong."""
    runs = zip(programs, oracle, strict=True)
    return sum(bool(differences(program, run(program, core=core), expected)) for program, expected in runs)


@pytest.mark.quick(2)
@pytest.mark.parametrize("features", FEATURES, ids=str)
@examples(40, deep=1200)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 3))
def test_every_core_equals_the_oracle(features: Feature, seed: int, num_ranks: int) -> None:
    program = random_program(seed, num_ranks=num_ranks, features=features)
    expected = Oracle(program).run()

    for core in Core:
        assert differences(program, run(program, core=core), expected) == [], core
    observed = run(program, observe=True)
    assert observed.hop_wait_ticks is not None
    assert differences(program, observed, expected) == []


@pytest.mark.quick(1)
@pytest.mark.parametrize("features", [Feature.BUFFERS, Feature.BUFFERS | Feature.POLLING, ALL], ids=str)
@examples(15, deep=1200)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 3))
def test_room_that_is_left_out_would_never_be_taken(features: Feature, seed: int, num_ranks: int) -> None:
    """Buffers are laid out no larger than what could come: the oracle has them as they were declared."""
    program = random_program(seed, num_ranks=num_ranks, features=features)
    with patch.object(_Assembly, "_units_at", lambda self, tables: np.full(tables.hops.shape[1], 1e6)):
        declared = random_program(seed, num_ranks=num_ranks, features=features)
    expected = Oracle(declared).run()

    for core in Core:
        assert differences(program, run(program, core=core), expected) == [], core


@pytest.mark.slow
def test_random_programs_are_throttled_polled_and_stuck() -> None:
    changed = dict.fromkeys(Feature, 0)
    stuck, hopeless, polled = 0, 0, 0
    for seed in range(100):
        program = random_program(seed, num_ranks=1 + seed % 3, features=ALL)
        expected = Oracle(program).run()
        for feature in Feature:
            without = random_program(seed, num_ranks=1 + seed % 3, features=ALL & ~feature)
            changed[feature] += Oracle(without).run().server_free != expected.server_free
        stuck += expected.deadlock and not expected.hopeless
        hopeless += expected.hopeless
        polled += max(expected.polls) > 1
    print(f"\n{changed}, {stuck} stuck in buffers, {hopeless} in polls, {polled} with more than one poll")
    assert min(*changed.values(), stuck, hopeless, polled) > 8


def one_server(service: int, latency: int) -> tuple[ProgramBuilder, int]:
    builder = ProgramBuilder(1, unit_bytes=128)
    return builder, builder.server("s", service, latency)


def by_hand_window() -> Program:
    """Units delivered at 12 and 14 let the next two in, which are delivered 12 ticks later."""
    builder, server = one_server(2, 10)
    builder.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((server, 0),), 4, window_units=2),))]))
    return builder.build()


def by_hand_buffer() -> Program:
    """Units enter ``s`` at 0, 8, 16: each 2 ticks after the one before has left ``t``. One to nowhere waits behind."""
    builder, server = one_server(1, 0)
    buffered = builder.server("t", 5, 0, buffer_units=1, credit_ticks=2)
    builder.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((server, 0), (buffered, 0)), 3),))]))
    builder.op(0, OpSpec(OpKind.TRANSFER, "behind", [Stage(0, (Flow(((server, 0),), 1),))]))
    return builder.build()


def by_hand_polls() -> Program:
    """The flag is set at 8, just when the second poll ends: the third sees it."""
    builder, server = one_server(1, 0)
    look = Stage(4, (Flow(((server, 0),), 2),), polls=True)
    builder.flags(
        builder.op(0, OpSpec(OpKind.TILE, "x", [look])), builder.op(0, OpSpec(OpKind.LAUNCH, "l", setup_ticks=8))
    )
    return builder.build()


def by_hand_room_of_two_rounds() -> Program:
    """Polls begin at 0, 2, 4 and 6, and find room each time: what the first took is back at 7. The flag is set at 7."""
    builder, server = one_server(1, 0)
    buffered = builder.server("t", 1, 0, buffer_units=8, credit_ticks=5)
    look = Stage(1, (Flow(((server, 0), (buffered, 0)), 1),), polls=True)
    builder.flags(
        builder.op(0, OpSpec(OpKind.TILE, "x", [look])), builder.op(0, OpSpec(OpKind.LAUNCH, "l", setup_ticks=7))
    )
    return builder.build()


def by_hand_polls_in_vain() -> Program:
    """Nothing but the poll happens after 9, so that the one that began at 8 and ends at 12 is the last."""
    builder, server = one_server(1, 0)
    look = Stage(4, (Flow(((server, 0),), 2),), polls=True)
    (poller,) = builder.op(0, OpSpec(OpKind.TILE, "x", [look]))
    builder.flags([poller], [poller])
    builder.op(0, OpSpec(OpKind.LAUNCH, "l", setup_ticks=9))
    return builder.build()


@pytest.mark.parametrize(
    ("program", "flow_last", "done", "polls"),
    [
        (by_hand_window(), [26], [26], [0]),
        (by_hand_buffer(), [22, 18], [22, 18], [0, 0]),
        (by_hand_polls(), [10], [12, 8], [3, 0]),
        (by_hand_room_of_two_rounds(), [8], [8, 7], [4, 0]),
        (by_hand_polls_in_vain(), [10], [NEVER, 9], [3, 0]),
    ],
)
def test_as_worked_out_by_hand(program: Program, flow_last: list[int], done: list[int], polls: list[int]) -> None:
    expected = Oracle(program).run()

    assert (expected.flow_last, expected.done, expected.polls) == (flow_last, done, polls)
    assert [differences(program, run(program, core=core), expected) for core in Core] == [[]] * len(Core)


@pytest.mark.parametrize(("seed", "num_ranks"), [(94, 2), (604, 1)])
def test_polls_go_on_while_they_hold_room_for_what_is_stuck(
    monkeypatch: pytest.MonkeyPatch, seed: int, num_ranks: int
) -> None:
    """Here other ops are stuck if no poll begins after the last event: the last poll is put off again and again."""
    program = random_program(seed, num_ranks=num_ranks, features=Feature.BUFFERS | Feature.POLLING)
    last_polls: list[int] = []

    def noted(result: Run, again: Callable[[int], Run]) -> Run:
        def once_more(last_poll_ticks: int) -> Run:
            last_polls.append(last_poll_ticks)
            return again(last_poll_ticks)

        return at_rest(result, once_more)

    monkeypatch.setattr(engine, "at_rest", noted)
    expected = Oracle(program).run()
    for core in Core:
        last_polls.clear()
        assert differences(program, run(program, core=core), expected) == [], core
        assert len(last_polls) > 2


@pytest.mark.parametrize("key_bits", first([16, 20, 26], 1))
def test_narrow_keys_are_exact_too(monkeypatch: pytest.MonkeyPatch, key_bits: int) -> None:
    monkeypatch.setattr(keys, "KEY_BITS", key_bits)
    refused = 0
    for seed in range(150):
        program = random_program(seed, num_ranks=1 + seed % 2)
        try:
            result = run(program, core=Core.WINDOWS)
        except RunTooLarge:
            refused += 1
        else:
            assert differences(program, result, Oracle(program).run()) == []
    assert refused < 130


@pytest.fixture(scope="module")
def sample() -> list[Program]:
    return [random_program(seed, num_ranks=2) for seed in range(60)]


@pytest.fixture(scope="module")
def expected(sample: list[Program]) -> list[OracleRun]:
    return [Oracle(program).run() for program in sample]


@pytest.fixture(scope="module")
def of_all() -> tuple[list[Program], list[OracleRun]]:
    """Programs with all features."""
    programs = [random_program(seed, num_ranks=2, features=ALL) for seed in range(20)]
    return programs, [Oracle(program).run() for program in programs]


def test_sample_is_right_to_begin_with(sample: list[Program], expected: list[OracleRun]) -> None:
    assert num_wrong(sample, expected) == 0


def test_window_too_long_is_noticed(
    monkeypatch: pytest.MonkeyPatch, sample: list[Program], expected: list[OracleRun]
) -> None:
    monkeypatch.setattr(windows, "window_ticks", half_as_long_again(windows.window_ticks))

    assert num_wrong(sample, expected) > 10


@pytest.mark.quick(1)
@pytest.mark.parametrize("mutant", [with_wider_windows, with_larger_buffers, with_later_credits, with_slower_polls])
def test_one_unit_or_tick_too_many_is_noticed(
    mutant: Callable[[Program], Program], of_all: tuple[list[Program], list[OracleRun]]
) -> None:
    programs, expected = of_all

    assert num_wrong([mutant(program) for program in programs], expected) > 3


@pytest.mark.quick(1)
@pytest.mark.parametrize("core", Core)
def test_first_come_first_served_is_noticed(core: Core) -> None:
    programs = [random_program(seed, num_ranks=2, features=Feature.PRIORITIES) for seed in range(40)]
    expected = [Oracle(program).run() for program in programs]

    assert num_wrong([with_no_priorities(program) for program in programs], expected, core) > 3


@pytest.mark.quick(1)
@pytest.mark.parametrize("core", Core)
def test_wrong_order_of_ties_is_noticed(core: Core, sample: list[Program], expected: list[OracleRun]) -> None:
    backwards = [with_ties_backwards(program) for program in sample]

    assert [Oracle(program).run() for program in backwards] == expected  # it has an order of its own
    assert num_wrong(backwards, expected, core) > 10
