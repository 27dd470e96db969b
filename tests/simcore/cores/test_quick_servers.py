"""Windows of the compiled core that are longer than quick servers take: what may be quick, and what bounds windows."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.cores import compiled
from magus.simcore.cores.compiled_state import initial_state
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Stage
from tests.helpers.marks import examples
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle

MEMORY, LINK, PORT = range(3)
ROUTES = ((PORT,), (MEMORY,), (MEMORY, PORT, LINK), (PORT, LINK), (LINK, MEMORY), (LINK, PORT, MEMORY, PORT, LINK))

Op = tuple[int, int, int, int, int, int]
"""Number of the route, units, gap, window, how many ops before it is the one it waits for (0 for none), stages."""

OPS = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5)),
        st.sampled_from((0, 1, 1, 2, 7, 30)),
        st.sampled_from((0, 1, 3, 20)),
        st.sampled_from((0, 0, 0, 2)),
        st.integers(0, 5),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=16,
)


def program_of(ops: Sequence[Op], routes: Sequence[Sequence[int]] = ROUTES, *, polls: bool = False) -> Program:
    """Ops one after the other over a port that takes two ticks, between a memory and a link that take thirty."""
    b = ProgramBuilder(1, unit_bytes=128)
    for name, service, latency in (("memory", 1, 30), ("link", 3, 25), ("port", 2, 0)):
        b.server(name, service, latency)
    for place, (route, units, gap, window, back, num_stages) in enumerate(ops):
        # A flow over the port alone is a train here: with a window it would not let the port be quick.
        over = tuple((server, 0) for server in routes[route])
        flow = Flow(over, units, gap, window_units=window if len(over) > 1 else 0)
        stages = [Stage(1, (flow,), polls=polls and number == 1) for number in range(num_stages)]
        (op,) = b.op(0, OpSpec(OpKind.TILE, "t", stages))
        if 0 < back <= place:
            b.after([op], [op - back])
        if polls and len(stages) > 1:
            b.flags([op], range(max(0, op - 2), op))
    return b.build()


@pytest.fixture
def slices() -> Iterator[None]:
    """Puts the size of slices back."""
    budget = compiled._LINE_HOPS_PER_SLICE
    yield
    compiled._LINE_HOPS_PER_SLICE = budget


@pytest.mark.usefixtures("slices")
@examples(60, deep=3000)
@given(ops=OPS, polls=st.booleans())
def test_quick_servers_are_exact(ops: list[Op], polls: bool) -> None:
    program = program_of(ops, polls=polls)
    expected = Oracle(program).run()
    for compiled._LINE_HOPS_PER_SLICE in (1, 5, 1 << 16):
        assert differences(program, run(program, core=Core.COMPILED), expected) == []


def lookahead(routes: Sequence[Sequence[int]], window: int = 0) -> tuple[int, list[int], list[int]]:
    """W, the quick servers and the early ticks of one flow for each route."""
    program = program_of([(number, 9, 1, window, 0, 1) for number in range(len(routes))], routes)
    state = initial_state(program)
    return int(state.counts["window"][0]), state.quick.tolist(), state.flows["early"].tolist()


def test_port_is_quick_between_others() -> None:
    assert lookahead(ROUTES) == (28, [PORT], [2, 0, 0, 0, 0, 0])
    assert lookahead(ROUTES, window=2) == (28, [PORT], [2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("route", [(MEMORY, PORT), (MEMORY, PORT, PORT, LINK)], ids=["delivered there", "twice"])
def test_port_is_not_quick_if_others_are_delivered_there_or_pass_it_twice(route: tuple[int, ...]) -> None:
    assert lookahead([*ROUTES, route]) == (2, [], [0] * 7)


def test_trains_alone_leave_windows_as_long_as_the_slowest_takes() -> None:
    assert lookahead([(PORT,), (MEMORY,), (LINK,)]) == (31, [LINK, PORT], [2, 0, 28])


def test_no_server_is_quick_where_units_wait_for_room() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    memory, link = b.server("memory", 1, 30), b.server("link", 3, 25, buffer_units=2, credit_ticks=40)
    port = b.server("port", 2, 0)
    flows = (Flow(((memory, 0), (link, 0)), 9), Flow(((port, 0),), 9))
    b.op(0, OpSpec(OpKind.TILE, "t", [Stage(0, flows)]))
    state = initial_state(b.build())

    assert state.counts["window"][0] == 2
    assert not len(state.quick) and not state.flows["early"].any()
