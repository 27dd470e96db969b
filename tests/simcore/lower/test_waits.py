"""How kernels wait: polls cost reads in proportion to the wait, a monitor two; both equal what one finds by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
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
    WaitPer,
)
from magus.simcore import simulate_op
from magus.simcore.figures.load_buckets import traffic_of
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.program.program import OpKind, Run
from tests.helpers.oracle.lowering import differs_from_oracle, done_at, lowered_run, on_gpu, plan, starts_of, with_dma
from tests.helpers.scenarios.scenarios import ag_gemm

INTERVAL, WAKE, ARM = 2 * TICKS_PER_US, 3 * TICKS_PER_US, TICKS_PER_US
POLL, MONITOR = ExecutionOptions(wait=Wait.POLL), ExecutionOptions(wait=Wait.MONITOR)


def late(setup_us: int, entries: int | None = None, cols: int = 256) -> OpCase:
    """Two GPUs with ``cols`` columns of the output each; the shard of the other one leaves ``setup_us`` late."""
    scenario = ag_gemm(256, 2 * cols, 512, ranks=2)
    sync = Sync(INTERVAL, ARM, WAKE, entries)
    dma = replace(scenario.gpu.dma, setup_ticks=setup_us * TICKS_PER_US)
    return on_gpu(with_dma(scenario, dma), replace(scenario.gpu, dma=dma, sync=sync))


def waiting_kernel(tactics: ExecutionOptions, sms: int = 1, cols: int = 256) -> OpPlan:
    """A kernel on ``sms`` SMs that needs the shard of the other GPU."""
    block = Region(0, IndexRange(0, 128), IndexRange(0, 512))
    put = Transfer("x", Direction.PUT, block, 1, "s")
    group = TileGroup("g", (Region(1, IndexRange(0, 128), IndexRange(0, cols)),), IndexRange(0, 512), after=("s",))
    return plan(put, group, compute_sms=sms, tactics=tactics)


def reads(found: tuple[LoweredPart, Run]) -> int:
    return traffic_of([found[0]], found[1]).flag_reads


def kernel_start(found: tuple[LoweredPart, Run]) -> int:
    """When its first unit looks for the flag."""
    return starts_of(*found, "g", OpKind.TILE)[0]


def test_one_sm_polls_until_the_round_in_which_the_flag_was_set() -> None:
    found = lowered_run(late(40), waiting_kernel(POLL))
    begins, set_at = kernel_start(found), done_at(*found, "x")
    rounds = (set_at - begins) // INTERVAL + 1
    (units,) = (ops for ops in found[0].steps if ops.step.name == "g")
    assert units.kernel is not None

    assert rounds > 10 and reads(found) == rounds
    assert traffic_of([found[0]], found[1]).flag_bytes == rounds * 128
    body = units.kernel.body_ticks
    assert done_at(*found, "g") == pytest.approx(begins + rounds * INTERVAL + body, rel=1e-3)


def test_reads_grow_with_the_wait_under_polls_and_not_under_a_monitor() -> None:
    delays = (10, 30, 50, 70)
    polled = [reads(lowered_run(late(us), waiting_kernel(POLL, 4))) for us in delays]
    monitored = [reads(lowered_run(late(us), waiting_kernel(MONITOR, 4))) for us in delays]

    steps = [after - before for before, after in pairwise(polled)]
    assert steps == [4 * 10] * 3  # 20 us more are ten rounds of each of four SMs
    assert monitored == [2 * 4] * 4


def test_a_monitored_unit_is_woken_and_reads_once_more() -> None:
    found = lowered_run(late(40), waiting_kernel(MONITOR))
    gpu = late(40).gpu
    confirm = gpu.hbm.latency_ticks + 2 * TICKS_PER_US // 1000  # and a line's service, below 2 ns

    woken = kernel_start(found)

    assert woken == done_at(*found, "x") + WAKE
    (ops,) = (ops for ops in found[0].steps if ops.step.name == "g")
    assert ops.kernel is not None
    assert 0 < done_at(*found, "g") - woken - ops.kernel.body_ticks <= confirm + ops.kernel.body_ticks // 1000


def test_a_flag_that_is_set_before_costs_no_wake() -> None:
    found = lowered_run(late(0), waiting_kernel(MONITOR))
    early = done_at(*found, "x") + WAKE
    launched = late(0).gpu.gemm.start_ticks
    armed = launched + ARM

    assert kernel_start(found) == max(early, armed)


def test_units_beyond_the_entries_of_the_monitor_poll() -> None:
    few, none = late(40, entries=3), late(40, entries=0)
    polled = reads(lowered_run(late(40), waiting_kernel(POLL, 4)))

    assert reads(lowered_run(none, waiting_kernel(MONITOR, 4))) == polled
    assert reads(lowered_run(few, waiting_kernel(MONITOR, 4))) == 3 * 2 + polled // 4


@pytest.mark.parametrize("wait", [Wait.POLL, Wait.MONITOR])
def test_looking_for_every_tile_is_never_faster(wait: Wait) -> None:
    chunk, tile = (
        lowered_run(late(20, cols=4096), waiting_kernel(ExecutionOptions(wait=wait, per=per), 2, 4096))
        for per in (WaitPer.CHUNK, WaitPer.TILE)
    )

    assert reads(tile) > reads(chunk)
    assert tile[1].makespan_ticks > chunk[1].makespan_ticks


def test_an_unset_interval_is_the_latency_of_memory() -> None:
    scenario = on_gpu(late(40), replace(late(40).gpu, sync=Sync()))
    latency = scenario.gpu.hbm.latency_ticks

    found = lowered_run(scenario, waiting_kernel(POLL))

    rounds = (done_at(*found, "x") - kernel_start(found)) // (latency + TICKS_PER_US // 1000)
    assert reads(found) == pytest.approx(rounds, rel=0.01)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("tactics", [POLL, MONITOR, replace(POLL, per=WaitPer.TILE)], ids=str)
def test_waiting_kernels_equal_the_oracle(tactics: ExecutionOptions, fold: bool) -> None:
    assert differs_from_oracle(late(10, entries=2), waiting_kernel(tactics, 3), 4096, fold=fold) == []


@pytest.mark.parametrize("tactics", [POLL, MONITOR], ids=["poll", "monitor"])
def test_a_kernel_that_only_looks_does_not_count_as_busy(tactics: ExecutionOptions) -> None:
    scenario = late(40)
    event, waited = (simulate_op(scenario, waiting_kernel(each, 4)) for each in (ExecutionOptions(), tactics))
    (kernel,) = (each for each in waited.timeline.intervals if each.name == "g")

    assert waited.comm_ticks <= kernel.start_ticks <= waited.comm_ticks + WAKE
    assert waited.compute_ticks == pytest.approx(event.compute_ticks, abs=INTERVAL + 2 * TICKS_PER_US)
