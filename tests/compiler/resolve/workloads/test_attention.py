"""Kernels other than a GEMM before and after a collective, as the language says them."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import AttentionShape, DType, GemmShape, GroupedGemmShape, OpShape, Pattern, Shard

BF16 = DType.BF16
HARDWARE = 'use "nvidia/h100"\nsystem node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
Q, KV = "q = tensor bf16[512, 8 * 64] shard rows", "kv = tensor bf16[512, 2 * 2 * 64] shard rows"
QKV = "qkv = tensor bf16[512, (8 + 2 * 2) * 64]"
EXPERTS = "x = tensor bf16[512, 64]; w = tensor bf16[3 * 64, 32]"
ROWS = "rows=[256, 192, 64]"


def workload(body: str) -> OpShape:
    return compile_text(f"{HARDWARE}workload w on node {{ {body} }}\n").scenario().case.shape


def refused(body: str) -> tuple[str, str]:
    with pytest.raises(CompileError) as caught:
        workload(body)
    (found,) = caught.value.diagnostics
    return f"{found.code.name} {found.message}", found.hint


@pytest.mark.parametrize(
    ("body", "label", "kernel", "moved"),
    [
        (
            f"{Q}; {KV}; y = attention(q, all_gather(kv), heads=8, kv_heads=2)",
            "AG+attention",
            AttentionShape(1, 8, 2, 128, 512, 64, BF16, False),
            (512, 256),
        ),
        (
            f"{Q}; {KV}; kvg = all_gather(kv); y = attention(q, kvg, heads=8, kv_heads=2, batch=2, causal=yes)",
            "AG+attention",
            AttentionShape(2, 8, 2, 64, 256, 64, BF16, True),
            (512, 256),
        ),
        (
            f"{QKV}; y = attention(all_to_all(qkv), heads=8, kv_heads=2)",
            "A2A+attention",
            AttentionShape(1, 8, 2, 512, 512, 64, BF16, False),
            (512, 768),
        ),
        (
            f"{QKV}; o = attention(qkv, heads=8, kv_heads=2, causal=yes); y = all_to_all(o)",
            "attention+A2A",
            AttentionShape(1, 8, 2, 512, 512, 64, BF16, True),
            (512, 512),
        ),
        (
            f"{EXPERTS}; y = grouped_gemm(all_to_all(x, rows=[256, 128, 64, 64]), w, {ROWS})",
            "A2A+grouped_gemm",
            GroupedGemmShape((256, 192, 64), 32, 64, BF16),
            (1024, 64),
        ),
        (
            f"{EXPERTS} ; y = all_to_all(grouped_gemm(x, w, {ROWS}), rows=[256, 128, 64, 64])",
            "grouped_gemm+A2A",
            GroupedGemmShape((256, 192, 64), 32, 64, BF16),
            (1024, 32),
        ),
        (
            f"{EXPERTS.replace('];', '] shard rows;', 1)}; y = grouped_gemm(all_gather(x), w, {ROWS})",
            "AG+grouped_gemm",
            GroupedGemmShape((256, 192, 64), 32, 64, BF16),
            (512, 64),
        ),
    ],
)
def test_kernels_beside_a_collective(
    body: str, label: str, kernel: AttentionShape | GroupedGemmShape, moved: tuple[int, int]
) -> None:
    found = workload(body)

    assert (found.label, found.kernel, found.compute, found.gemm) == (label, kernel, kernel, None)
    assert found.moved is not None and (found.moved.rows, found.moved.cols) == moved
    assert found.pattern.consumes is label.startswith("A") and found.pattern.produces is label.endswith("A2A")
    assert found.pattern.overlaps and len(found.made) == 2


@pytest.mark.parametrize(("shard", "cols", "made"), [("", 128, Shard.NONE), (" shard cols", 32, Shard.ROWS)])
def test_a_product_that_is_exchanged(shard: str, cols: int, made: Shard) -> None:
    """Where columns are sharded, rows are afterwards: what a rank gets are its rows of all columns."""
    found = workload(f"x = tensor bf16[512, 256]; w = tensor bf16[256, 128]{shard}; p = gemm(x, w); y = all_to_all(p)")

    assert (found.pattern, found.label, found.gemm) == (
        Pattern.GEMM_A2A,
        "GEMM+A2A",
        GemmShape(512, cols, 256, BF16),
    )
    assert found.moved is not None and (found.moved.name, found.moved.rows, found.moved.cols) == ("p", 512, cols)
    (result,) = [tensor for tensor in found.tensors if tensor.name == "y"]
    assert (result.rows, result.cols, result.shard) == (512, 128, made)


@pytest.mark.parametrize(
    ("packed", "apart"),
    [
        (
            "q = tensor bf16[64, 512]; kv = tensor bf16[256, 256]; y = attention(q, kv, heads=8, kv_heads=2)",
            "q = tensor bf16[64, 512]; k = tensor bf16[256, 128]; y = attention(q, k, k, heads=8, kv_heads=2)",
        ),
        (
            f"{QKV}; y = attention(qkv, heads=8, kv_heads=2)",
            "q = tensor bf16[512, 512]; k = tensor bf16[512, 128]; y = attention(q, k, k, heads=8, kv_heads=2)",
        ),
    ],
)
def test_packed_tensors_are_the_same_kernel(packed: str, apart: str) -> None:
    assert workload(packed).kernel == workload(apart).kernel
    assert workload(packed).label == "kernel"


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        (
            f"{Q}; {KV}; k = all_gather(kv); v = all_gather(kv); y = attention(q, k, v, heads=8, kv_heads=2)",
            "MGS520 keys and values are gathered as one tensor, and queries not at all",
            "attention(q, all_gather(kv), heads=64, kv_heads=8)",
        ),
        (
            f"{Q}; {KV}; y = attention(all_gather(q), kv, heads=8, kv_heads=2)",
            "MGS310 operands of attention lie alike, but kv is sharded by rows",
            "",
        ),
        (
            "q = tensor bf16[512, 512]; kv = tensor bf16[512, 256]; "
            "y = attention(q, all_to_all(kv), heads=8, kv_heads=2)",
            "MGS520 an all_to_all brings queries, keys and values as one tensor",
            "attention(all_to_all(qkv), heads=8, kv_heads=1)",
        ),
        (
            f"q = tensor bf16[512, 512]; {KV}; y = attention(q, all_gather(kv), heads=8, kv_heads=2)",
            "MGS310 q is replicated; each rank attends with its own rows of queries",
            "declare it with 'shard rows': q = tensor ... shard rows",
        ),
        (
            f"q = tensor bf16[256, 512] shard rows; {KV}; y = attention(q, all_gather(kv), heads=8, kv_heads=2, "
            "causal=yes)",
            "MGS310 causal attention of 256 queries to 512 gathered keys",
            "both are of one sequence, dealt to the ranks alike",
        ),
        (
            "h = tensor bf16[512, 256] shard cols; w = tensor bf16[256, 128] shard rows; y = all_to_all(gemm(h, w))",
            "MGS310 y_gemm is a part of a sum on each rank",
            "add it up: reduce_scatter(...)",
        ),
    ],
)
def test_what_is_refused(body: str, message: str, hint: str) -> None:
    assert refused(body) == (message, hint)


@pytest.mark.parametrize(
    ("tensors", "call", "kernel"),
    [
        (
            "kv = tensor bf16[512, 8 * (96 + 64)]",
            "attention(q, kv, heads=8, value_dim=64)",
            AttentionShape(1, 8, 8, 512, 512, 96, BF16, False, values=64),
        ),
        (
            "k = tensor bf16[512, 2 * 96]; v = tensor bf16[512, 2 * 64]",
            "attention(q, k, v, heads=8, kv_heads=2, value_dim=64, causal=yes, window=128)",
            AttentionShape(1, 8, 2, 512, 512, 96, BF16, True, values=64, window=128),
        ),
        (
            "c = tensor bf16[4096, 96]",
            "attention(q, c, heads=8, kv_heads=1, batch=8, value_dim=64)",
            AttentionShape(8, 8, 1, 64, 512, 96, BF16, False, values=64, in_keys=True),
        ),
        (
            "qkv = tensor bf16[16, (8 + 2 * 2) * 96]; cache = tensor bf16[16 * 512, 2 * 2 * 96]",
            "attention(qkv, cache, heads=8, kv_heads=2, batch=16, causal=yes)",
            AttentionShape(16, 8, 2, 1, 512, 96, BF16, True),
        ),
        (
            "kv = tensor bf16[512, 8 * 2 * 96]",
            "attention(q, kv, heads=8, value_dim=96)",
            AttentionShape(1, 8, 8, 512, 512, 96, BF16, False),
        ),
    ],
)
def test_values_may_have_other_sizes_than_keys(tensors: str, call: str, kernel: AttentionShape) -> None:
    found = workload(f"q = tensor bf16[512, 8 * 96]; {tensors}; y = {call}")

    assert found.kernel == kernel and kernel.output_bytes == 2 * kernel.batch * kernel.q_len * 8 * kernel.value_dim


@pytest.mark.parametrize(
    ("tensors", "call", "message"),
    [
        ("c = tensor bf16[64, 96]", "attention(q, c, heads=8, kv_heads=1, value_dim=128)", "96 columns, and values in"),
        ("c = tensor bf16[64, 100]", "attention(q, c, heads=8, kv_heads=1, value_dim=64)", "need [64, 160]"),
        ("c = tensor bf16[64, 192]", "attention(q, c, heads=8, kv_heads=1, window=64)", "ends at the key of the query"),
        ("c = tensor bf16[64, 192]", "attention(q, c, heads=8, kv_heads=1, by=deepep)", "'deepep' is no library whose"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tensors: str, call: str, message: str) -> None:
    assert message in refused(f"q = tensor bf16[64, 8 * 96]; {tensors}; y = {call}")[0]


@pytest.mark.parametrize("more", ["value_dim=32", "causal=yes, window=64"])
def test_gathered_keys_have_neither_a_window_nor_other_values(more: str) -> None:
    message, _ = refused(f"{Q}; {KV}; y = attention(q, all_gather(kv), heads=8, kv_heads=2, {more})")

    assert message.startswith("MGS520")


def test_values_of_other_sizes_are_exchanged_behind_the_kernel() -> None:
    body = "qkv = tensor bf16[512, 8 * (96 + 96 + 64)]; y = all_to_all(attention(qkv, heads=8, value_dim=64))"
    scenario = compile_text(f"{HARDWARE}workload w on node {{ {body} }}\n").scenario()

    assert [op.shape.pattern for op in scenario.workload.ops] == [Pattern.KERNEL, Pattern.ALL_TO_ALL]
