"""Memory as channels: the same rate for streams, and one hot channel for a flag that many poll."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    Direction,
    ExecutionOptions,
    IndexRange,
    OpCase,
    OpPlan,
    Region,
    Sync,
    TileGroup,
    Transfer,
    Wait,
)
from magus.simcore.figures.load_buckets import traffic_of
from magus.simcore.program.program import TrafficClass
from tests.helpers.oracle.lowering import differs_from_oracle, done_at, lower_op, lowered_run, makespan, on_gpu, plan
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gemm

CHANNELS = 8


def with_channels(scenario: OpCase, count: int) -> OpCase:
    return on_gpu(scenario, replace(scenario.gpu, hbm=replace(scenario.gpu.hbm, channels=count)))


def test_a_stream_over_all_channels_is_as_fast_as_over_one_server() -> None:
    scenario = lone_gemm(2048, 2048, 2048)
    whole = Region(0, IndexRange(0, 2048), IndexRange(0, 2048))
    schedule = plan(TileGroup("g", (whole,), IndexRange(0, 2048)))
    one, many = (makespan(with_channels(scenario, count), schedule) for count in (1, CHANNELS))

    assert many == pytest.approx(one, rel=0.02)


def test_every_channel_carries_its_part() -> None:
    scenario = with_channels(gemm_rs(512, 1024, 1024, ranks=2), CHANNELS)
    block = Region(1, IndexRange(0, 256), IndexRange(0, 1024))
    lowered, finished = lowered_run(scenario, plan(Transfer("x", Direction.PUT, block, 1, "s")))
    program = lowered.program
    busy = {
        name: int(finished.server_busy_ticks[i].sum()) // int(program.service_ticks[i])
        for i, name in enumerate(program.server_names)
        if name.startswith("hbm")
    }

    assert len(busy) == CHANNELS
    assert sum(busy.values()) == 2 * 256 * 1024 * 2 // 1024  # read at one end and written at the other
    assert max(busy.values()) - min(busy.values()) <= 2


def polled(channels: int, sms: int) -> tuple[OpCase, OpPlan]:
    """Kernels on ``sms`` SMs that poll one flag all the time, while the shard they need is on its way."""
    scenario = with_channels(ag_gemm(2048, 2 * 8192, 1024, ranks=2), channels)
    scenario = on_gpu(scenario, replace(scenario.gpu, sync=Sync(poll_interval_ticks=1)))
    move = Transfer("x", Direction.PUT, Region(0, IndexRange(0, 1024), IndexRange(0, 1024)), 1, "s")
    group = TileGroup("g", (Region(1, IndexRange(0, 1024), IndexRange(0, 8192)),), IndexRange(0, 1024), after=("s",))
    return scenario, plan(move, group, compute_sms=sms, tactics=ExecutionOptions(wait=Wait.POLL))


def test_a_flag_lies_in_one_channel() -> None:
    program = lower_op(*polled(CHANNELS, 16), unit_bytes=1024).program
    flags = program.flow_traffic == TrafficClass.FLAGS

    assert flags.any() and len(set(program.hop_server[program.flow_first_hop[flags]].tolist())) == 1


def test_pollers_slow_each_other_and_the_copy_down_in_a_hot_channel() -> None:
    waits = {(count, sms): lowered_run(*polled(count, sms)) for count in (1, CHANNELS) for sms in (4, 256)}
    per_poller = {key: traffic_of([found[0]], found[1]).flag_reads / key[1] for key, found in waits.items()}

    assert per_poller[CHANNELS, 256] < 0.7 * per_poller[1, 256]
    assert per_poller[CHANNELS, 4] == pytest.approx(per_poller[1, 4], rel=0.1)
    assert done_at(*waits[CHANNELS, 256], "x") >= done_at(*waits[CHANNELS, 4], "x")


@pytest.mark.parametrize("fold", [True, False])
def test_channels_equal_the_oracle(fold: bool) -> None:
    scenario = with_channels(ag_gemm(128, 256, 256, ranks=2), 3)
    move = Transfer("x", Direction.PUT, Region(0, IndexRange(0, 64), IndexRange(0, 256)), 1, "s")
    own, other = (
        TileGroup(
            f"g{owner}",
            (Region(owner, IndexRange(0, 64), IndexRange(0, 128)),),
            IndexRange(0, 256),
            after=("s",) * owner,
        )
        for owner in (0, 1)
    )
    schedule = plan(move, own, other, sms=3, compute_sms=8, tactics=ExecutionOptions(wait=Wait.POLL))

    assert differs_from_oracle(scenario, schedule, 1024, fold=fold) == []
