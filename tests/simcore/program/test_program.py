"""The builder lays out what was described, and refuses what cannot be run."""

import numpy as np
import pytest

from magus.simcore.cores.engine import run
from magus.simcore.program.arrays import NONE, order_and_groups, order_by
from magus.simcore.program.builder import MAX_OPS, MAX_RANKS, ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Stage, TrafficClass


def builder(num_ranks: int = 1, *, folded: bool = False) -> ProgramBuilder:
    return ProgramBuilder(num_ranks, period=1 if folded else None, unit_bytes=128)


def test_ops_of_one_call_share_their_description() -> None:
    b = builder()
    hbm, l2 = b.server("hbm", 3, 5), b.server("l2", 1, 2)
    sms = b.pool("sms", 2)
    read = Flow(((hbm, 0), (l2, 0)), 4, 7, 1)
    write = Flow(((hbm, 0),), 6, traffic=TrafficClass.COMM)

    first = b.op(0, OpSpec(OpKind.LAUNCH, "launch", setup_ticks=9))
    tiles = b.op(0, OpSpec(OpKind.TILE, "tile", [Stage(10, (read, write)), Stage(2)], pool=sms), count=3)
    p = b.build()

    assert first == range(1) and tiles == range(1, 4)
    assert p.op_local_id.tolist() == [0, 1, 2, 3]
    assert [p.labels[i] for i in p.op_label_idx] == ["launch", "tile", "tile", "tile"]
    assert p.op_kind.tolist() == [OpKind.LAUNCH, *[OpKind.TILE] * 3]
    assert p.op_pool.tolist() == [NONE, sms, sms, sms]
    assert p.op_stage_ptr.tolist() == [0, 0, 2, 4, 6]
    assert p.stage_hold_ticks.tolist() == [10, 2] * 3
    assert p.flow_units.tolist() == [4, 6] * 3
    assert p.flow_gap_ticks.tolist() == [7, 0] * 3
    assert p.flow_traffic.tolist() == [TrafficClass.COMPUTE, TrafficClass.COMM] * 3
    assert p.num_line_hops == 3 * (4 * 2 + 6)


def test_runs_of_ops_are_those_of_a_call_each() -> None:
    together, apart = builder(), builder()
    for b in (together, apart):
        s, sms = b.server("s", 2, 1), b.pool("sms", 2)
        few, many = ((Stage(4, (Flow(((s, 0),), units),)),) for units in (1, 3))
        op, runs = OpSpec(OpKind.TILE, "tile", pool=sms), ((2, few), (1, many), (3, few))
        if b is together:
            assert b.runs(0, op, runs) == range(6)
        else:
            for count, stages in runs:
                b.op(0, OpSpec(OpKind.TILE, "tile", stages, pool=sms), count=count)
    one, other = run(together.build()), run(apart.build())

    np.testing.assert_array_equal(one.op_done, other.op_done)
    assert len(set(one.op_done.tolist())) > 1


@pytest.mark.parametrize(("count", "message"), [(-1, "negative"), (MAX_OPS, "at most"), (1.5, "whole number")])
def test_impossible_run_of_several(count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        builder().runs(0, OpSpec(OpKind.TILE, "tile"), ((1, ()), (count, ())))


def test_ties_are_numbered_by_local_id_then_flow_then_hop_then_rank_from_the_server_on() -> None:
    b = builder(2)
    s = b.server("s", 1, 1)
    for rank in (1, 0):  # the order of construction must not show
        there_and_back = Flow(((s, rank), (s, rank + 1)), 1)
        for _ in range(2):
            b.op(rank, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (there_and_back, Flow(((s, rank),), 1)))]))
    p = b.build()

    op = p.stage_op[p.flow_stage[p.hop_flow]]
    ahead = (p.op_rank[op] - p.hop_server) % 2
    keys = list(zip(p.op_local_id[op], p.hop_flow % 2, p.hop_index, ahead, strict=True))
    assert keys == sorted(keys) and len(keys) == 12
    assert p.hop_server[p.hop_next[p.flow_first_hop[0]]] == p.server_instance(s, 0)
    first_two = p.op_rank[op[:2]].tolist(), [p.server_name(server) for server in p.hop_server[:2].tolist()]
    assert set(zip(*first_two, strict=True)) == {(0, "s[0]"), (1, "s[1]")}


def test_folded_routes_stay_on_the_one_rank() -> None:
    b = builder(8, folded=True)
    link = b.server("link", 2, 2)
    b.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(((link, 0), (link, 5)), 3),))]))
    p = b.build()

    assert (p.num_ranks, p.ranks_simulated, p.num_servers) == (8, 1, 1)
    assert p.hop_server.tolist() == [0, 0]


def test_large_products_of_waits_become_a_join_that_changes_no_times() -> None:
    done = []
    for whole in (True, False):
        b = builder()
        s = b.server("s", 2, 1)
        flow = Flow(((s, 0),), 3)
        early = b.op(0, OpSpec(OpKind.TILE, "early", [Stage(4, (flow,))]), count=30)
        late = b.op(0, OpSpec(OpKind.TILE, "late", [Stage(1, (flow,))]), count=30)
        for op in late if not whole else [None]:
            b.after(late if op is None else [op], early)
        p = b.build()

        assert len(p.op_next) == (60 if whole else 900)
        assert (p.op_kind == OpKind.JOIN).sum() == whole
        done.append(run(p).op_done[:60])
    np.testing.assert_array_equal(done[0], done[1])


def test_empty_program_is_done_at_once() -> None:
    result = run(builder().build())

    assert (result.makespan_ticks, result.line_hops, len(result.op_done)) == (0, 0, 0)


@pytest.mark.parametrize(("service", "latency", "message"), [(0, 1, "at least one tick"), (1, -1, "negative latency")])
def test_impossible_server(service: int, latency: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        builder().server("s", service, latency)


@pytest.mark.parametrize(
    ("num_ranks", "unit_bytes", "message"),
    [(0, 128, "at least one rank"), (1, 0, "one byte a unit"), (MAX_RANKS + 1, 128, f"at most {MAX_RANKS} ranks")],
)
def test_impossible_program(num_ranks: int, unit_bytes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProgramBuilder(num_ranks, period=1, unit_bytes=unit_bytes)


@pytest.mark.parametrize(
    ("op", "count", "message"),
    [
        (OpSpec(OpKind.TILE, "t", setup_ticks=-1), 1, "negative setup, release or count"),
        (OpSpec(OpKind.TILE, "t", release_ticks=-1), 1, "negative setup, release or count"),
        (OpSpec(OpKind.TILE, "t"), -1, "negative setup, release or count"),
        (OpSpec(OpKind.TILE, "t"), MAX_OPS, f"makes {MAX_OPS + 1} ops"),
    ],
)
def test_impossible_op(op: OpSpec, count: int, message: str) -> None:
    b = builder()
    b.op(0, OpSpec(OpKind.LAUNCH, "l"))
    with pytest.raises(ValueError, match=message):
        b.op(0, op, count=count)
    assert b.build().num_ops == 1


def test_pool_without_slots() -> None:
    with pytest.raises(ValueError, match="no slots"):
        builder().pool("p", 0)


def test_op_on_a_rank_that_is_not_described() -> None:
    with pytest.raises(ValueError, match="ranks 0 to 0"):
        builder(4, folded=True).op(1, OpSpec(OpKind.TILE, "t"))


def test_op_of_an_undeclared_pool() -> None:
    with pytest.raises(ValueError, match="not declared"):
        builder().op(0, OpSpec(OpKind.TILE, "t", pool=0))


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (Stage(-1), "negative hold"),
        (Stage(0, (Flow(((0, 0),), 1, gap_ticks=-1),)), "negative number of units, gap, offset or window"),
        (Stage(0, (Flow(((0, 0),), 1, offset_ticks=-1),)), "negative number of units, gap, offset or window"),
        (Stage(0, (Flow((), 1),)), "empty route"),
        (Stage(0, (Flow(((7, 0),), 1),)), "server that is not declared"),
        (Stage(0, (Flow(((0, 0),), 1 << 52),)), "range of the simulated clock"),
        (Stage(0, (Flow(((0, 0),), 1 << 40, gap_ticks=1 << 40),)), "range of the simulated clock"),
    ],
)
def test_impossible_stage(stage: Stage, message: str) -> None:
    b = builder()
    b.server("s", 1000, 1000)
    b.op(0, OpSpec(OpKind.TILE, "t", [stage]))
    with pytest.raises(ValueError, match=message):
        b.build()


def test_dangling_dependency() -> None:
    b = builder()
    ops = b.op(0, OpSpec(OpKind.TILE, "t"))
    b.after(ops, [5])
    with pytest.raises(ValueError, match="names op 5, but only 1 ops are defined"):
        b.build()


def test_the_op_between_many_that_wait_for_many_has_no_name() -> None:
    b = builder()
    ops = b.op(0, OpSpec(OpKind.TILE, "t"), count=40)
    b.after(ops[20:], [*ops[:20], len(ops)])
    with pytest.raises(ValueError, match="names op 40, but only 40 ops are defined"):
        b.build()


@pytest.mark.parametrize("most", [1, 3, 1 << 20, 1 << 62], ids=["equal", "few", "in one number", "too large for one"])
def test_the_first_key_counts_first_and_equals_keep_their_order(most: int) -> None:
    drawn = np.random.default_rng(7)
    keys = [drawn.integers(NONE, most, 200) for _ in range(2)]

    assert order_by(*keys).tolist() == sorted(range(200), key=lambda i: (keys[0][i], keys[1][i]))
    assert order_by(*(key[:0] for key in keys)).tolist() == []


@pytest.mark.parametrize("most", [1, 3, 1 << 62], ids=["equal", "few", "too large for one number"])
@pytest.mark.parametrize("sort", [False, True], ids=["as drawn", "in order"])
def test_groups_begin_where_keys_change(most: int, sort: bool) -> None:
    drawn = np.random.default_rng(11)
    keys = [drawn.integers(NONE, most, 200) for _ in range(2)]
    if sort:
        order = order_by(*keys)
        keys = [key[order] for key in keys]

    order, begins = order_and_groups(*keys)

    pairs = [(int(keys[0][i]), int(keys[1][i])) for i in order]
    assert pairs == sorted(pairs)
    assert begins.tolist() == [not place or pairs[place - 1] != pair for place, pair in enumerate(pairs)]
