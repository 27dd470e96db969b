"""Files of ``magus plan --format triton``: what they hold, and what they refuse; MAGUS_UPDATE_GOLDEN=1 writes them."""

import os
from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import OpCase, Pattern
from magus.compiler.planning.build import ScheduleError
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.tile_tables import Group
from magus.compiler.targets.triton import triton_text
from tests.helpers import paths
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.some import some
from tests.helpers.targets.gemm_world import plan_of

GOLDEN = paths.GOLDEN / "triton"
CASES = {
    "ag_gemm": (Pattern.AG_GEMM, "hetero_fused_1d(chunks=6, engine=dma(2))"),
    "ag_gemm_slices": (Pattern.AG_GEMM, "uniform_fused_2d(chunks=6, engine=dma(2))"),
    "gemm_rs": (Pattern.GEMM_RS, "pipelined(chunks=6, engine=dma(2))"),
    "a2a_gemm": (Pattern.A2A_GEMM, "shard_p2p(engine=sm(8))"),
}


def scenario(pattern: Pattern) -> OpCase:
    return scenario_of(pattern, SYSTEMS[1], 3, 96, 192, 384)


def data_of(text: str) -> str:
    """All but what is the same in every file."""
    facts, data = text.index("RANKS = "), text.index("# What the flags")
    return text[facts : text.index("TILE = ")] + text[data : text.index("@triton.jit")]


@pytest.mark.parametrize("name", CASES)
def test_the_file_is_the_one_that_was_looked_at(name: str) -> None:
    pattern, expression = CASES[name]
    found = data_of(triton_text(scenario(pattern), resolve_schedule(scenario(pattern), expression)))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("MAGUS_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")

    assert found == path.read_text(encoding="utf-8")


def test_a_file_has_one_rank_or_all() -> None:
    made = scenario(Pattern.AG_GEMM)
    schedule = resolve_schedule(made, "hetero_fused_1d(chunks=6, engine=dma(2))")
    every, one = (plan_of(triton_text(made, schedule, rank)) for rank in (None, 1))

    for name in ("FLAGS", "GROUPS", "STEPS"):
        whole = getattr(every, name)
        assert set(whole) == {0, 1, 2}
        assert getattr(one, name) == {1: whole[1]}


def test_a_group_waits_for_what_its_queue_brings_it() -> None:
    """Kernels of one stream have what earlier ones waited for; in one persistent kernel each waits itself."""
    text = """use "nvidia/h100"
    system s { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on s { x = tensor bf16[128, 128] shard rows; v = tensor bf16[128, 64]; xg = all_gather(x)
      y = gemm(xg, v) }
    schedule relying for w {
      plan by dma(1)
      t = put xg.shard(0) to 1 signal arrived
      above = compute y.shard(1)[0:32, 0:64] after arrived
      below = compute y.shard(1)[32:64, 0:64]
      own = compute y.shard(0)
    }
    """
    made = compile_text(text).scenario().case
    groups: tuple[Group, ...] = plan_of(triton_text(made, resolve_schedule(made, None))).GROUPS[0]

    assert {group.name: group.waits for group in groups} == {"above": (0,), "below": (0,), "own": ()}


def test_what_stands_in_the_head_is_no_program() -> None:
    made = scenario(Pattern.AG_GEMM)
    schedule = resolve_schedule(made, "serial(engine=dma(2))")
    hostile = replace(schedule, expression='a\nraise SystemExit("""')

    plan_of(triton_text(made, hostile))


HEAD = """use "nvidia/h100"
system s { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on s { %s }
"""
WORKLOADS = {
    "x = tensor bf16[128, 128] shard rows; y = all_gather(x)": "w is all_gather, and the kernel is one GEMM",
    "q = tensor bf16[128, 256] shard rows; kv = tensor bf16[128, 256] shard rows; "
    "y = attention(q, all_gather(kv), heads=4, kv_heads=2)": "w is AG+attention, and the kernel is one GEMM",
    "x = tensor bf16[128, 128]; v = tensor bf16[256, 64]; "
    "y = grouped_gemm(all_to_all(x), v, rows=[64, 64])": "w is A2A+grouped_gemm, and the kernel is one GEMM",
    "x = tensor bf16[128, 128]; v = tensor bf16[128, 64]; y = gemm(x, v)": "w is GEMM, and the kernel is one GEMM",
    "x = tensor bf16[256, 128]; v = tensor bf16[128, 64]; y = gemm(all_to_all(x, rows=[64, 192]), v)": (
        "w sends blocks of different sizes"
    ),
    "x = tensor bf16[128, 64]; v = tensor bf16[128, 64]; "
    "y = gemm(all_to_all(x), v)": "w has blocks side by side in the inner dimension",
    "x = tensor bf16[128, 128]; v = tensor bf16[128, 64]; u = tensor bf16[64, 64]; "
    "y = gemm(all_to_all(gemm(x, v)), u)": "w is GEMM+A2A+GEMM, and the kernel is one GEMM",
}


def refused(made: OpCase, expression: str | None) -> str:
    with pytest.raises(ScheduleError) as caught:
        triton_text(made, resolve_schedule(made, expression))
    assert caught.value.rejection.code.name == "MGS541" and caught.value.rejection.hint
    return caught.value.rejection.message


@pytest.mark.parametrize("body", some(WORKLOADS))
def test_workloads_that_are_no_gemm_beside_one_collective(body: str) -> None:
    assert refused(compile_text(HEAD % body).scenario().case, "serial(engine=dma(1))") == WORKLOADS[body]


@pytest.mark.parametrize(
    ("pattern", "expression", "message"),
    [
        (
            Pattern.GEMM_RS,
            "bespoke(engine=sm(tiles), kernel=persistent, wait=poll)",
            "sm(tiles) stores or pulls from tiles",
        ),
        (Pattern.AG_GEMM, "pipelined(chunks=8, algorithm=nvls, engine=sm(8))", "goes through the switch"),
        (Pattern.AG_GEMM, "serial(engine=dma(3), kernel=persistent, split_k=2)", "in one program, and split_k in"),
    ],
)
def test_what_the_file_cannot_do(pattern: Pattern, expression: str, message: str) -> None:
    made = scenario_of(pattern, SYSTEMS[0], 4, 128, 128, 256)

    assert message in refused(made, expression)


def test_kernels_of_two_streams_that_wait_for_each_other() -> None:
    text = """use "nvidia/h100"
    system s { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on s { x = tensor bf16[128, 128] shard rows; v = tensor bf16[128, 64]; xg = all_gather(x)
      y = gemm(xg, v) }
    schedule crossed for w {
      plan by dma(1)
      theirs = compute y.shard(1) after arrived
      own = compute y.shard(0) stream 1
      t = put xg.shard(0) to 1 signal arrived after own
    }
    """
    made = compile_text(text).scenario().case

    assert "the kernels cannot be one kernel: these wait for each other" in refused(made, None)
