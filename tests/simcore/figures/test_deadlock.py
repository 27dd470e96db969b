"""A deadlock is told as the circle of waits, whatever it is made of."""

from magus.simcore.cores.engine import run
from magus.simcore.figures.critical_path import circle_of_waits
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, RunOutcome, Stage


def builder() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


def circle(program: Program) -> tuple[str, ...]:
    result = run(program)
    assert result.outcome is RunOutcome.DEADLOCK
    return circle_of_waits(program, result)


def test_full_buffers() -> None:
    b = builder()
    left, right = (b.server(name, 1, 1, buffer_units=2) for name in ("left", "right"))
    for route in (((left, 0), (right, 0), (left, 0)), ((right, 0), (left, 0), (right, 0))):
        b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(route, 9),))]))

    assert circle(b.build()) == (
        "server left[0] waits for room at right[0], which holds 2 units from left[0]",
        "server right[0] waits for room at left[0], which holds 2 units from right[0]",
    )


def test_the_units_held_up_are_those_of_the_stage_under_way() -> None:
    """The first stage is done, and so is one flow of the second; the other comes to a full server behind a free one."""
    b = builder()
    free = b.server("free", 1, 1)
    left, right = (b.server(name, 1, 1, buffer_units=2) for name in ("left", "right"))
    around = ((free, 0), (left, 0), (right, 0), (left, 0))
    b.op(
        0,
        OpSpec(
            OpKind.TRANSFER,
            "t",
            [Stage(0, (Flow(((free, 0),), 3),)), Stage(0, (Flow(((free, 0),), 3), Flow(around, 9)))],
        ),
    )
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((right, 0), (left, 0), (right, 0)), 9),))]))

    assert {sentence.partition(" waits for room at ")[0] for sentence in circle(b.build())} == {
        "server left[0]",
        "server right[0]",
    }


def test_a_slot_held_by_a_poll_for_what_needs_the_slot() -> None:
    b = builder()
    sms = b.pool("sms", 1)
    consumer = b.op(0, OpSpec(OpKind.TILE, "consumer", [Stage(5, polls=True)], pool=sms))
    producer = b.op(0, OpSpec(OpKind.TILE, "producer", [Stage(5)], pool=sms))
    join = b.op(0, OpSpec(OpKind.JOIN, "all"))
    b.after(join, producer)
    b.flags(consumer, join)

    assert circle(b.build()) == (
        "op consumer of rank 0 (number 0) polls for the flag of op all of rank 0 (number 2)",
        "op all of rank 0 (number 2) waits for op producer of rank 0 (number 1)",
        "op producer of rank 0 (number 1) waits for a slot of sms[0], held by op consumer of rank 0 (number 0)",
    )


def test_units_held_up_behind_a_poll_are_named() -> None:
    b = builder()
    first, second = b.server("first", 1, 1, buffer_units=1), b.server("second", 1, 1, buffer_units=1)
    route = ((first, 0), (second, 0), (first, 0), (second, 0))
    mover = b.op(0, OpSpec(OpKind.TRANSFER, "mover", [Stage(0, (Flow(route, 8),))]))
    poller = b.op(0, OpSpec(OpKind.TILE, "poller", [Stage(5, polls=True)]))
    b.flags(poller, mover)

    found = circle(b.build())

    assert found[0].startswith("server ") and all("waits for room" in sentence for sentence in found)


def test_no_deadlock_no_circle() -> None:
    b = builder()
    b.op(0, OpSpec(OpKind.TILE, "t", [Stage(5)]))
    program = b.build()

    assert circle_of_waits(program, run(program)) == ()
