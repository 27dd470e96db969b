"""``sm(tiles)``: where tiles may store, and what is said where they may not."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import EngineMode, OpChoice
from magus.compiler.planning.build import expression_of

HEAD = """mgs 1
use "nvidia/h100"
system h8 { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }
"""
RS = """workload w on h8 {
  x = tensor bf16[8192, 8192] shard cols
  v = tensor bf16[8192, 8192] shard rows
  p = gemm(x, v)
  y = reduce_scatter(p)
}
"""
AG = """workload w on h8 {
  x = tensor bf16[8192, 8192] shard rows
  v = tensor bf16[8192, 8192] shard cols
  y = gemm(all_gather(x), v)
}
"""


def declared(schedule: str, workload: str = RS) -> OpChoice:
    (named,) = compile_text(f"{HEAD}{workload}schedule s for w = {schedule}\n").scenario().case.schedules
    assert isinstance(named.body, OpChoice)
    return named.body


def test_all_sms_store_and_the_text_says_so_in_both_directions() -> None:
    choice = declared("hetero_fused_1d(engine=sm(tiles), kernel=persistent)")

    assert choice.engine.mode is EngineMode.TILES
    assert choice.engine.count == 132
    assert "engine=sm(tiles)" in expression_of(choice)
    assert declared(expression_of(choice)) == choice


@pytest.mark.parametrize(
    ("schedule", "workload", "code", "said"),
    [
        ("shard_p2p(engine=sm(tiles), kernel=persistent)", RS, "MGS407", "x2 waits for x1"),
        ("serial(engine=sm(tiles), kernel=persistent, algorithm=hierarchical)", RS, "MGS511", "hierarchical"),
        ("shard_p2p(engine=sm(tiles), kernel=persistent)", AG, "MGS407", "AG+GEMM moves what was there before"),
        ("shard_p2p(engine=sm(tiles))", RS, "MGS407", "from inside a persistent kernel"),
        ("shard_p2p(engine=sm(tiles), kernel=persistent, protocol=ll)", RS, "MGS407", "as protocol simple"),
        ("shard_p2p(engine=sm(16, tiles), kernel=persistent)", RS, "MGS401", "H100 has 132"),
        ("shard_p2p(engine=dma(7, tiles), kernel=persistent)", RS, "MGS407", "dma of H100 is never tiles"),
        ("shard_p2p(engine=sm(tiles), kernel=persistent, transfer=get)", RS, "MGS511", "put by the rank"),
    ],
)
def test_where_no_tile_can_store(schedule: str, workload: str, code: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        declared(schedule, workload)

    (only,) = caught.value.diagnostics
    assert only.code.name == code
    assert said in only.message
    assert only.hint


def plan(put: str) -> str:
    return f"""{HEAD}{RS}schedule s for w {{
  plan by sm(tiles) kernel persistent
  g1 = compute p.shard(1), p.shard(2), p.shard(3), p.shard(4), p.shard(5), p.shard(6), p.shard(7)
  g0 = compute p.shard(0)
{put}}}
"""


def puts(after: str, more: str = "") -> str:
    return "".join(f"  t{k} = put p.shard({k}) to {k} signal s{k}{more} after {after}\n" for k in range(1, 8))


def test_tiles_of_a_plan_may_add_where_their_sums_land() -> None:
    (named,) = compile_text(plan(puts("g1", " reduce"))).scenario().case.schedules

    assert named.name == "s"


def test_what_is_there_from_the_beginning_is_pulled() -> None:
    choice = declared("hetero_unfused_1d(engine=sm(tiles), kernel=persistent, transfer=get)", AG)

    assert choice.engine.by_tiles and declared(expression_of(choice), AG) == choice


@pytest.mark.parametrize("template", ["shard_p2p(", "pipelined(algorithm=ring, ", "serial("])
def test_what_is_passed_on_or_waits_or_overlaps_nothing_is_not_pulled(template: str) -> None:
    with pytest.raises(CompileError) as caught:
        declared(f"{template}engine=sm(tiles), kernel=persistent, transfer=get)", AG)

    assert {each.code.name for each in caught.value.diagnostics} <= {"MGS407", "MGS511"}


@pytest.mark.parametrize(("after", "said"), [("g0", "moves what no kernel"), ("g1, s3", "waits for s3")])
def test_a_put_of_what_no_kernel_has_just_computed_is_refused_at_its_place(after: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(plan(puts(after, " reduce")))

    first = caught.value.diagnostics[0]
    assert first.code.name == "MGS407"
    assert first.message.startswith(f"t1 {said}")
    assert first.span.text.startswith("t1 = put")
