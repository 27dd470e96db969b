"""The scalar core on a system small enough to follow on paper."""

from magus.simcore.cores import heap
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Stage


def test_two_flows_share_a_server() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    near, far = b.server("near", 2, 5), b.server("far", 3, 1)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(0, (Flow(((near, 0), (far, 0)), 2, 4),))]))
    b.op(0, OpSpec(OpKind.TRANSFER, "b", [Stage(0, (Flow(((near, 0),), 2, 0, 1),))]))

    control, served = heap.simulate(b.build(), lambda line_hops, held_bytes=0: False)

    # near: a at 0 leaves at 2; both of b arrive at 1, leave at 4 and 6; a at 4 leaves at 8. far: a at 7 and 13.
    assert served.server_free.tolist() == [8, 16]
    assert served.flow_last.tolist() == [17, 11]
    assert control.done == [17, 11]
    assert (served.line_hops, served.windows, served.cancelled) == (6, 0, False)


def test_no_width_limits_the_clock() -> None:
    b = ProgramBuilder(1, unit_bytes=128)
    s = b.server("s", 1 << 40, 1 << 50)
    b.op(0, OpSpec(OpKind.TRANSFER, "a", [Stage(1 << 59, (Flow(((s, 0),), 100),))]), count=2)

    control, served = heap.simulate(b.build(), lambda line_hops, held_bytes=0: False)

    assert served.server_free.tolist() == [200 << 40]
    assert control.done == [1 << 59] * 2
