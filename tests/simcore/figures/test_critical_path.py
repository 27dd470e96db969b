"""The critical path: who waited for what, back from the last op."""

import itertools

import pytest

from magus.simcore.cores.engine import run
from magus.simcore.figures.critical_path import Cause, critical_path
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Stage
from tests.helpers.oracle.strategies import ALL, random_program


def builder() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


def test_causes_are_reported_apart() -> None:
    b = builder()
    sms = b.pool("sms", 1)
    first = b.op(0, OpSpec(OpKind.TILE, "first", [Stage(4)], pool=sms, release_ticks=3))
    second = b.op(0, OpSpec(OpKind.TILE, "second", [Stage(5)], pool=sms, release_ticks=3))
    join = b.op(0, OpSpec(OpKind.JOIN, "both"))
    after = b.op(0, OpSpec(OpKind.TILE, "after", [Stage(6)]))
    poller = b.op(0, OpSpec(OpKind.TILE, "poller", [Stage(4, polls=True)]))
    b.after(join, [*first, *second])
    b.after(after, join)
    b.flags(poller, after)
    program = b.build()

    path = critical_path(program, run(program))

    assert [(op.label, op.cause, op.since_ticks, op.done_ticks) for op in path] == [
        ("first", Cause.RELEASE, 0, 7),
        ("second", Cause.SLOT, 7, 12),
        ("after", Cause.OP, 12, 18),
        ("poller", Cause.FLAG, 18, 20),
    ]
    assert path[1].resource == "sms[0]"


def test_the_server_at_which_units_queued_is_named() -> None:
    b = builder()
    fast, slow = b.server("fast", 1, 1), b.server("slow", 10, 1)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((fast, 0), (slow, 0)), 5),))]))
    program = b.build()

    (op,) = critical_path(program, run(program, observe=True))

    # Unit i reaches fast at 0 and waits i, and slow at 2 + i, where it is served from 2 + 10 i.
    assert (op.queued_at, op.queued_ticks) == ("slow[0]", (9 + 18 + 27 + 36) // 5)
    assert critical_path(program, run(program))[0].queued_at == ""


@pytest.mark.quick(15)
@pytest.mark.parametrize("seed", range(60))
def test_the_path_is_without_gaps_and_ends_with_the_last_op(seed: int) -> None:
    program = random_program(seed, num_ranks=2, features=ALL)
    result = run(program)

    path = critical_path(program, result)

    assert bool(path) == bool((result.op_done >= 0).any())  # else nothing could begin
    for before, op in itertools.pairwise(path):
        assert before.done_ticks == op.since_ticks <= op.done_ticks
    if path:
        assert path[-1].done_ticks == result.makespan_ticks
        assert path[0].cause in (Cause.START, Cause.RELEASE)
    for op in path:
        if op.cause in (Cause.OP, Cause.SLOT):
            assert op.since_ticks in (result.op_ready[op.op], result.op_start[op.op])
