"""Copies to all and sums of all in the switch, against what passes each port and how long that takes."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    TICKS_PER_SECOND,
    CopyProtocol,
    Direction,
    EngineMode,
    ExecutionOptions,
    IndexRange,
    OpCase,
    Reach,
    Region,
    TileGroup,
    Transfer,
)
from magus.simcore.cores.engine import run
from magus.simcore.figures.load_buckets import traffic_of
from magus.simcore.kernels.gemm import ticks_for
from magus.simcore.lower.collective import MAX_SLICES, SLICE_BYTES
from magus.simcore.program.program import OpKind, RunOutcome
from tests.helpers.oracle.lowering import (
    UNIT,
    differs_from_oracle,
    done_at,
    lower_op,
    lowered_run,
    makespan,
    plan,
    starts_of,
    with_dma,
)
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, h100, lone_gather

ROWS, COLS = 1024, 4096  # a block of 8 MiB
BYTES = ROWS * COLS * 2
BLOCK = Region(0, IndexRange(0, ROWS), IndexRange(0, COLS))
MULTICAST = Transfer("x", Direction.PUT, BLOCK, 0, "s", reach=Reach.ALL)
SUM = Transfer("x", Direction.GET, BLOCK, 0, "s", reach=Reach.ALL, reduce=True)


def node(ranks: int = 4) -> OpCase:
    """Copies beside a GEMM: a collective alone would be a kernel with a launch and flags of its own."""
    return ag_gemm(ROWS * ranks, 256, COLS, ranks=ranks, gpu=h100())


def bytes_at(scenario: OpCase, step: Transfer, server: str) -> int:
    """Bytes that pass a server of each rank when every rank issues ``step``."""
    program = lower_op(scenario, plan(step, sms=32), unit_bytes=UNIT).program
    at = [i for i, name in enumerate(program.server_names) if name == server]
    return sum(int(program.flow_units[program.hop_flow[program.hop_server == i]].sum()) for i in at) * UNIT


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_multicast_leaves_once_and_comes_down_every_other_port(ranks: int) -> None:
    assert bytes_at(node(ranks), MULTICAST, "up") == BYTES
    assert bytes_at(node(ranks), MULTICAST, "down") == (ranks - 1) * BYTES


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_sum_leaves_every_rank_and_comes_down_once(ranks: int) -> None:
    assert bytes_at(node(ranks), SUM, "up") == ranks * BYTES
    assert bytes_at(node(ranks), SUM, "down") == BYTES


@pytest.mark.parametrize("step", [MULTICAST, SUM], ids=["multicast", "sum"])
def test_traffic_is_what_passes_the_links(step: Transfer) -> None:
    scenario = node()
    lowered, finished = lowered_run(scenario, plan(step, sms=32))
    passed = sum(bytes_at(scenario, step, port) for port in ("up", "down"))

    assert traffic_of([lowered], finished).link_bytes == passed


def test_one_rank_that_multicasts_takes_its_link_and_a_slice() -> None:
    scenario = node()
    fabric, gpu = scenario.system.fabric, scenario.gpu
    steps = plan(MULTICAST, sms=32)
    alone = replace(steps, by_rank=((MULTICAST,), (), (), ()))
    moving = BYTES * TICKS_PER_SECOND // fabric.link.achieved_bytes_per_s
    assert fabric.switch is not None
    latency = gpu.l2.latency_ticks + 2 * gpu.hbm.latency_ticks + 2 * fabric.link.latency_ticks
    expected = gpu.sm_copy.setup_ticks + moving + latency + fabric.switch.latency_ticks

    found = makespan(scenario, alone)

    # The first slice has passed the uplink before anything comes down, with the same rate there; a worker sends a slice
    # when the one before has reached the switch.
    slice_ticks = ticks_for(SLICE_BYTES, gpu.sm_copy.bytes_per_s)
    assert expected < found <= expected + 2 * moving // MAX_SLICES + slice_ticks


def test_many_sums_share_the_ports_as_the_bytes_say() -> None:
    scenario = node()
    up = scenario.num_ranks * BYTES * TICKS_PER_SECOND // scenario.system.fabric.link.achieved_bytes_per_s

    found = makespan(scenario, plan(SUM, sms=64))

    assert found == pytest.approx(up, rel=0.1) and found > up


def test_copies_to_all_of_one_engine_follow_each_other() -> None:
    scenario, quarter = node(), ROWS // 4
    pieces = tuple(
        replace(
            MULTICAST,
            name=f"x{i}",
            signal=f"s{i}",
            region=Region(0, IndexRange(quarter * i, quarter * (i + 1)), BLOCK.cols),
        )
        for i in range(4)
    )
    lowered, finished = lowered_run(scenario, replace(plan(*pieces, sms=8), by_rank=(pieces, (), (), ())))

    ends = [done_at(lowered, finished, piece.name, 0) for piece in pieces]

    # Were slices of all pieces sent in turn, all would end at the end.
    assert [end / ends[-1] for end in ends] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.05)


def test_a_copy_of_one_line_is_one_slice() -> None:
    scenario = node()
    tiny = replace(MULTICAST, region=Region(0, IndexRange(0, 1), IndexRange(0, 64)))
    found = lowered_run(scenario, plan(tiny, sms=4), 128)

    assert found[1].outcome is RunOutcome.DONE
    assert traffic_of([found[0]], found[1]).link_bytes == scenario.num_ranks * 128


def test_a_fabric_without_a_switch_cannot_multicast() -> None:
    scenario = lone_gather(ROWS * 4, COLS, ranks=4, fabric=full_mesh())
    with pytest.raises(ValueError, match="no switch"):
        lower_op(scenario, plan(MULTICAST, sms=4), unit_bytes=UNIT)


@pytest.mark.parametrize("step", [MULTICAST, SUM], ids=["multicast", "sum"])
@pytest.mark.parametrize("fold", [True, False])
def test_both_equal_the_oracle_and_fold(step: Transfer, fold: bool) -> None:
    scenario = lone_gather(32 * 3, 256, ranks=3, gpu=h100())
    schedule = plan(replace(step, region=Region(0, IndexRange(0, 32), IndexRange(0, 256))), sms=2)

    assert differs_from_oracle(scenario, schedule, 256, fold=fold) == []
    one, every = (run(lower_op(scenario, schedule, unit_bytes=256, fold=each).program) for each in (True, False))
    assert one.makespan_ticks == every.makespan_ticks


def test_a_slow_engine_sets_the_pace() -> None:
    scenario = node()
    slow = makespan(scenario, replace(plan(MULTICAST, sms=1), by_rank=((MULTICAST,), (), (), ())))

    paced = ticks_for(UNIT, scenario.gpu.sm_copy.bytes_per_s) * (BYTES // UNIT)
    assert paced < slow < 1.02 * paced


@pytest.mark.parametrize("step", [MULTICAST, SUM], ids=["multicast", "sum"])
def test_a_switch_passes_no_flags_between_the_data_whatever_the_protocol(step: Transfer) -> None:
    schedules = [plan(step, sms=32, tactics=ExecutionOptions(protocol=protocol)) for protocol in CopyProtocol]
    assert len({makespan(node(), schedule) for schedule in schedules}) == 1
    assert bytes_at(node(), step, "up") in (BYTES, 4 * BYTES)


@pytest.mark.parametrize("step", [MULTICAST, SUM], ids=["multicast", "sum"])
def test_copies_to_all_are_launched_and_issued_like_others(step: Transfer) -> None:
    interval, scenario = TICKS_PER_SECOND // 10**6, node()
    alone = replace(plan(step, sms=32), by_rank=((step,), (), (), ()))
    shared = replace(alone, engine=replace(alone.engine, mode=EngineMode.SHARED))
    assert makespan(scenario, shared) - makespan(scenario, alone) == scenario.gpu.launch.kernel_ticks

    commands = replace(plan(step), by_rank=((step,), (), (), ()))
    issued = with_dma(scenario, replace(scenario.gpu.dma, issue_interval_ticks=interval))
    assert makespan(issued, commands) == makespan(scenario, commands)  # a lone command costs what it did


def test_packets_of_a_multicast_by_an_engine_are_paid_once() -> None:
    cost = TICKS_PER_SECOND // 10**7
    scenario = with_dma(node(), replace(node().gpu.dma, bytes_per_s=20 * 10**9))  # slower than the link
    dear = with_dma(scenario, replace(scenario.gpu.dma, packet_bytes=65536, packet_ticks=cost))
    alone = replace(plan(MULTICAST), by_rank=((MULTICAST,), (), (), ()))

    extra = makespan(dear, alone) - makespan(scenario, alone)
    assert extra == pytest.approx((BYTES // 65536 - 1) * cost, rel=0.02)


def test_a_kernel_waits_for_the_copies_of_all_ranks_that_set_its_signal() -> None:
    scenario = ag_gemm(96, 768, 256, ranks=3, gpu=h100())
    every = replace(MULTICAST, region=Region(0, IndexRange(0, 32), IndexRange(0, 256)))
    blocks = tuple(Region(owner, IndexRange(0, 32), IndexRange(0, 256)) for owner in (1, 2))
    schedule = plan(every, TileGroup("g", blocks, IndexRange(0, 256), after=("s",)), sms=2, compute_sms=130)
    folded, unfolded = (lower_op(scenario, schedule, unit_bytes=1024, fold=fold) for fold in (True, False))
    one, all_ranks = run(folded.program), run(unfolded.program)
    arrived = [done_at(unfolded, all_ranks, "x", rank) for rank in range(3)]

    assert one.makespan_ticks == all_ranks.makespan_ticks
    assert min(starts_of(unfolded, all_ranks, "g", OpKind.LAUNCH)) >= max(arrived)
