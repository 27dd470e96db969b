"""Which gets may arrive where an earlier one was, and how much staging a plan then needs."""

from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    Region,
    TileGroup,
    Transfer,
    Wait,
)
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import ScheduleError, build_op_plan, declared
from magus.compiler.planning.staging import elements_reused
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.verify.check import check_plan
from magus.simcore import RunOutcome, simulate_op
from tests.helpers.scenarios.scenarios import ag_gemm, h100, lone_gather

GET = ExecutionOptions(Direction.GET)
PERSISTENT = replace(GET, kernel=Kernels.PERSISTENT, wait=Wait.POLL)
TEMPLATES = ("uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_2d")
DMA = EngineChoice(EngineKind.DMA, 3)


@pytest.fixture(scope="module")
def scenario() -> OpCase:
    return ag_gemm(1024, 2048, 2048, ranks=4, gpu=h100())


def held(scenario: OpCase, template: str, depth: int, tactics: ExecutionOptions = GET, streams: int = 1) -> OpPlan:
    return build_op_plan(scenario, OpChoice(template, 32, DMA, streams, tactics, depth=depth))


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("template", TEMPLATES)
def test_staging_is_the_share_of_the_pieces_that_are_held(scenario: OpCase, template: str, streams: int) -> None:
    gathered = 1024 * 2048 * 2 * 3 // 4
    whole = held(scenario, template, 0, streams=streams)

    for depth in (1, 2, 4, 8, 16):
        part = held(scenario, template, depth, streams=streams)
        saved = gathered * max(0, 8 - depth) // 8
        assert part.staging_bytes == whole.staging_bytes - saved
        assert check_plan(scenario, part) == ()


@pytest.mark.parametrize("tactics", [GET, PERSISTENT], ids=["launched", "persistent"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_it_runs_and_holding_less_is_not_faster(scenario: OpCase, template: str, tactics: ExecutionOptions) -> None:
    times = []
    for depth in (1, 2, 0):
        result = simulate_op(scenario, held(scenario, template, depth, tactics), unit_bytes=4096)
        assert result.outcome is RunOutcome.DONE
        times.append(result.makespan_ticks)

    assert times[0] >= times[1] >= times[2]


def test_a_plan_written_out_needs_as_much_as_the_template_it_came_from(scenario: OpCase) -> None:
    head = 'use "nvidia/h100"\nsystem s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    work = (
        "{ x = tensor bf16[1024, 2048] shard rows; w = tensor bf16[2048, 2048] shard cols; y = gemm(all_gather(x), w) }"
    )
    text = f"{head}workload w on s {work}\n"
    here = compile_text(text).scenario("w").case
    schedule = held(here, "hetero_fused_1d", 2)

    again = compile_text(text + plan_text(here, schedule, "written")).scenario("w").case

    assert declared(again, again.schedules[0]).staging_bytes == schedule.staging_bytes
    assert schedule.staging_bytes * 4 == held(here, "hetero_fused_1d", 0).staging_bytes


def get(name: str, start: int, after: tuple[str, ...] = (), peer: int = 1) -> Transfer:
    return Transfer(
        name, Direction.GET, Region(peer, IndexRange(start, start + 8), IndexRange(0, 16)), peer, f"s_{name}", after
    )


def kernel(name: str, start: int, after: tuple[str, ...], stream: int = 0) -> TileGroup:
    return TileGroup(
        name, (Region(1, IndexRange(start, start + 8), IndexRange(0, 32)),), IndexRange(0, 16), after, stream
    )


def test_a_buffer_is_reused_only_after_everything_that_reads_it() -> None:
    first, second = get("a", 0), get("b", 8, ("g",))
    reader, other = kernel("g", 0, ("s_a",)), kernel("h", 0, ("s_a",), stream=1)
    passed_on = Transfer("p", Direction.PUT, first.region, 2, "s_p", ("s_a",))

    def reused(*steps: Transfer | TileGroup) -> int:
        return elements_reused(tuple(steps), 4, exchanges=False)

    assert reused(first, reader, second) == 8 * 16
    assert reused(first, reader, replace(second, after=())) == 0, "it may arrive before the kernel is done"
    assert reused(first, reader, other, second) == 0, "another kernel still reads"
    assert reused(first, reader, passed_on, second) == 0, "and so does what passes it on"
    assert reused(first, reader, passed_on, replace(second, after=("g", "p"))) == 8 * 16
    assert reused(first, second) == 0, "nobody has read it"
    assert reused(first, reader, replace(second, peer_after=("s_a",))) == 0, "a peer may read it later"


def test_a_larger_piece_does_not_fit_where_a_smaller_one_was() -> None:
    reader = kernel("g", 0, ("s_a",))
    large = replace(get("b", 8, ("g",)), region=Region(1, IndexRange(8, 24), IndexRange(0, 16)))

    assert elements_reused((get("a", 0), reader, large), 4, exchanges=False) == 0


def test_waits_in_a_circle_reuse_nothing() -> None:
    first, reader = get("a", 0, ("g",)), kernel("g", 0, ("a",))

    assert elements_reused((first, reader), 4, exchanges=False) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hetero_fused_1d(chunks=32, depth=2)", "a put cannot wait"),
        (
            "hetero_unfused_1d(chunks=32, streams=2, transfer=get, kernel=persistent, depth=1)",
            "persistent kernels of several streams",
        ),
    ],
)
def test_where_buffers_cannot_be_reused(scenario: OpCase, text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason) as caught:
        build_op_plan(scenario, read_choice(scenario, text))

    assert caught.value.rejection.code.name == "MGS513" and caught.value.rejection.hint


def test_what_is_no_staging_is_not_held_in_part() -> None:
    lone = lone_gather(1024, 1024, ranks=4)

    with pytest.raises(ScheduleError, match="holds nothing that is gathered for a kernel"):
        build_op_plan(lone, OpChoice("direct", 16, DMA, 1, GET, depth=1))
