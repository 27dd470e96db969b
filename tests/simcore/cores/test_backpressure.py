"""Units held back by windows and by buffers: small cases worked out by hand, on every core that knows them."""

import pytest

from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, RunOutcome, Stage


def builder() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


@pytest.mark.parametrize("core", Core)
def test_a_window_of_one_makes_every_unit_wait_for_the_one_before(core: Core) -> None:
    b = builder()
    link = b.server("link", 2, 8)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((link, 0),), 5, window_units=1),))]))

    assert run(b.build(), core=core).op_done.tolist() == [5 * 10]


@pytest.mark.parametrize("core", Core)
def test_bandwidth_is_the_window_over_the_latency(core: Core) -> None:
    b = builder()
    link = b.server("link", 2, 98)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((link, 0),), 400, window_units=4),))]))

    # Four units every 100 ticks: they leave at 2, 4, 6, 8 and are delivered, and injected anew, 98 later.
    result = run(b.build(), core=core)
    assert result.op_done.tolist() == [100 * 100 + 6]
    assert result.line_hops == 400


@pytest.mark.parametrize("core", Core)
def test_the_gap_holds_within_the_window(core: Core) -> None:
    b = builder()
    link = b.server("link", 1, 4)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((link, 0),), 4, 10, window_units=2),))]))

    assert run(b.build(), core=core).op_done.tolist() == [30 + 5]


@pytest.mark.quick(1)
@pytest.mark.parametrize("core", Core)
def test_a_full_buffer_holds_up_what_goes_elsewhere(core: Core) -> None:
    b = builder()
    first = b.server("first", 1, 1)
    slow = b.server("slow", 10, 1, buffer_units=2)
    other = b.server("other", 1, 1)
    into_slow = b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(0, (Flow(((first, 0), (slow, 0)), 4),))]))
    elsewhere = b.op(0, OpSpec(OpKind.TRANSFER, "b", [Stage(0, (Flow(((first, 0), (other, 0)), 1),))]))

    # Units leave first at 1, 2, and when slow has served one, at 12 + 1 and 22 + 1; then the one for other at 24.
    result = run(b.build(), core=core)
    assert result.op_done[[*into_slow, *elsewhere]].tolist() == [2 + 4 * 10 + 1, 24 + 1 + 1 + 1]


@pytest.mark.quick(1)
@pytest.mark.parametrize("core", Core)
def test_credit_takes_time_to_return(core: Core) -> None:
    b = builder()
    first = b.server("first", 1, 1)
    second = b.server("second", 1, 1, buffer_units=1, credit_ticks=7)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(0, (Flow(((first, 0), (second, 0)), 3),))]))

    # Each unit: 1 + 1 to the second, 1 there, 7 until its room can be used.
    assert run(b.build(), core=core).op_done.tolist() == [2 * 10 + 4]


@pytest.mark.parametrize("core", Core)
def test_buffers_in_a_loop_can_be_a_deadlock(core: Core) -> None:
    b = builder()
    left, right = (b.server(name, 1, 1, buffer_units=1) for name in ("left", "right"))
    for route in (((left, 0), (right, 0), (left, 0)), ((right, 0), (left, 0), (right, 0))):
        b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(route, 4),))]))
    program = b.build()

    result = run(program, core=core)

    assert result.outcome is RunOutcome.DEADLOCK and result.stuck == (0, 1)
    assert all(program.hop_server[hop] == server for server, hop in enumerate(result.server_blocked.tolist()))
