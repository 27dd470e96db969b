"""Trains in rings on the compiled core: who comes before whom, who joins and leaves, and what cuts a run of turns."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.cores import compiled
from magus.simcore.cores.compiled_state import initial_state
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.arrays import NONE
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import NEVER, Flow, OpKind, OpSpec, Program, RunOutcome, Stage
from tests.helpers.marks import examples
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle

Train = tuple[int, int, int, int, int]
"""Release, units, gap, number of the route, and window."""

TRAINS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from((1, 1, 2, 3, 9, 40)),
        st.sampled_from((0, 2, 2, 2, 3, 10)),
        st.sampled_from((0, 0, 0, 0, 1, 2, 3)),
        st.sampled_from((0, 0, 0, 0, 1, 4)),
    ),
    min_size=1,
    max_size=24,
)


def program_of(trains: Sequence[Train], *, buffer_units: int = 0, service: int = 1) -> Program:
    """Trains at a memory: most end there, some go on to a link, which may have little room, or come back from it."""
    b = ProgramBuilder(1, unit_bytes=128)
    memory = b.server("memory", service, 2)
    link = b.server("link", 3, 1, buffer_units=buffer_units, credit_ticks=2)
    routes = (((memory, 0),), ((link, 0),), ((memory, 0), (link, 0)), ((link, 0), (memory, 0)))
    for release, units, gap, route, window in trains:
        flow = Flow(routes[route], units, gap, window_units=window)
        b.op(0, OpSpec(OpKind.TILE, "t", [Stage(0, (flow,))], release_ticks=release))
    return b.build()


def assert_equals_oracle(program: Program) -> None:
    expected = Oracle(program).run()
    for observe in (False, True):
        assert differences(program, run(program, core=Core.COMPILED, observe=observe), expected) == []


@pytest.fixture
def slices() -> Iterator[None]:
    """Puts the size of slices back, and how many there are between two looks."""
    budget, most = compiled._LINE_HOPS_PER_SLICE, compiled._MOST_SLICES
    yield
    compiled._LINE_HOPS_PER_SLICE, compiled._MOST_SLICES = budget, most


@pytest.mark.usefixtures("slices")
@examples(60, deep=3000)
@given(trains=TRAINS, buffer_units=st.sampled_from((0, 0, 1, 3)), service=st.integers(1, 4))
def test_rings_among_other_streams_are_exact(trains: list[Train], buffer_units: int, service: int) -> None:
    program = program_of(trains, buffer_units=buffer_units, service=service)
    for compiled._LINE_HOPS_PER_SLICE in (1, 7, 1 << 16):
        assert_equals_oracle(program)


def test_trains_share_a_ring_if_server_and_gap_agree_and_all_or_none_go_on() -> None:
    trains = ((0, 9, 2, 0, 0), (0, 9, 3, 0, 0), (5, 4, 2, 0, 0), (0, 9, 2, 1, 0), (0, 9, 2, 2, 0), (0, 9, 2, 0, 1))
    program = program_of(trains)
    state = initial_state(program)
    stream = state.hops["stream"][program.flow_first_hop]
    in_ring = state.streams["mask"][stream] != NONE

    assert in_ring.tolist() == [True, True, True, True, True, False]  # a flow with a window is none
    assert stream[0] == stream[2]
    assert len(set(stream.tolist())) == 5


@pytest.mark.parametrize("trains", [1, 2, 3, 4, 5, 8, 9])
def test_ring_has_room_for_all_its_trains_and_no_more_than_twice_as_many(trains: int) -> None:
    program = program_of([(number, 50, 10, 0, 0) for number in range(trains)])

    assert trains <= len(initial_state(program).rings) < 2 * trains
    assert_equals_oracle(program)


@pytest.mark.parametrize("gap", [0, 1, 8, 20])
@pytest.mark.parametrize("service", [1, 5])
def test_units_of_all_trains_arrive_at_once(gap: int, service: int) -> None:
    """The order of ties decides each time, also for those that join or leave between others."""
    same = [(0, 12, gap, 0, 0)] * 5
    late = [(gap, 3, gap, 0, 0), (2 * gap, 1, gap, 0, 0), (3 * gap, 6, gap, 0, 0)]

    assert_equals_oracle(program_of([*late, *same, *late], service=service))


def test_front_of_the_ring_goes_around_while_trains_come_and_go() -> None:
    assert_equals_oracle(program_of([(7 * number, 1 + number % 5, 4, 0, 0) for number in range(200)]))


def test_unit_without_room_stops_the_rings_behind_it() -> None:
    """All that reach the memory wait while its first unit has no room at the link, the first of a train too."""
    going_on = [(number % 3, 20, 2, 2, 0) for number in range(4)]
    staying = [(number, 9, 2, 0, 0) for number in range(6)]

    for buffer_units in (1, 2, 50):
        assert_equals_oracle(program_of(going_on + staying, buffer_units=buffer_units))


def test_trains_in_the_ring_of_a_locked_server_are_stuck() -> None:
    """Polls for the flag of a train that stands behind a unit without room, in a ring, are seen to be in vain."""
    b = ProgramBuilder(1, unit_bytes=128)
    one, two = (b.server(name, 1, 3, buffer_units=2) for name in ("one", "two"))
    for route in (((one, 0), (two, 0), (one, 0)), ((two, 0), (one, 0), (two, 0))):
        b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(route, 50),))]))
    read = OpSpec(OpKind.TILE, "read", [Stage(0, (Flow(((one, 0),), 100, 4),))])
    held_up = b.op(0, read, count=3)
    b.flags(b.op(0, OpSpec(OpKind.TILE, "p", [Stage(3, polls=True)])), held_up[1:])
    program, looks = b.build(), list[int]()

    result = run(program, core=Core.COMPILED, progress=looks.append, should_stop=lambda: len(looks) > 50)
    assert result.outcome is RunOutcome.DEADLOCK
    assert result.stuck == (0, 1, 2, 3, 4, 5)
    assert_equals_oracle(program)


def test_polls_enter_their_ring_again() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s = b.server("s", 2, 3)
    flow = Flow(((s, 0),), 3, 4)
    (work,) = b.op(0, OpSpec(OpKind.TILE, "w", [Stage(0, (Flow(((s, 0),), 30, 4),))]))
    pollers = b.op(0, OpSpec(OpKind.TILE, "p", [Stage(1, (flow, flow), polls=True)]), count=3)
    b.flags(pollers, [work])

    assert_equals_oracle(b.build())


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("budget", [1, 5, 64])
def test_what_is_known_when_stopped_between_turns_is_exact(budget: int) -> None:
    program = program_of([(0, 10 + number, 6, 0, 0) for number in range(12)])
    whole = run(program, core=Core.COMPILED)
    compiled._LINE_HOPS_PER_SLICE, compiled._MOST_SLICES = budget, 1

    for looks in range(2, 4):
        reported: list[int] = []
        part = run(program, core=Core.COMPILED, progress=reported.append, should_stop=lambda: len(reported) == looks)  # noqa: B023
        assert part.outcome is RunOutcome.CANCELLED
        assert reported == [budget * number for number in range(looks)] and part.line_hops == reported[-1]
        known = part.flow_last != NEVER
        np.testing.assert_array_equal(part.flow_last[known], whole.flow_last[known])
