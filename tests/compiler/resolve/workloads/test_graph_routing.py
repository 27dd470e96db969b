"""Dispatch and combine in graphs: the ops that they are, and how many rows each has."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.codes import Code
from magus.compiler.ir import DType, GroupedGemmShape, Pattern, RowWiseShape, Shard, Workload
from magus.compiler.ir.operations.routing_laws import RoutingLaw
from magus.compiler.planning.parts import in_batches

TEXT = """
use "nvidia/h100"
link ib {{ source nominal "x"; bandwidth 50 GB/s; achieved 42 GB/s; latency 2 us }}
system pod {{ gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=ib) }}
workload moe on pod {{
  x  = tensor bf16[{rows}, 1024] shard rows
  w1 = tensor {dtype}[{experts} * 1024, 512] shard rows
  w2 = tensor {dtype}[{experts} * 512, 1024] shard rows
  t = dispatch(x, experts={experts}, top={top}{said})
  h = grouped_gemm(t, w1)
  z = combine(grouped_gemm(h, w2){back})
  y = add(x, z)
  batch x by 1024
}}
"""


def graph(said: str = ", type=fp8", *, experts: int = 32, top: int = 4, rows: int = 4096, back: str = "") -> Workload:
    dtype = next((each for each in ("fp8", "nvfp4") if each in said), "bf16")
    text = TEXT.format(said=said, experts=experts, top=top, rows=rows, back=back or ", type=bf16", dtype=dtype)
    (found,) = compile_text(text).workloads
    return found.workload


def moved_rows(found: Workload, name: str) -> int:
    moved = found.op(name).shape.moved
    assert moved is not None
    return moved.rows


def test_a_dispatch_is_a_cast_an_exchange_and_a_kernel_that_deals() -> None:
    found = graph()

    assert [(op.name, op.label) for op in found.ops] == [
        ("t_cast", "row_wise"),
        ("t", "all_to_all"),
        ("t_expand", "row_wise"),
        ("h", "grouped_gemm"),
        ("z_grouped_gemm", "grouped_gemm"),
        ("z_collapse", "row_wise"),
        ("z", "all_to_all"),
        ("z_merge", "row_wise"),
        ("y", "add"),
    ]
    assert [op.name for op in graph("", back=" ").ops if op.name == "t_cast"] == []


def test_experts_get_their_rows() -> None:
    """4,096 rows to 4 experts each: 512 for each of 32, of which a rank has 4."""
    found = graph()
    kernel = found.op("h").shape.kernel
    tensors = {tensor.name: tensor for tensor in found.tensors}

    assert kernel == GroupedGemmShape((512,) * 4, 512, 1024, DType.FP8)
    assert (tensors["t"].rows, tensors["t"].shard, tensors["t"].dtype) == (4096 * 4, Shard.ROWS, DType.FP8)
    assert (tensors["z"].rows, tensors["z"].shard, tensors["z"].dtype) == (4096, Shard.ROWS, DType.BF16)


BACK = """
  g  = dispatch(x, experts=32, top=4)
  dh = grouped_gemm(g, w2.t)
  d2 = grouped_gemm(h.t, g)
  z  = combine(dh)
"""


def test_gradients_of_experts() -> None:
    """512 rows of each of the 4 experts of a rank, whose weights w2 are [512, 1024]."""
    head = TEXT.format(rows=4096, dtype="bf16", experts=32, top=4, said="", back="").split("  t = ")[0]
    body = f"  h = tensor bf16[4 * 4096, 512] shard rows\n{BACK}"
    found = compile_text(f"{head}{body}}}").workloads[0].workload
    tensors = {tensor.name: tensor for tensor in found.tensors}

    assert found.op("dh").shape.kernel == GroupedGemmShape((512,) * 4, 512, 1024, DType.BF16)
    assert found.op("d2").shape.kernel == GroupedGemmShape((512,) * 4, 1024, 512, DType.BF16)
    assert [(tensors[name].rows, tensors[name].cols, tensors[name].shard) for name in ("dh", "d2", "w2")] == [
        (4 * 4096, 512, Shard.ROWS),
        (32 * 512, 1024, Shard.ROWS),
        (32 * 512, 1024, Shard.ROWS),
    ]
    assert [read.transposed for name in ("dh", "d2") for read in found.op(name).reads] == [False, True, True, False]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("dh = grouped_gemm(g, x.t, rows=[512, 256])", "the rows of all experts are 768, but g has 2048"),
        ("dh = grouped_gemm(g, v.t, rows=[1024, 512, 512])", "100 columns, which do not divide among 3 experts"),
        ("dh = grouped_gemm(x.t, g, rows=[512, 1024, 512])", "experts, which have 512 to 1024 rows, is not simulated"),
        ("dh = grouped_gemm(x.t, g, rows=[512, 512])", "the rows of all experts are 1024, but x.t has 2048 columns"),
        ("dh = grouped_gemm(x.t, v, rows=[1024, 1024])", "inner dimensions differ: x.t has 2048 columns, v has 100"),
    ],
)
def test_gradients_that_do_not_fit(body: str, message: str) -> None:
    head = 'use "nvidia/h100"\nsystem hgx { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    tensors = "x = tensor bf16[2048, 512]; g = tensor bf16[2048, 1024]; v = tensor bf16[100, 1024]"
    with pytest.raises(CompileError) as caught:
        compile_text(f"{head}workload back on hgx {{ {tensors}; {body} }}")
    assert message in caught.value.diagnostics[0].message


def test_a_row_goes_once_to_a_rank() -> None:
    """Of 8 ranks with 4 of 32 experts a row reaches 8 (1 - C(28, 4) / C(32, 4)) = 3.445 on average; rows are whole."""
    found = graph()

    assert moved_rows(found, "t") == moved_rows(found, "z") == 1768  # ceil(512 * 3.445 / 8) * 8
    assert moved_rows(graph(", nodes=2, type=fp8"), "t") == 1024
    expand, collapse, merge = (found.op(name).shape.kernel for name in ("t_expand", "z_collapse", "z_merge"))
    assert expand == RowWiseShape(2048 * 1024, 1, DType.FP8, 1768 * 1024)
    assert collapse == RowWiseShape(1768 * 1024, 1, DType.BF16, 2048 * 1024)
    assert merge == RowWiseShape(512 * 1024, 1, DType.BF16, 1768 * 1024 * 2)


@pytest.mark.parametrize(
    ("rows", "of_a_rank", "dealt"),
    [
        (1, 1, (1, 0, 0, 0)),  # 4 rows for 32 experts: a rank has half of one on average
        (17, 3, (3, 2, 2, 2)),  # 68 rows for 8 ranks
        (24, 3, (3, 3, 3, 3)),
        (4095, 512, (512, 512, 512, 512)),
    ],
)
def test_rows_that_do_not_divide_are_dealt_one_by_one(rows: int, of_a_rank: int, dealt: tuple[int, ...]) -> None:
    """Each rank has as many rows as the one with most; experts get those that there are."""
    found = graph(rows=rows)
    kernel, tensors = found.op("h").shape.kernel, {tensor.name: tensor for tensor in found.tensors}

    assert isinstance(kernel, GroupedGemmShape) and kernel.rows == dealt
    assert [tensors[name].rows for name in ("x", "z", "y")] == [8 * of_a_rank] * 3
    assert tensors["t"].rows == 8 * sum(dealt)


def test_all_ranks_are_as_the_hottest() -> None:
    """The 5th of 32 experts has most rows, on rank 1. Rows that are merged came back from all ranks."""
    loads = [400] * 4 + [4 * 4096 - 31 * 400] + [400] * 27
    found = graph(f", type=fp8, routing=loads({loads})")
    kernel, merge = (found.op(name).shape.kernel for name in ("h", "z_merge"))
    tensors = {tensor.name: tensor for tensor in found.tensors}

    assert isinstance(kernel, GroupedGemmShape) and kernel.rows == (3984, 400, 400, 400)
    assert moved_rows(found, "t") == moved_rows(found, "z") > moved_rows(graph(), "t")
    assert isinstance(merge, RowWiseShape) and merge.read_bytes < moved_rows(found, "z") * 1024 * 2
    assert tensors["t"].rows == 8 * 5184 and tensors["z"].rows == 4096
    assert found.batch is not None and not found.batch.cuts


def test_a_law_has_several_seeds_and_the_first_is_simulated() -> None:
    text = TEXT.format(said=", routing=sampled(1.9, seed=3..7)", experts=32, top=4, rows=4096, back="", dtype="bf16")
    laws = [
        op.shape.routing.law
        for seed in (None, 11)
        for op in compile_text(text, seed=seed).workloads[0].workload.ops
        if op.name == "t" and op.shape.routing is not None
    ]
    law = RoutingLaw("sampled", Fraction("1.9"), 3, draws=5)

    assert laws == [law, replace(law, seed=11)]
    assert format_text(text) == format_text(format_text(text)) and "seed=3..7" in format_text(text)


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        ("sampled()", "sampled takes an exponent and a seed"),
        ("sampled(1.9, seeds=3)", "sampled takes an exponent and a seed"),
        ("power_law(1.2, seed=7..3)", "the range 7..3 is empty"),
        ("power_law(1.2, seed=0..4096)", "4,097 seeds, the limit is 4,096"),
        ("power_law(1.2, seed=0..1.5)", "seed is a whole number"),
    ],
)
def test_what_a_drawn_law_takes(routing: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        graph(f", routing={routing}")


def test_experts_beyond_links_are_at_the_fabric() -> None:
    text = TEXT.format(said="", experts=32, top=4, rows=4096, back="", dtype="bf16")
    parts = [[rank, rank + 1] for rank in (0, 1, 2, 4, 5, 6)]
    apart = text.replace("rails(nvswitch, link=nvlink, node=4, nic=ib)", f"edges(nvlink={parts})")
    with pytest.raises(CompileError, match=r"(?s)MGS421.*gpu 4 cannot be reached from gpu 0"):
        compile_text(apart)


def test_replicas_have_weights_of_their_own() -> None:
    """8 replicas of 32 experts are 5 of each rank, which w1 and w2 must have."""
    with pytest.raises(CompileError, match="5 experts of t need 5 x 1024 rows of weights on a rank, w1 has 4096"):
        graph(", type=fp8, routing=power_law(1.2, seed=2), replicas=8")


def test_rows_that_fill_up_are_told() -> None:
    text = TEXT.format(said="", experts=32, top=4, rows=17, back="", dtype="bf16")
    (found,) = compile_text(text).warnings
    assert found.code is Code.MGS304 and found.message == "17 rows on 8 ranks: each is taken to have 3"


def test_half_of_the_rows_are_routed_in_each_of_two_batches() -> None:
    found = in_batches(graph(), 2)
    kernel = found.op("h[1]").shape.kernel

    assert isinstance(kernel, GroupedGemmShape) and kernel.rows == (256,) * 4
    assert moved_rows(found, "t[0]") == 888
    assert found.op("t[0]").shape.pattern is Pattern.ALL_TO_ALL


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"experts": 12}, "(?s)12 experts do not divide among 8 ranks.*experts=16"),
        ({"experts": 4, "top": 2}, "(?s)4 experts do not divide among 8 ranks: 4 would have none.*experts=8"),
        ({"said": ", replicas=3"}, "(?s)32 experts and 3 replicas do not divide among 8 ranks.*replicas=8"),
        ({"said": ", replicas=232"}, "32 experts have at most 224 replicas, one on each other rank"),
        ({"top": 64}, "(?s)a row goes to 64 of 32 experts.*top is at most 32"),
        ({"said": f", routing=loads({[1] * 32})"}, "(?s)the loads are 32 rows together.*16384 together"),
        ({"said": f", routing=loads({[16384] + [0] * 31})"}, "(?s)1 of 32 experts has rows.*of 4 experts or more"),
        ({"said": ", type=nvfp4"}, "H100 has no peak rate for nvfp4"),
        ({"said": ", type=fp7"}, "unknown type 'fp7'"),
        ({"said": ", nodes=3"}, "rows go to 3 nodes, and the system has 2"),
        ({"said": ", groups=2"}, "dispatch has no argument 'groups'"),
    ],
)
def test_what_is_not_routed(changed: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        graph(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = norm(combine(x))", "combine brings back what a dispatch has sent"),
        (
            "y = norm(combine(norm(dispatch(v, experts=8, top=2))))",
            r"(?s)y_combine is a part of a sum on each rank.*add it up",
        ),
        ("t = dispatch(c, experts=8, top=2)", "(?s)dispatch takes the rows of each rank.*or the tensor that"),
        ("t = dispatch(x, experts=8, top=2)\n  y = norm(grouped_gemm(norm(x), w))", "does not say its rows"),
    ],
)
def test_calls_that_do_not_fit(body: str, message: str) -> None:
    head = TEXT.partition("workload")[0].format()
    tensors = "x = tensor bf16[4096, 64] shard rows\n  v = tensor bf16[64, 64]\n  w = tensor bf16[512, 64] shard rows"
    tensors += "\n  c = tensor bf16[64, 64] shard cols"
    with pytest.raises(CompileError, match=message):
        compile_text(f"{head}workload w1 on pod {{\n  {tensors}\n  {body}\n}}\n")


WHOLE = """
use "nvidia/h100"
system node {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload moe on node {{
  x  = tensor bf16[{rows}, 1024]{shard}
  w1 = tensor bf16[32 * 1024, 512] shard {first}
  w2 = tensor bf16[32 * 256, 1024]{second}
  t = dispatch({taken}, experts=32, top=4{said})
  y = {summed}(combine(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2)))
}}
"""


def whole(
    rows: int = 1024,
    said: str = "",
    *,
    taken: str = "x",
    shard: str = "",
    first: str = "rows",
    second: str = " shard rows",
    summed: str = "all_reduce",
) -> Workload:
    sizes = {"rows": rows, "said": said, "taken": taken, "shard": shard, "first": first, "second": second}
    (found,) = compile_text(WHOLE.format(**sizes, summed=summed)).workloads
    return found.workload


def test_rows_that_all_ranks_hold_are_picked_and_given() -> None:
    """Of 1,024 rows to 4 of 32 experts each, a rank has 512 for its 4 experts, of 1,024 x 0.4306 rows; 441 are read."""
    found = whole()
    pick, product, give = (found.op(name).shape.kernel for name in ("t", "y_grouped_gemm", "y_give"))

    assert [op.shape.pattern for op in found.ops if op.shape.moved is not None] == [Pattern.ALL_REDUCE]
    assert pick == RowWiseShape(512 * 1024, 1, DType.BF16, 441 * 1024 * 2, chosen=(1024, 4))
    assert product == GroupedGemmShape((128,) * 4, 512, 1024, DType.BF16)
    assert give == RowWiseShape(1024 * 1024, 1, DType.BF16, 512 * 1024 * 2)


def test_gathered_rows_come_back_by_a_reduce_scatter() -> None:
    found = whole(taken="all_gather(x)", shard=" shard rows", summed="reduce_scatter")

    moving = [op.shape.pattern for op in found.ops if op.shape.moved is not None]
    assert moving == [Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER]
    assert next(tensor for tensor in found.tensors if tensor.name == "y").shard is Shard.ROWS


def test_a_part_of_the_columns_of_every_expert() -> None:
    found = whole(said=", ep=1", first="cols")
    up, down = (found.op(name).shape.kernel for name in ("y_grouped_gemm", "y_grouped_gemm2"))

    assert up == GroupedGemmShape((128,) * 32, 512 // 8, 1024, DType.BF16)
    assert down == GroupedGemmShape((128,) * 32, 1024, 256 // 8, DType.BF16)


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_any_number_of_rows_is_dealt(rows: int) -> None:
    product = whole(rows).op("y_grouped_gemm").shape.kernel

    assert isinstance(product, GroupedGemmShape) and len(product.rows) == 4
    assert sum(product.rows) == -(-rows * 4 // 8) and max(product.rows) - min(product.rows) <= 1


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"said": ", ep=2"}, "experts in 2 groups of 8 ranks are not simulated"),
        ({"said": ", nodes=1"}, "rows are sent nowhere"),
        ({"said": ", ep=1", "shard": " shard rows"}, "but x is sharded by rows"),
        ({"said": ", ep=1", "first": "cols", "second": ""}, "operands of grouped_gemm lie alike"),
        ({"taken": "x, x"}, "takes 1 tensor"),
    ],
)
def test_where_rows_cannot_be_dealt(said: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError) as caught:
        whole(**said)

    assert message in caught.value.diagnostics[0].message


def test_all_columns_of_all_experts_are_no_terms_of_a_sum() -> None:
    head, _, _ = WHOLE.format(rows=8, shard="", first="rows", second="", taken="x", said=", ep=1", summed="").partition(
        "  y ="
    )
    text = head.replace(" shard rows", "") + "  z = combine(grouped_gemm(t, w1))\n  y = add(z, z)\n}"
    found = compile_text(text).workloads[0].workload

    assert {tensor.name: tensor.shard for tensor in found.tensors}["y"] is Shard.NONE


def test_nothing_goes_back_through_rows_that_all_ranks_hold() -> None:
    text = WHOLE.format(rows=64, shard="", first="rows", second=" shard rows", taken="x", said="", summed="all_reduce")
    with pytest.raises(CompileError) as caught:
        compile_text(f"{text}workload back on node {{ backward moe }}")

    assert "without an exchange" in caught.value.diagnostics[0].message
