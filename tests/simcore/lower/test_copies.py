"""Copies as ops: what protocols, outstanding requests, packets, issuing and shared SMs cost, found by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Fabric,
    Gpu,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    Region,
    Step,
    TileGroup,
    Transfer,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.figures.load_buckets import traffic_of
from magus.simcore.kernels.gemm import ticks_for
from magus.simcore.program.program import OpKind, RunOutcome, TrafficClass
from tests.helpers.oracle.lowering import (
    UNIT,
    differs_from_oracle,
    done_at,
    lowered_run,
    makespan,
    plan,
    starts_of,
    with_copies,
    with_dma,
)
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, h100, lone_gather, nvlink, ring, switch
from tests.helpers.some import some

ROWS, COLS = 256, 1024  # a block of 512 KiB
BYTES = ROWS * COLS * 2


def gather(ranks: int = 2, gpu: Gpu | None = None, fabric: Fabric | None = None) -> OpCase:
    """Copies beside a GEMM: a collective alone would be a kernel with a launch and flags of its own."""
    return ag_gemm(ROWS * ranks, 256, COLS, ranks=ranks, gpu=gpu, fabric=fabric)


def put(
    peer: int = 1, rows: IndexRange | None = None, cols: IndexRange | None = None, name: str = "x", **more: object
) -> Transfer:
    block = Region(0, rows or IndexRange(0, ROWS), cols or IndexRange(0, COLS))
    return replace(Transfer(f"{name}{peer}", Direction.PUT, block, peer, f"s_{name}{peer}"), **more)  # type: ignore[arg-type]


def tactics(protocol: CopyProtocol, wait: Wait = Wait.EVENT) -> ExecutionOptions:
    return ExecutionOptions(protocol=protocol, wait=wait)


def link_bytes(scenario: OpCase, schedule: OpPlan) -> int:
    """What passes links in the program, and what the figures of the run say."""
    lowered, finished = lowered_run(scenario, schedule, 128)
    program = lowered.program
    links = [i for i in range(program.num_servers) if program.server_name(i).startswith("link")]
    units = sum(int(program.flow_units[program.hop_flow[program.hop_server == server]].sum()) for server in links)
    flags = int((program.flow_units[program.flow_traffic == TrafficClass.FLAGS]).sum())
    assert (units - flags) * 128 == pytest.approx(traffic_of([lowered], finished).link_bytes, rel=0.001)
    return (units - flags) * 128


def test_protocols_put_their_flags_on_the_link() -> None:
    sent = {each: link_bytes(gather(), plan(put(), sms=4, tactics=tactics(each))) for each in CopyProtocol}

    assert sent[CopyProtocol.SIMPLE] == BYTES
    assert sent[CopyProtocol.LL] == 2 * BYTES
    assert sent[CopyProtocol.LL128] == pytest.approx(BYTES * 128 / 120, rel=0.001)


def test_a_copy_by_one_sm_takes_what_one_finds_by_hand() -> None:
    scenario = gather()
    copy, link = scenario.gpu.sm_copy, scenario.system.fabric.link
    gpu = scenario.gpu
    way = 2 * gpu.hbm.latency_ticks + gpu.l2.latency_ticks + link.latency_ticks
    paced = BYTES * TICKS_PER_SECOND // copy.bytes_per_s
    expected = {
        CopyProtocol.SIMPLE: copy.setup_ticks + paced + way,
        CopyProtocol.LL: 2 * paced + way,
        CopyProtocol.LL128: paced * 128 // 120 + way,
    }
    for protocol, ticks in some(expected.items()):
        found = makespan(scenario, plan(put(), sms=1, tactics=tactics(protocol)))
        assert found == pytest.approx(ticks, rel=0.005), protocol


def test_a_signal_that_is_looked_for_costs_a_way_back_and_a_message() -> None:
    for fabric, hops in ((full_mesh(), 1), (ring(), 1)):
        scenario = gather(fabric=fabric)
        link, hbm = scenario.system.fabric.link, scenario.gpu.hbm
        message = hops * (link.latency_ticks + ticks_for(UNIT, link.achieved_bytes_per_s))
        landing = hbm.latency_ticks + ticks_for(UNIT, hbm.achieved_bytes_per_s)
        times = {
            wait: makespan(scenario, plan(put(), sms=4, tactics=tactics(CopyProtocol.SIMPLE, wait))) for wait in Wait
        }
        # Four SMs send their flags at once.
        slack = 4 * ticks_for(UNIT, link.achieved_bytes_per_s)
        back = times[Wait.POLL] - times[Wait.EVENT] - hops * link.latency_ticks
        assert 0 <= back - (message + landing) <= slack
        assert times[Wait.MONITOR] == times[Wait.POLL]
        for protocol in (CopyProtocol.LL, CopyProtocol.LL128):
            alike = {makespan(scenario, plan(put(), sms=4, tactics=tactics(protocol, wait))) for wait in Wait}
            assert len(alike) == 1


def test_flags_of_copies_are_no_reads() -> None:
    scenario = gather()
    found = lowered_run(scenario, plan(put(), sms=4, tactics=tactics(CopyProtocol.SIMPLE, Wait.POLL)))

    assert (found[0].program.flow_traffic == TrafficClass.FLAGS).any()
    assert traffic_of([found[0]], found[1]).flag_reads == 0


@pytest.mark.parametrize("outstanding", [1024, 4096, 16384, 1 << 20])
def test_the_rate_of_an_sm_is_what_it_has_under_way_in_a_round_trip(outstanding: int) -> None:
    scenario = gather()
    limited = with_copies(scenario, replace(scenario.gpu.sm_copy, outstanding_bytes=outstanding, setup_ticks=0))
    gpu, link = scenario.gpu, scenario.system.fabric.link
    services = 2 * ticks_for(128, gpu.hbm.achieved_bytes_per_s) + ticks_for(128, link.achieved_bytes_per_s)
    trip = 2 * gpu.hbm.latency_ticks + gpu.l2.latency_ticks + link.latency_ticks + services
    rate = min(Fraction(outstanding * TICKS_PER_SECOND, trip), Fraction(gpu.sm_copy.bytes_per_s))

    found = makespan(limited, plan(put(), sms=1), 128)

    assert found - trip == pytest.approx(float(BYTES * TICKS_PER_SECOND / rate), rel=0.02)


def test_copies_that_share_the_sms_queue_with_the_tiles() -> None:
    scenario = ag_gemm(512, 4096, 2048, ranks=2)
    block = Region(0, IndexRange(0, 256), IndexRange(0, 2048))
    move = Transfer("x1", Direction.PUT, block, 1, "s")
    own = TileGroup("g0", (Region(0, IndexRange(0, 256), IndexRange(0, 2048)),), IndexRange(0, 2048))
    other = TileGroup("g1", (Region(1, IndexRange(0, 256), IndexRange(0, 2048)),), IndexRange(0, 2048), after=("s",))
    shared = plan(move, own, other, sms=2, mode=EngineMode.SHARED, compute_sms=4)
    apart = plan(move, own, other, sms=2, compute_sms=2)
    lowered, finished = lowered_run(scenario, shared)
    pool = lowered.program.op_pool
    copies, tiles = (lowered.program.op_kind == kind for kind in (OpKind.TRANSFER, OpKind.TILE))

    assert set(pool[copies]) == set(pool[tiles])
    assert finished.outcome is RunOutcome.DONE
    alone = lowered_run(scenario, apart)[0].program
    assert set(alone.op_pool[alone.op_kind == OpKind.TRANSFER]) != set(alone.op_pool[alone.op_kind == OpKind.TILE])
    assert 0 < simulate_op(scenario, shared).utilization.engines < 1


@pytest.mark.parametrize("mode", [EngineMode.OWN, EngineMode.SHARED])
def test_copies_of_a_lane_follow_each_other_wherever_they_run(mode: EngineMode) -> None:
    parts = [put(rows=IndexRange(i * 8, i * 8 + 8), name=f"x{i}_") for i in range(3)]
    lowered, finished = lowered_run(gather(), plan(*(replace(part, lane=0) for part in parts), sms=4, mode=mode))
    starts = [min(finished.op_start[ops.work]) for ops in lowered.steps]
    ends = [finished.op_done[ops.done] for ops in lowered.steps]

    assert all(start >= end for start, end in some(zip(starts[1:], ends[:-1], strict=True)))


def test_copies_and_polls_can_keep_each_other_from_the_sms_for_ever() -> None:
    scenario = ag_gemm(512, 4096, 2048, ranks=2)
    block = Region(0, IndexRange(0, 256), IndexRange(0, 2048))
    own = TileGroup("g0", (Region(0, IndexRange(0, 256), IndexRange(0, 2048)),), IndexRange(0, 2048))
    other = TileGroup(
        "g1", (Region(1, IndexRange(0, 256), IndexRange(0, 2048)),), IndexRange(0, 2048), after=("s",), stream=1
    )
    move = Transfer("x1", Direction.PUT, block, 1, "s", after=("g0",))
    waiting = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    steps: tuple[Step, ...] = (other, own, move)
    shared, apart = (
        simulate_op(scenario, plan(*steps, sms=2, mode=mode, compute_sms=2, tactics=waiting))
        for mode in (EngineMode.SHARED, EngineMode.OWN)
    )

    assert shared.outcome is RunOutcome.DEADLOCK and shared.deadlock
    assert apart.outcome is RunOutcome.DEADLOCK  # the tiles of the own block find no SM either
    beside = simulate_op(scenario, plan(own, move, other, sms=2, compute_sms=2, tactics=waiting))
    assert beside.outcome is RunOutcome.DONE


def test_commands_of_one_gpu_are_issued_one_after_the_other() -> None:
    scenario = lone_gather(ROWS * 4, COLS, ranks=4)
    interval, setup = 3 * TICKS_PER_US, scenario.gpu.dma.setup_ticks
    slow = with_dma(scenario, replace(scenario.gpu.dma, issue_interval_ticks=interval))
    three = plan(put(1), put(2), put(3), dma=3)
    found = lowered_run(slow, three)
    starts = sorted(starts_of(*found, f"x{peer}", OpKind.TRANSFER)[0] for peer in (1, 2, 3))

    assert starts == [interval, 2 * interval, 3 * interval]
    assert makespan(slow, plan(put())) == makespan(scenario, plan(put()))  # a lone command costs what it did
    assert interval < setup


@pytest.mark.parametrize(("cols", "packets"), [(COLS, BYTES // 65536), (COLS // 2, ROWS)])
def test_packets_hold_the_engine_one_for_each_row_of_a_strided_region(cols: int, packets: int) -> None:
    cost = TICKS_PER_US // 5
    scenario = with_dma(gather(), replace(gather().gpu.dma, bytes_per_s=20 * 10**9))  # slower than the link
    dear = with_dma(scenario, replace(scenario.gpu.dma, packet_bytes=65536, packet_ticks=cost))
    part = put(cols=IndexRange(0, cols))

    extra = makespan(dear, plan(part)) - makespan(scenario, plan(part))

    assert extra == pytest.approx((packets - 1) * cost, rel=0.01)
    assert packets > 4


def test_rows_longer_than_a_packet_are_several() -> None:
    cost = TICKS_PER_US // 5
    scenario = with_dma(gather(), replace(gather().gpu.dma, bytes_per_s=20 * 10**9))  # slower than the link
    dear = with_dma(scenario, replace(scenario.gpu.dma, packet_bytes=256, packet_ticks=cost))
    part = put(cols=IndexRange(0, COLS // 2))
    assert makespan(dear, plan(part)) - makespan(scenario, plan(part)) == pytest.approx((4 * ROWS - 1) * cost, rel=0.01)


def test_a_command_written_before_costs_what_the_profile_says_or_nothing() -> None:
    scenario = gather()
    setup = scenario.gpu.dma.setup_ticks
    ready = plan(put(), mode=EngineMode.PRELAUNCHED)
    reported = with_dma(
        scenario, replace(scenario.gpu.dma, prelaunch_ticks=setup // 4, issue_interval_ticks=setup // 2)
    )

    assert makespan(scenario, plan(put())) - makespan(scenario, ready) == setup
    assert makespan(reported, ready) - makespan(scenario, ready) == setup // 4


def test_one_command_serves_two_peers_at_half_the_rate() -> None:
    scenario = lone_gather(ROWS * 4, COLS, ranks=4)
    link = with_dma(scenario, replace(scenario.gpu.dma, bytes_per_s=20 * 10**9, setup_ticks=5 * TICKS_PER_US))
    one = lowered_run(link, plan(put(1), put(2), dma=1, mode=EngineMode.BROADCAST))
    turns = makespan(link, plan(put(1), put(2), dma=1))
    setup, moving = link.gpu.dma.setup_ticks, 2 * BYTES * TICKS_PER_SECOND // link.gpu.dma.bytes_per_s

    assert (one[0].program.op_kind == OpKind.TRANSFER).sum() == 1
    assert done_at(*one, "x1") == done_at(*one, "x2") == one[1].makespan_ticks
    assert one[1].makespan_ticks == pytest.approx(setup + moving, rel=0.05)
    assert turns - one[1].makespan_ticks == pytest.approx(setup, rel=0.3)


def test_what_follows_the_other_half_of_a_broadcast_in_its_lane_follows_all_that_is_before_it() -> None:
    between = put(1, rows=IndexRange(0, ROWS - 1), name="between", after=("x1",), lane=0)
    last = put(2, rows=IndexRange(ROWS - 1, ROWS), name="last", lane=0)
    steps = (put(1, lane=0), between, put(2, lane=0), last)

    found = lowered_run(gather(4), plan(*steps, dma=2, mode=EngineMode.BROADCAST))

    times = [done_at(*found, name) for name in ("x1", "x2", "between1", "last2")]
    assert times[0] == times[1] < times[2] < times[3]


def test_puts_of_other_regions_or_after_other_steps_are_commands_of_their_own() -> None:
    scenario = lone_gather(ROWS * 4, COLS, ranks=4)
    half = put(2, rows=IndexRange(0, ROWS // 2))
    after = put(2, after=("x1",))
    in_lanes = (put(1, lane=0), put(2, lane=0), put(3, lane=0))
    for steps, commands in (((put(1), half), 2), ((put(1), after), 2), (in_lanes, 2), ((put(1), put(2), put(3)), 2)):
        found = lowered_run(scenario, plan(*steps, dma=3, mode=EngineMode.BROADCAST))
        assert (found[0].program.op_kind == OpKind.TRANSFER).sum() == commands
        assert found[1].outcome is RunOutcome.DONE


@pytest.mark.parametrize("setup_us", [0, 1, 20])
def test_a_channel_sets_up_a_copy_while_bytes_of_the_one_before_move(setup_us: int) -> None:
    """Four quarters of a block: each is set up once the last but one is there, and leaves when the last has left."""
    scenario, rows = gather(), [IndexRange(at * ROWS // 4, (at + 1) * ROWS // 4) for at in range(4)]
    link, hbm, setup = scenario.system.fabric.link, scenario.gpu.hbm, setup_us * TICKS_PER_US
    way, moved = 2 * hbm.latency_ticks + link.latency_ticks, ticks_for(BYTES // 4, link.achieved_bytes_per_s)
    quarters = [put(1, each, name=f"q{each.start}", lane=0) for each in rows]
    case, left, there = with_dma(scenario, replace(scenario.gpu.dma, setup_ticks=setup)), 0, [0, 0]
    for _ in quarters:
        left = max(left, there[-2] + setup) + moved
        there.append(left + way)

    assert makespan(case, plan(*quarters, dma=2, mode=EngineMode.CHANNELS)) == pytest.approx(there[-1], rel=0.01)
    assert makespan(case, plan(*quarters, dma=2)) == pytest.approx(4 * (setup + moved + way), rel=0.01)


def test_sms_are_dealt_to_channels() -> None:
    """Two channels of two SMs each send side by side what all four send one after the other, whoever the peer is."""
    scenario = gather(3)
    both = [put(1, IndexRange(0, ROWS // 2), lane=0), put(1, IndexRange(ROWS // 2, ROWS), name="y", lane=1)]
    starts = {
        mode: starts_of(*lowered_run(scenario, plan(*both, sms=4, mode=mode)), "y1", OpKind.TRANSFER)
        for mode in (EngineMode.OWN, EngineMode.CHANNELS)
    }

    assert min(starts[EngineMode.OWN]) > min(starts[EngineMode.CHANNELS]) == 0
    assert [len(starts[mode]) for mode in starts] == [4, 2]


@pytest.mark.parametrize("fold", [True, False])
def test_copies_equal_the_oracle(fold: bool) -> None:
    scenario = lone_gather(64 * 3, 256, ranks=3, gpu=h100(), fabric=switch(nvlink()))
    dma = replace(scenario.gpu.dma, issue_interval_ticks=TICKS_PER_US, packet_ticks=99_999, packet_bytes=4096)
    scenario = with_copies(with_dma(scenario, dma), replace(scenario.gpu.sm_copy, outstanding_bytes=2048))
    scenario = with_dma(scenario, dma)
    block = Region(0, IndexRange(0, 64), IndexRange(0, 256))
    steps = [replace(put(peer), region=block) for peer in (1, 2)]
    halves = [replace(step, name=f"h{step.name}", signal=f"h{step.signal}") for step in steps]
    queued = [
        replace(step, lane=step.peer - 1, region=replace(block, rows=rows))
        for copies, rows in ((steps, IndexRange(0, 40)), (halves, IndexRange(40, 64)))
        for step in copies
    ]
    for schedule in (
        plan(*steps, sms=4, tactics=tactics(CopyProtocol.LL)),
        plan(*steps, sms=4, tactics=tactics(CopyProtocol.LL128, Wait.POLL)),
        plan(*steps, sms=4, tactics=tactics(CopyProtocol.SIMPLE, Wait.POLL), mode=EngineMode.SHARED, compute_sms=3),
        plan(*steps, dma=2),
        plan(*steps, dma=1, mode=EngineMode.BROADCAST),
        plan(*queued, dma=2, mode=EngineMode.CHANNELS),
        plan(*queued, sms=4, mode=EngineMode.CHANNELS, tactics=tactics(CopyProtocol.LL)),
    ):
        assert differs_from_oracle(scenario, schedule, 256, fold=fold) == []


BESIDE = """
use "nvidia/{library}"
system s {{ gpus 8 x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor bf16[128, 4096]; w = tensor bf16[4096, 16384]; y = gemm(x, w)
  v = tensor bf16[16384, 4096] shard rows; g = all_gather(v)
}}
"""


@pytest.mark.parametrize("library", ["a100", "b200"])
def test_copies_that_wait_at_their_source_leave_memory_to_a_gemm(library: str) -> None:
    scenario = compile_text(BESIDE.format(library=library, gpu=library.upper())).scenario().case
    without_limit = with_dma(scenario, replace(scenario.gpu.dma, outstanding_bytes=None))

    def times(one: OpCase, template: str = "bulk") -> tuple[int, int]:
        schedule = build_op_plan(one, OpChoice(template, 8, EngineChoice(EngineKind.DMA, 7)))
        result = simulate_op(one, schedule, unit_bytes=1 << 15)
        return result.compute_ticks, result.comm_ticks

    alone, alone_copies = times(scenario, "serial")
    beside, copies = times(scenario)
    slowed, _ = times(without_limit)

    assert beside < 1.15 * alone < 1.25 * alone < slowed
    assert copies == pytest.approx(alone_copies, rel=0.01)
