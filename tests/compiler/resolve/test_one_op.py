"""A workload of one op and the same op among others are read alike, and so are their schedules."""

from dataclasses import replace

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import OpChoice, OpShape, Read, Scenario, WrittenPlan
from magus.compiler.pipeline import Compiled
from tests.helpers.scenarios.compiled import cases_in

_HARDWARE = 'use "nvidia/h100"\nsystem hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
_PLAN = """plan by dma(3)
    t1 = put x_gathered.shard(0) to 1 signal s1
    t2 = put x_gathered.shard(0) to 2 signal s2
    t3 = put x_gathered.shard(0) to 3 signal s3
    g0 = compute y.shard(0)
    g1 = compute y.shard(1), y.shard(2), y.shard(3) after s1, s2, s3"""
_OPS = {
    "AG+GEMM": "x = tensor bf16[4096, 1024] shard rows; w = tensor bf16[1024, 4096] shard cols; "
    "y = gemm(all_gather(x), w)",
    "GEMM+RS": "x = tensor bf16[4096, 4096] shard cols; w = tensor bf16[4096, 1024] shard rows; "
    "y = reduce_scatter(gemm(x, w))",
    "GEMM+AR": "x = tensor bf16[4096, 4096] shard cols; w = tensor bf16[4096, 1024] shard rows; "
    "y = all_reduce(gemm(x, w))",
    "A2A+GEMM": "x = tensor bf16[4096, 1024]; w = tensor bf16[1024, 4096]; y = gemm(all_to_all(x), w)",
    "GEMM+A2A": "x = tensor bf16[4096, 1024]; w = tensor bf16[1024, 4096]; y = all_to_all(gemm(x, w))",
    "AG+attention": "q = tensor bf16[1024, 512] shard rows; kv = tensor bf16[1024, 256] shard rows; "
    "y = attention(q, all_gather(kv), heads=8, kv_heads=2)",
}


def _compiled(body: str, rest: str = "") -> Compiled:
    return compile_text(f"{_HARDWARE}workload w on hgx {{ {body} }}\n{rest}")


def _scenario(body: str, rest: str = "") -> Scenario:
    (found,) = _compiled(body, rest).workloads
    return found


def _shape(workload: OpShape) -> OpShape:
    return replace(workload, name="", about="")


@pytest.mark.parametrize("label", _OPS)
def test_an_op_is_the_same_alone_and_among_others(label: str) -> None:
    body = _OPS[label]
    alone, among = _scenario(body), _scenario(f"{body}; n = norm(y)")

    assert alone.only_case is not None and alone.only_case.shape.label == label
    assert among.only_case is None and [op.name for op in among.workload.ops] == ["y", "n"]
    assert _shape(alone.workload.ops[0].shape) == _shape(among.workload.ops[0].shape) == _shape(alone.only_case.shape)
    assert alone.workload.ops[0].reads == among.workload.ops[0].reads


def test_workloads_are_in_the_order_of_the_file() -> None:
    found = _compiled(_OPS["AG+GEMM"], f"workload v on hgx {{ {_OPS['AG+GEMM']}; n = norm(y) }}\n"
    f"workload u on hgx {{ {_OPS['GEMM+RS']} }}")  # fmt: skip

    assert [each.name for each in found.workloads] == ["w", "v", "u"]
    assert [each.name for each in cases_in(found)] == ["w", "u"]


@pytest.mark.parametrize(
    "body",
    [
        "x = tensor bf16[512, 512]; dy = tensor bf16[512, 512]; d = gemm(x.t, dy)",
        "x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; y = gemm(x, w); repeat 2 y as x",
        "x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; y = gemm(x, w); batch x by 64",
        "x = tensor bf16[512, 512]; w = tensor bf16[512, 512]; y = gelu(gemm(x, w))",
    ],
)
def test_a_lone_op_that_its_shape_does_not_say_is_no_pair(body: str) -> None:
    found = _scenario(body)

    assert len(found.workload.ops) == 1 and found.only_case is None


def test_a_template_is_short_for_a_block_with_the_op() -> None:
    short = _scenario(_OPS["AG+GEMM"], "schedule s for w = shard_p2p(engine=dma(3))")
    long = _scenario(_OPS["AG+GEMM"], "schedule s for w { y = shard_p2p(engine=dma(3)) }")

    assert short == long and short.only_case is not None
    (named,) = short.only_case.schedules
    assert isinstance(named.body, OpChoice) and named.body.template == "shard_p2p"


@pytest.mark.parametrize("how", [_PLAN, "split rows into 2; move by dma(3)"])
def test_steps_and_outlines_are_said_of_the_op_alone_and_among_others(how: str) -> None:
    body = _OPS["AG+GEMM"]
    direct = _scenario(body, f"schedule s for w {{\n    {how}\n}}")
    block = _scenario(body, f"schedule s for w {{\n  y {{\n    {how}\n  }}\n}}")
    among = _scenario(f"{body}; n = norm(y)", f"schedule s for w {{\n  y {{\n    {how}\n  }}\n}}")

    assert direct == block and direct.schedules[0].modes == among.schedules[0].modes
    assert isinstance(direct.schedules[0].body, WrittenPlan)


@pytest.mark.parametrize("others", ["", "; n = norm(y)"])
def test_a_plan_of_an_op_is_checked_at_its_steps(others: str) -> None:
    wrong = _PLAN.replace("after s1, s2, s3", "after s1, s2")
    with pytest.raises(CompileError) as caught:
        _scenario(f"{_OPS['AG+GEMM']}{others}", f"schedule s for w {{\n  y {{\n    {wrong}\n  }}\n}}")

    (error,) = caught.value.diagnostics
    assert error.span.text.startswith("g1 = compute")


def test_an_op_that_is_apart_is_no_pair_and_keeps_its_schedule() -> None:
    found = _scenario(_OPS["AG+GEMM"], "schedule s for w { separate y by dma(3) }")

    assert found.only_case is None and found.schedules[0].modes[0].separate is not None


def test_loads_that_differ_are_of_one_op_and_row_wise_kernels_behind_it() -> None:
    rows = "[[256, 256, 256, 256], [512, 256, 128, 128], [256, 256, 256, 256], [256, 256, 256, 256]]"
    body = f"x = tensor bf16[1024, 512]; w = tensor bf16[512, 512]; y = gemm(all_to_all(x, rows={rows}), w)"
    assert _scenario(body).only_case is not None

    with pytest.raises(CompileError, match="loads that differ from rank to rank are simulated alone"):
        _scenario(f"{body}; z = gemm(y, w)")
    assert _scenario(f"{body}; z = norm(y)").workload.ops[1].shape.loads


def test_queries_of_each_rank_read_gathered_keys_by_blocks() -> None:
    (op, _) = _scenario(f"{_OPS['AG+attention']}; n = norm(y)").workload.ops

    assert op.reads == (Read("kv", by_rows=True, moves=True), Read("q"))
