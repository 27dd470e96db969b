"""Kernels whose time alone is known: they take it, on the SMs that they had, behind all that they wait for."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import TICKS_PER_US, Scenario, TimedShape
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.simcore import simulate
from magus.simcore.kernels.dispatch import least_sm_ticks, work_of

pytestmark = pytest.mark.usefixtures("compiled_core")
HARDWARE = 'use "nvidia/h100"\nsystem node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
SHAPES = "x = tensor bf16[512, 512] shard rows; c = tensor bf16[512, 512] shard cols; w = tensor bf16[512, 256]"


def scenario(body: str) -> Scenario:
    return compile_text(f"{HARDWARE}workload w on node {{ {SHAPES}; {body} }}\n").scenario("w")


def times(body: str) -> dict[str, tuple[float, float]]:
    """When each op begins and ends in serial, in us."""
    found = scenario(body)
    result = simulate(found.system, build_plan(found.system, found.workload, SERIAL))
    return {op.name: (op.begin_ticks / TICKS_PER_US, op.end_ticks / TICKS_PER_US) for op in result.ops}


def refused(body: str) -> str:
    with pytest.raises(CompileError) as caught:
        scenario(body)
    (found,) = caught.value.diagnostics
    return f"{found.code.name} {found.message}"


def test_each_takes_its_time_and_begins_behind_what_it_waits_for() -> None:
    found = times("a = timed(x, takes=20 us); b = timed(c, a, takes=5 us, after=3 us, sms=8); d = norm(b)")

    assert found["a"] == (0.0, 20.0)
    assert found["b"] == (23.0, 28.0)
    assert found["d"][0] == 30.0  # with the launch of a kernel, which the others have in their times


def test_each_rank_may_have_its_own_times() -> None:
    """What follows begins at each rank behind its own; a collective behind the last of them."""
    behind = "y = all_gather(b); d = timed(x, y, takes=5 us)"
    found = scenario(
        "a = timed(x, takes=[20 us, 70 us, 31 us, 20 us], after=[0 us, 0 us, 0 us, 5 us]);"
        f"b = timed(x, a, takes=[9 us, 4 us, 4 us, 4 us]); {behind}"
    )
    result = simulate(found.system, build_plan(found.system, found.workload, SERIAL))
    ends = {
        (each.rank, each.name.partition(".")[0]): round(each.end_ticks / TICKS_PER_US, 3)
        for each in result.timeline.intervals
    }
    alike = times(f"a = timed(x, takes=70 us); b = timed(x, a, takes=4 us); {behind}")

    assert [ends[rank, "a"] for rank in range(4)] == [20, 70, 31, 25]
    assert [ends[rank, "b"] for rank in range(4)] == [29, 74, 35, 29]
    assert result.ranks_simulated == 4
    assert result.makespan_us == pytest.approx(alike["d"][1], abs=0.01)


def test_ranks_of_one_time_are_alike() -> None:
    listed = scenario("a = timed(x, takes=[20 us, 20 us, 20 us, 20 us], after=[1 us, 1 us, 1 us, 1 us])")

    assert listed.workload == scenario("a = timed(x, takes=20 us, after=1 us)").workload
    assert simulate(listed.system, build_plan(listed.system, listed.workload, SERIAL)).ranks_simulated == 1


def test_what_it_leaves_may_be_gathered_or_added_up() -> None:
    found = scenario("a = timed(x, takes=9 us); y = reduce_scatter(timed(w, a, takes=1 us)); z = all_gather(a)")

    assert [op.label for op in found.workload.ops] == ["timed", "timed", "reduce_scatter", "all_gather"]
    shapes = {tensor.name: (tensor.rows, tensor.cols) for op in found.workload.ops for tensor in op.shape.tensors}
    assert (shapes["a"], shapes["y"]) == ((512, 512), (512, 256))


def test_it_waits_for_terms_of_a_sum_too() -> None:
    text = "v = tensor bf16[512, 256] shard rows; p = gemm(c, v); a = timed(x, p, takes=1 us); y = all_reduce(p)"
    found = times(text)

    assert found["a"][0] >= found["p"][1]


@pytest.mark.parametrize(("sms", "waves"), [(132, 5), (66, 10), (131, 6)])
def test_on_fewer_sms_it_takes_longer(sms: int, waves: int) -> None:
    gpu = scenario("a = timed(x, takes=10 us)").gpu
    work = work_of(gpu, TimedShape(10 * TICKS_PER_US), sms)

    assert (work.waves, work.unit_ticks) == (waves, 2 * TICKS_PER_US)


def test_a_kernel_of_few_blocks_leaves_the_other_sms() -> None:
    found = scenario("a = timed(x, takes=10 us, sms=32)")
    work = work_of(found.gpu, TimedShape(10 * TICKS_PER_US, sms=32), 100)

    assert work.waves * work.unit_ticks == 10 * TICKS_PER_US
    assert least_sm_ticks(found.case) == 32 * 10 * TICKS_PER_US


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a = timed(x)", "MGS209 timed does not say its takes"),
        ("a = timed(x, takes=[1 us, 2 us])", "MGS310 takes has 2 times, and there are 4 ranks"),
        ("a = timed(x, takes=1 us, after=[])", "MGS310 after has 0 times, and there are 4 ranks"),
        ("a = timed(x, takes=[1 us, 2 us, 3, 4 us])", "MGS301 takes is a time: 3 what?"),
        ("a = timed(x, takes=12)", "MGS301 takes is a time: 12 what?"),
        ("a = timed(x, takes=12 KiB)", "MGS303 takes is a time, got bytes"),
        ("a = timed(x, takes=11 s)", "MGS307 takes is from 0 to 10 s, got 11 s"),
        ("a = timed(x, takes=1 us, sms=133)", "MGS307 H100 has 132 SMs, got 133"),
        ("a = timed(x, c, takes=1 us); y = all_gather(timed(c, a, takes=1 us))", "MGS310"),
    ],
)
def test_calls_that_cannot_be(body: str, message: str) -> None:
    assert refused(body).startswith(message)


def test_it_has_no_backward_pass() -> None:
    text = (
        "workload w on node { x = tensor bf16[8, 8]; y = timed(x, takes=1 us) }\nworkload back on node { backward w }\n"
    )
    with pytest.raises(CompileError) as caught:
        compile_text(HARDWARE + text)
    assert [each.code.name for each in caught.value.diagnostics] == ["MGS520"]
