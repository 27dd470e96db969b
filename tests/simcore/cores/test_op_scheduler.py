"""Rules of the op level, by hand: readiness, pools, rounds at one time, deadlock."""

import numpy as np
import pytest

from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import NEVER, Flow, OpKind, OpSpec, Program, Run, RunOutcome, Stage


@pytest.fixture
def b() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


def finish(program: Program) -> Run:
    """Run on all cores, which must agree."""
    one, *others = (run(program, core=core) for core in Core)
    for other in others:
        np.testing.assert_array_equal(one.op_start, other.op_start)
        np.testing.assert_array_equal(one.op_done, other.op_done)
    return one


def times(result: Run) -> list[tuple[int, int, int]]:
    return list(zip(result.op_ready.tolist(), result.op_start.tolist(), result.op_done.tolist(), strict=True))


def test_setup_hold_and_release(b: ProgramBuilder) -> None:
    first = b.op(0, OpSpec(OpKind.TILE, "a", [Stage(10), Stage(5)], setup_ticks=3))
    later = b.op(0, OpSpec(OpKind.TILE, "b", [Stage(1)], release_ticks=4))
    last = b.op(0, OpSpec(OpKind.TILE, "c", [Stage(1)], release_ticks=40))
    b.after([*later, *last], first)

    assert times(finish(b.build())) == [(0, 0, 18), (18, 18, 19), (40, 40, 41)]


def test_op_without_stages_lasts_for_its_setup(b: ProgramBuilder) -> None:
    join, launch = b.op(0, OpSpec(OpKind.JOIN, "join")), b.op(0, OpSpec(OpKind.LAUNCH, "launch", setup_ticks=7))
    b.after(launch, join)

    assert times(finish(b.build())) == [(0, 0, 0), (0, 0, 7)]


def test_stage_lasts_for_its_hold_or_its_slowest_flow(b: ProgramBuilder) -> None:
    s = b.server("s", 2, 10)
    b.op(0, OpSpec(OpKind.TILE, "short hold", [Stage(5, (Flow(((s, 0),), 4, 1, 3), Flow(((s, 0),), 0)))]))
    b.op(0, OpSpec(OpKind.TILE, "long hold", [Stage(90, (Flow(((s, 0),), 1, 0, 50),))]))
    result = finish(b.build())

    assert result.op_done.tolist() == [3 + 4 * 2 + 10, 90]
    assert result.flow_last.tolist() == [21, NEVER, 62]
    assert result.server_free.tolist() == [52]


def test_slots_go_by_priority_before_ready_time(b: ProgramBuilder) -> None:
    pool = b.pool("p", 1)
    b.op(0, OpSpec(OpKind.TILE, "holder", [Stage(10)], pool=pool))
    b.op(0, OpSpec(OpKind.TILE, "low", [Stage(10)], pool=pool, priority=1))
    b.op(0, OpSpec(OpKind.TILE, "usual", [Stage(10)], pool=pool, release_ticks=5))
    b.op(0, OpSpec(OpKind.TILE, "first", [Stage(10)], pool=pool, release_ticks=15, priority=-4))
    b.op(0, OpSpec(OpKind.TILE, "usual too", [Stage(10)], pool=pool, release_ticks=15))

    # Nobody gives a slot back before its end, however urgent the next is.
    assert finish(b.build()).op_start.tolist() == [0, 40, 10, 20, 30]


def test_scope_gives_labels_and_priorities(b: ProgramBuilder) -> None:
    pool = b.pool("p", 1)
    scope = b.scoped("a.", {OpKind.REDUCE: -1})
    scope.op(0, OpSpec(OpKind.TILE, "tile", pool=pool))
    scope.op(0, OpSpec(OpKind.REDUCE, "sum", pool=pool))
    b.op(0, OpSpec(OpKind.REDUCE, "sum", pool=pool))
    program = b.build()

    assert program.op_local_id.tolist() == [0, 1, 2]
    assert program.op_priority.tolist() == [0, -1, 0]
    assert [program.labels[label] for label in program.op_label_idx] == ["a.tile", "a.sum", "sum"]


def test_priorities_have_a_range(b: ProgramBuilder) -> None:
    with pytest.raises(ValueError, match="priority 4, not one of -4 to 3"):
        b.op(0, OpSpec(OpKind.TILE, "tile", priority=4))


def test_slots_go_by_ready_time_then_local_id(b: ProgramBuilder) -> None:
    pool = b.pool("p", 1)
    late = b.op(0, OpSpec(OpKind.TILE, "late", [Stage(1)], pool=pool, release_ticks=5))
    holder = b.op(0, OpSpec(OpKind.TILE, "holder", [Stage(10)], pool=pool))
    b.op(0, OpSpec(OpKind.TILE, "early", [Stage(1)], pool=pool, release_ticks=4), count=2)

    assert finish(b.build()).op_start.tolist() == [12, 0, 10, 11]
    assert (late, holder) == (range(1), range(1, 2))


def test_all_readies_of_a_time_come_before_its_grants(b: ProgramBuilder) -> None:
    pool = b.pool("p", 1)
    chosen = b.op(0, OpSpec(OpKind.TILE, "first by local id", [Stage(5)], pool=pool))
    chain = b.op(0, OpSpec(OpKind.JOIN, "join"), count=3)
    b.op(0, OpSpec(OpKind.TILE, "ready at once", [Stage(5)], pool=pool))
    b.after(chain[1:2], chain[0:1])
    b.after(chain[2:3], chain[1:2])
    b.after(chosen, chain[2:3])

    assert finish(b.build()).op_start.tolist() == [0, 0, 0, 0, 5]


@pytest.mark.parametrize("order", [("p", "q"), ("q", "p")])
def test_pools_grant_in_rounds_whatever_their_order(b: ProgramBuilder, order: tuple[str, str]) -> None:
    pools = {name: b.pool(name, 1) for name in order}
    enabled = b.op(0, OpSpec(OpKind.TILE, "enabled", [Stage(3)], pool=pools["q"]))
    instant = b.op(0, OpSpec(OpKind.TILE, "instant", [Stage(0)], pool=pools["p"]))
    waiting = b.op(0, OpSpec(OpKind.TILE, "waiting", [Stage(3)], pool=pools["q"]))
    b.after(enabled, instant)

    # `instant` is over only after the first round, in which q went to `waiting`, although its local id is higher.
    result = finish(b.build())
    assert result.op_start[[*instant, *waiting, *enabled]].tolist() == [0, 0, 3]


def test_instant_ops_pass_through_one_slot_in_one_time(b: ProgramBuilder) -> None:
    pool = b.pool("p", 1)
    b.op(0, OpSpec(OpKind.TILE, "t", [Stage(0)], pool=pool), count=50)

    assert set(finish(b.build()).op_done.tolist()) == {0}


def test_deadlock_names_who_is_stuck(b: ProgramBuilder) -> None:
    free = b.op(0, OpSpec(OpKind.TILE, "free", [Stage(2)]))
    loop = b.op(0, OpSpec(OpKind.TILE, "loop", [Stage(2, polls=True)]), count=2)
    behind = b.op(0, OpSpec(OpKind.TILE, "behind"))
    b.flags(loop[:1], loop[1:])
    b.flags(loop[1:], loop[:1])
    b.after(behind, [*free, *loop])
    result = finish(b.build())

    assert result.outcome is RunOutcome.DEADLOCK
    assert result.stuck == (*loop, *behind)
    assert result.makespan_ticks == 2


def test_a_poll_sees_flags_set_before_it_ends_and_not_those_set_then(b: ProgramBuilder) -> None:
    early, late = b.op(0, OpSpec(OpKind.TILE, "early", [Stage(9)])), b.op(0, OpSpec(OpKind.TILE, "late", [Stage(10)]))
    pollers = b.op(0, OpSpec(OpKind.TILE, "poll", [Stage(5, polls=True), Stage(1)]), count=2)
    b.flags(pollers[:1], early)
    b.flags(pollers[1:], late)
    result = finish(b.build())

    assert result.op_done.tolist() == [9, 10, 11, 16]
    assert result.op_polls.tolist() == [0, 0, 2, 3]


def test_a_poll_of_flags_that_are_set_already_takes_one_round(b: ProgramBuilder) -> None:
    first = b.op(0, OpSpec(OpKind.TILE, "first", [Stage(2)]))
    poller = b.op(0, OpSpec(OpKind.TILE, "poll", [Stage(5, polls=True)], release_ticks=3))
    b.flags(poller, first)

    assert finish(b.build()).op_done.tolist() == [2, 8]
