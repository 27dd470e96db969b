"""A lone collective by SMs is one kernel: what its launch, the flags of its ranks and its sums cost, found by hand."""

from dataclasses import replace
from itertools import product

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    TICKS_PER_US,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    IndexRange,
    Kernels,
    Late,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Region,
    Transfer,
    Variability,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore.cores.engine import run
from magus.simcore.kernels.gemm import ticks_for
from magus.simcore.lower import one_kernel
from magus.simcore.lower.machine import Idealization
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.program.program import OpKind
from tests.helpers.oracle.lowering import (
    differs_from_oracle,
    done_at,
    late_part,
    lower_op,
    lowered_run,
    makespan,
    plan,
    starts_of,
)
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, h100, lone_gather, lone_scatter, nvlink, switch, ticks
from tests.helpers.some import some

LINE = 128
SMS = EngineChoice(EngineKind.SM, 16)
# One line of a block of one line.
PUT = Transfer("x", Direction.PUT, Region(0, IndexRange(0, 1), IndexRange(0, 64)), 1, "s")
GET = Transfer("x", Direction.GET, Region(1, IndexRange(0, 1), IndexRange(0, 64)), 1, "s")
LATE = 50 * TICKS_PER_US


def pair() -> OpCase:
    return lone_gather(2, 64, ranks=2, gpu=h100(), fabric=full_mesh(nvlink()))


def one(step: Transfer, protocol: CopyProtocol = CopyProtocol.SIMPLE, sms: int = 1) -> OpPlan:
    return plan(step, sms=sms, tactics=ExecutionOptions(protocol=protocol))


def way_ticks(scenario: OpCase, *, read: bool) -> int:
    """A line, or a flag that is not read from memory, from a rank into the memory of the next."""
    gpu, link = scenario.gpu, scenario.system.fabric.link
    memory = ticks_for(LINE, gpu.hbm.achieved_bytes_per_s) + gpu.hbm.latency_ticks
    l2 = ticks_for(LINE, gpu.l2.instances * gpu.l2.bytes_per_s) + gpu.l2.latency_ticks
    passed = ticks_for(LINE, link.achieved_bytes_per_s) + link.latency_ticks + memory
    return passed + (memory + l2 if read else 0)


def test_a_put_with_flags_between_the_data_is_launched_and_seen() -> None:
    scenario = pair()
    gpu = scenario.gpu
    paced = 2 * ticks_for(LINE, gpu.sm_copy.bytes_per_s)
    expected = gpu.launch.kernel_ticks + paced + way_ticks(scenario, read=True) + gpu.hbm.latency_ticks

    assert makespan(scenario, one(PUT, CopyProtocol.LL), LINE) == pytest.approx(expected, rel=0.01)


def test_a_plain_put_waits_for_its_peer_and_sends_a_flag() -> None:
    scenario = pair()
    gpu, link = scenario.gpu, scenario.system.fabric.link
    look, flag = gpu.hbm.latency_ticks, way_ticks(scenario, read=False)
    copied = gpu.sm_copy.setup_ticks + ticks_for(LINE, gpu.sm_copy.bytes_per_s) + way_ticks(scenario, read=True)
    expected = gpu.launch.kernel_ticks + flag + look + copied + link.latency_ticks + flag + look

    assert makespan(scenario, one(PUT), LINE) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("protocol", CopyProtocol)
def test_a_get_waits_for_its_peer_and_knows_when_it_is_done(protocol: CopyProtocol) -> None:
    scenario = pair()
    gpu, link = scenario.gpu, scenario.system.fabric.link
    requested = gpu.sm_copy.setup_ticks + link.latency_ticks
    copied = requested + 2 * ticks_for(LINE, gpu.sm_copy.bytes_per_s) + way_ticks(scenario, read=True)
    expected = gpu.launch.kernel_ticks + way_ticks(scenario, read=False) + gpu.hbm.latency_ticks + copied

    assert makespan(scenario, one(GET, protocol), LINE) == pytest.approx(expected, rel=0.01)


def test_a_get_by_a_copy_engine_waits_for_a_flag_and_a_put_does_not() -> None:
    scenario = pair()
    ready = way_ticks(scenario, read=False) + scenario.gpu.hbm.latency_ticks
    for step, waits in ((PUT, 0), (GET, ready)):
        lowered, finished = lowered_run(scenario, plan(step), LINE)
        (ops,) = lowered.steps
        assert int(finished.op_ready[ops.done]) == waits


@pytest.mark.parametrize(
    ("step", "protocol", "waits"),
    [
        (PUT, CopyProtocol.SIMPLE, True),
        (PUT, CopyProtocol.LL, False),
        (GET, CopyProtocol.SIMPLE, True),
        (GET, CopyProtocol.LL, True),
    ],
)
def test_who_waits_for_a_late_rank(step: Transfer, protocol: CopyProtocol, waits: bool) -> None:
    """Rank 0 writes to and reads from rank 1, which begins late."""
    scenario = pair()
    late = replace(scenario, system=replace(scenario.system, variability=Variability(late=(Late(1, LATE),))))
    lowered = late_part(late, one(step, protocol), LINE)
    started = run(lowered.program).op_start
    (first,) = (ops for ops in lowered.steps if ops.rank == 0)

    assert (min(started[first.work]) >= LATE) == waits


def scattered(mode: EngineMode) -> LoweredPart:
    scenario = lone_scatter(64, 256, ranks=4, gpu=h100(), fabric=switch(nvlink()))
    engine = EngineChoice(EngineKind.SM, 6, mode)
    schedule = build_op_plan(scenario, OpChoice("serial", 4, engine))
    return lower_op(scenario, schedule, unit_bytes=LINE)


@pytest.mark.parametrize("mode", [EngineMode.OWN, EngineMode.SHARED])
def test_the_sums_are_a_part_of_the_kernel(mode: EngineMode) -> None:
    """One launch, sums on the SMs that copy, and no event in between."""
    lowered = scattered(mode)
    program, launch = lowered.program, lowered.scenario.gpu.launch.kernel_ticks
    launches = program.op_setup_ticks[program.op_kind == OpKind.LAUNCH]
    pools = [set(program.op_pool[program.op_kind == kind].tolist()) for kind in (OpKind.TRANSFER, OpKind.REDUCE)]

    assert [ticks for ticks in launches.tolist() if ticks] == [launch]
    assert pools[0] == pools[1] and len(pools[0]) == 1
    finished = run(program)
    arrived = max(done_at(lowered, finished, f"x{peer}") for peer in (1, 2, 3))
    assert min(starts_of(lowered, finished, "r0", OpKind.REDUCE)) == arrived + lowered.scenario.gpu.hbm.latency_ticks


def test_a_sum_on_few_sms_takes_longer() -> None:
    scenario = lone_scatter(4096, 4096, ranks=4, gpu=h100(), fabric=switch(nvlink()))
    took = []
    for count in (4, 32):
        schedule = build_op_plan(scenario, OpChoice("serial", 4, EngineChoice(EngineKind.SM, count)))
        lowered, finished = lowered_run(scenario, schedule, 16384)
        took.append(done_at(lowered, finished, "r0") - min(starts_of(lowered, finished, "r0", OpKind.REDUCE)))

    assert took[0] > 3 * took[1]


def test_the_kernel_ends_when_all_that_lands_has_been_seen() -> None:
    lowered, finished = lowered_run(pair(), one(PUT, CopyProtocol.LL), LINE)

    assert finished.makespan_ticks == done_at(lowered, finished, "x") + lowered.scenario.gpu.hbm.latency_ticks


def test_a_profile_says_how_often_it_looks() -> None:
    scenario = pair()
    sync = replace(scenario.gpu.sync, poll_interval_ticks=scenario.gpu.hbm.latency_ticks + ticks(2))
    slow = replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, sync=sync)))

    assert makespan(slow, one(PUT), LINE) - makespan(scenario, one(PUT), LINE) == 2 * ticks(2)


def test_launch_and_flags_are_left_out_where_they_are_free() -> None:
    scenario = pair()
    free = lower_op(scenario, one(PUT, CopyProtocol.LL), unit_bytes=LINE, ideal=Idealization.FREE_LAUNCH).program
    charged = makespan(scenario, one(PUT, CopyProtocol.LL), LINE)

    saved = scenario.gpu.launch.kernel_ticks + scenario.gpu.hbm.latency_ticks
    assert charged - run(free).makespan_ticks == saved


def test_copies_beside_a_kernel_are_as_they_were() -> None:
    scenario = ag_gemm(2, 64, 64, ranks=2, gpu=h100(), fabric=full_mesh(nvlink()))
    program = lower_op(scenario, one(PUT), unit_bytes=LINE).program

    assert (program.op_kind == OpKind.TRANSFER).all()


@pytest.mark.parametrize(
    "engine", [SMS, replace(SMS, mode=EngineMode.SHARED), EngineChoice(EngineKind.DMA, 2)], ids=str
)
@pytest.mark.parametrize("make", [lone_gather, lone_scatter])
def test_one_kernel_equals_the_oracle_and_folds(make, engine: EngineChoice) -> None:  # type: ignore[no-untyped-def]
    scenario = make(24, 128, ranks=3, gpu=h100(), fabric=switch(nvlink()))
    by_sms = engine.kind is EngineKind.SM
    protocols = (CopyProtocol.SIMPLE, CopyProtocol.LL) if by_sms else (CopyProtocol.SIMPLE,)
    for direction, protocol in some(product(Direction, protocols)):
        schedule = build_op_plan(scenario, OpChoice("serial", 3, engine, tactics=ExecutionOptions(direction, protocol)))
        for fold in (True, False):
            assert differs_from_oracle(scenario, schedule, LINE, fold=fold) == [], (direction, protocol, fold)
        times = {
            run(lower_op(scenario, schedule, unit_bytes=LINE, fold=fold).program).makespan_ticks
            for fold in (True, False)
        }
        assert len(times) == 1, (direction, protocol)


def test_sums_of_what_copy_engines_bring_are_one_kernel_that_looks_for_it() -> None:
    """A persistent one is launched once, and no sum waits for one of other data: each saves a launch and an event."""
    scenario = lone_scatter(64, 64, ranks=4, gpu=h100(), fabric=switch(nvlink()))
    choice = OpChoice("ring", 4, EngineChoice(EngineKind.DMA, 3))
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    launched, one_kernel = (build_op_plan(scenario, one) for one in (choice, replace(choice, tactics=tactics)))
    program = lower_op(scenario, one_kernel, unit_bytes=LINE, fold=False).program
    saved = makespan(scenario, launched, LINE) - makespan(scenario, one_kernel, LINE)
    launch, look = scenario.gpu.launch, scenario.gpu.hbm.latency_ticks

    assert (program.op_kind == OpKind.LAUNCH).sum() == 4
    # Three sums follow each other around the ring.
    assert saved == 3 * (launch.kernel_ticks + launch.event_ticks - look)
    for fold in (True, False):
        assert differs_from_oracle(scenario, one_kernel, LINE, fold=fold) == []


@pytest.mark.parametrize(("template", "pieces"), [("ring", 4), ("halving_doubling", 4), ("double_tree", 8)])
def test_algorithms_of_one_kernel_equal_the_oracle(template: str, pieces: int) -> None:
    scenario = lone_scatter(64, 64, ranks=4, gpu=h100(), fabric=switch(nvlink()))
    if template == "double_tree":
        workload = replace(scenario.shape, pattern=Pattern.ALL_REDUCE)
        scenario = replace(scenario, shape=workload)
    for protocol in (CopyProtocol.SIMPLE, CopyProtocol.LL):
        schedule = build_op_plan(scenario, OpChoice(template, pieces, SMS, tactics=ExecutionOptions(protocol=protocol)))
        assert differs_from_oracle(scenario, schedule, LINE, fold=False) == []


@pytest.mark.parametrize(("kib", "measured_us"), [(24, 6.18), (48, 6.62), (72, 6.91)])
def test_small_all_reduces_take_as_long_as_those_of_a_library_written_for_them(kib: int, measured_us: float) -> None:
    """8 x H100, packets that are put and summed in one kernel (microsoft/mscclpp, its performance baselines)."""
    scenario = lone_scatter(kib * 4, 128, ranks=8, gpu=h100(), fabric=switch(nvlink()))
    workload = replace(scenario.shape, pattern=Pattern.ALL_REDUCE)
    scenario = replace(scenario, shape=workload)
    engine, tactics = EngineChoice(EngineKind.SM, 32), ExecutionOptions(protocol=CopyProtocol.LL)
    found = makespan(scenario, build_op_plan(scenario, OpChoice("serial", 8, engine, tactics=tactics)), LINE)

    assert found / TICKS_PER_US == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize("template", ["one_shot", "direct"])
def test_nearer_peers_do_not_slow_sums(template: str) -> None:
    """The bytes that an SM has in flight are its own, and do not shrink with the latency of links."""
    text = """
use "nvidia/h100"
link near extends nvlink {{ latency {} ns }}
system hgx {{ gpus 8 x H100; fabric switch(nvswitch, link=near) }}
workload sum on hgx {{ x = tensor bf16[16384, 1024]; y = all_reduce(x) }}
"""
    scenarios = [compile_text(text.format(latency)).scenario().case for latency in (1000, 250, 50)]
    choice = OpChoice(template, 8, EngineChoice(EngineKind.SM, 32))
    far, usual, near = (makespan(each, build_op_plan(each, choice), unit_bytes=8192) for each in scenarios)

    assert far > usual > near


@pytest.mark.parametrize("many", [1, 1000])
def test_waits_for_many_peers_are_joined_without_a_tick(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = lone_gather(256, 64, ranks=64, gpu=h100(), fabric=switch(nvlink()))
    schedule = build_op_plan(scenario, OpChoice("direct", 64, SMS, tactics=ExecutionOptions(Direction.GET)))
    usual = lower_op(scenario, schedule, unit_bytes=LINE).program
    monkeypatch.setattr(one_kernel, "MANY", many)
    other = lower_op(scenario, schedule, unit_bytes=LINE).program

    assert run(usual).makespan_ticks == run(other).makespan_ticks
    assert (len(other.op_next) < 10 * other.num_ops) is (many == 1)
