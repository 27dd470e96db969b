"""What cannot be run is refused before, and says why."""

from itertools import pairwise

import numpy as np
import pytest

from magus.simcore.cores.engine import run
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import CircularWaits, HorizonError, RunTooLarge
from magus.simcore.program.program import Flow, OpKind, OpSpec, Stage


@pytest.fixture
def b() -> ProgramBuilder:
    return ProgramBuilder(1, unit_bytes=128)


def test_a_circle_of_waits_is_named(b: ProgramBuilder) -> None:
    ops = b.op(0, OpSpec(OpKind.TILE, "t"), count=3)
    b.after(ops[1:2], ops[0:1])
    b.after(ops[2:3], ops[1:2])
    b.after(ops[1:2], ops[2:3])

    with pytest.raises(CircularWaits, match=r"number 2\) waits for op t of rank 0 \(number 1\) waits for op t"):
        b.build()


def test_of_a_long_circle_the_first_ops_are_named_and_the_rest_counted(b: ProgramBuilder) -> None:
    ops = b.op(0, OpSpec(OpKind.TILE, "t"), count=10)
    for one, following in pairwise([*ops, ops[0]]):
        b.after([following], [one])

    with pytest.raises(CircularWaits) as caught:
        b.build()
    *named, others, first = str(caught.value).partition(": ")[2].split(" waits for ")
    assert len(set(named)) == 6 and others == "4 more, the last of which" and first == named[0]


def test_a_circle_through_a_join_is_found_and_a_join_alone_is_none(b: ProgramBuilder) -> None:
    first, second = b.op(0, OpSpec(OpKind.TILE, "a"), count=20), b.op(0, OpSpec(OpKind.TILE, "b"), count=20)
    b.after(second, first)
    assert b.build().num_ops == 41  # the builder put a join between
    b.after(first[3:4], second[5:6])

    with pytest.raises(CircularWaits):
        b.build()


@pytest.mark.parametrize("ranks", [(0, 0), (0, 1)])
def test_joins_that_ranks_describe_may_not_wait_for_each_other(ranks: tuple[int, int]) -> None:
    b = ProgramBuilder(2, unit_bytes=128)
    first, second = (b.op(rank, OpSpec(OpKind.JOIN, f"join {rank}")) for rank in ranks)
    b.after(second, first)
    assert b.build().num_ops == 2
    b.after(first, second)

    with pytest.raises(CircularWaits):
        b.build()


def test_edges_backwards_without_a_circle_are_fine(b: ProgramBuilder) -> None:
    ops = b.op(0, OpSpec(OpKind.TILE, "t", [Stage(1)]), count=3)
    b.after(ops[0:1], ops[1:2])
    b.after(ops[1:2], ops[2:3])

    assert run(b.build()).op_done.tolist() == [3, 2, 1]


def test_flags_need_a_polling_stage(b: ProgramBuilder) -> None:
    setter, op = b.op(0, OpSpec(OpKind.TILE, "setter")), b.op(0, OpSpec(OpKind.TILE, "op", [Stage(1)]))
    b.flags(op, setter)

    with pytest.raises(ValueError, match=r"op op .* no polling stage"):
        b.build()


def test_a_poll_takes_time_and_there_is_one(b: ProgramBuilder) -> None:
    b.op(0, OpSpec(OpKind.TILE, "op", [Stage(1, polls=True), Stage(1, polls=True)]))
    with pytest.raises(ValueError, match="more than one polling stage"):
        b.build()
    b.op(0, OpSpec(OpKind.TILE, "op", [Stage(0, polls=True)]))
    with pytest.raises(ValueError, match="hold time of at least one tick"):
        b.build()


def test_flags_of_nobody_are_refused(b: ProgramBuilder) -> None:
    b.op(0, OpSpec(OpKind.TILE, "op", [Stage(1, polls=True)]))
    b.flags([0], [7])

    with pytest.raises(ValueError, match="names op 7, but only 1 ops"):
        b.build()


@pytest.mark.parametrize("room", [{"buffer_units": -1}, {"credit_ticks": -1}])
def test_buffers_are_not_negative(b: ProgramBuilder, room: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="negative buffer or credit"):
        b.server("s", 1, 1, **room)


@pytest.mark.parametrize("units", [1 << 62, 1 << 63, 1 << 70])
def test_more_than_64_bits_hold_is_refused(b: ProgramBuilder, units: int) -> None:
    server = b.server("s", 5, 5)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((server, 0),), units),))]))

    with pytest.raises(HorizonError):
        b.build()


def test_ten_thousand_million_line_hops_are_refused_with_an_estimate(b: ProgramBuilder) -> None:
    server = b.server("s", 5, 5)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((server, 0),), 10**10, 5),))]))

    with pytest.raises(RunTooLarge, match=r"1.0e\+10 line-hops would take about \d+ s"):
        run(b.build())


def test_a_burst_past_the_memory_is_refused(b: ProgramBuilder) -> None:
    server = b.server("s", 1, 1)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((server, 0),), 1_000_000_000),))]))

    with pytest.raises(RunTooLarge, match=r"needs about \d+\.\d+ GiB, the limit is 4 GiB"):
        run(b.build())


def test_latencies_and_credits_count_for_the_clock(b: ProgramBuilder) -> None:
    far = b.server("far", 1, 1 << 40, buffer_units=1, credit_ticks=1 << 40)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((far, 0), (far, 0)), 1 << 20),))]))

    with pytest.raises(HorizonError):
        b.build()
    assert np.iinfo(np.int64).max > 1 << 61
