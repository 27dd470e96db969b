"""Operations of a workload: the shape of one rank, the tensor that moves, and what several of them make."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    AttentionShape,
    BatchedGemmShape,
    DType,
    ElementwiseShape,
    GemmShape,
    GemvShape,
    GroupedGemmShape,
    KernelShape,
    OpShape,
    Pattern,
    Shard,
)

BF16 = DType.BF16
HARDWARE = 'use "amd/mi300x"\nparam B = 4\nsystem node { gpus 4 x MI300X; fabric full_mesh(xgmi) }\n'
X, W = "x = tensor bf16[512, 256]", "w = tensor bf16[256, 128]"


def workload(body: str) -> OpShape:
    return compile_text(f"{HARDWARE}workload w on node {{ {body} }}\n").scenario().case.shape


@pytest.mark.parametrize(
    ("body", "kernel", "output"),
    [
        (
            "a = tensor fp16[512, 256]; v = tensor fp16[256, 1]; y = gemv(a, v)",
            GemvShape(512, 256, DType.FP16),
            (512, 1),
        ),
        (
            "x = tensor bf16[512, 64]; w = tensor bf16[3 * 64, 32]; y = grouped_gemm(x, w, rows=[256, 2 * 128, 0])",
            GroupedGemmShape((256, 256, 0), 32, 64, BF16),
            (512, 32),
        ),
        (
            "q = tensor bf16[32, 8 * 96]; w = tensor bf16[8 * 64, 256]; y = batched_gemm(q, w, heads=8, rope=32)",
            BatchedGemmShape(8, 32, 256, 64, BF16),
            (32, 8 * (256 + 32)),
        ),
        (
            "q = tensor bf16[B * 16, 512]; k = tensor bf16[B * 64, 128]; v = tensor bf16[B * 64, 128]; "
            "y = attention(q, k, v, heads=8, kv_heads=2, batch=B, causal=yes)",
            AttentionShape(4, 8, 2, 16, 64, 64, BF16, True),
            (64, 512),
        ),
        (
            "q = tensor bf16[16, 512]; k = tensor bf16[64, 512]; y = attention(q, k, k, heads=8)",
            AttentionShape(1, 8, 8, 16, 64, 64, BF16, False),
            (16, 512),
        ),
        (
            "a = tensor fp32[8, 4]; b = tensor fp32[8, 4]; y = add(a, b)",
            ElementwiseShape(32, 2, DType.FP32),
            (8, 4),
        ),
    ],
)
def test_lone_kernels(body: str, kernel: KernelShape, output: tuple[int, int]) -> None:
    found = workload(body)

    assert (found.pattern, found.kernel, found.output) == (Pattern.KERNEL, kernel, "y")
    assert found.moved is None and found.gemm is None and found.split == ()
    (made,) = [tensor for tensor in found.tensors if tensor.name == "y"]
    assert (made.rows, made.cols) == output


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("all_reduce", Pattern.ALL_REDUCE),
        ("all_to_all", Pattern.ALL_TO_ALL),
        ("broadcast", Pattern.BROADCAST),
        ("send_recv", Pattern.SEND_RECV),
    ],
)
def test_lone_collectives_move_what_is_whole(operation: str, pattern: Pattern) -> None:
    found = workload(f"{X}; y = {operation}(x)")

    assert (found.pattern, found.output, found.gemm) == (pattern, "y", None)
    assert found.moved is not None and (found.moved.name, found.moved.rows, found.moved.cols) == ("x", 512, 256)
    assert {tensor.name: tensor.shard for tensor in found.tensors} == {"x": Shard.NONE, "y": Shard.NONE}


def test_rows_of_an_all_to_all() -> None:
    uneven, even = (workload(f"{X}; y = all_to_all(x, rows=[{rows}])") for rows in ("256, 0, 128, 128", "128, " * 4))

    assert uneven.moved is not None and (uneven.split, uneven.moved.rows) == ((256, 0, 128, 128), 1024)
    assert even.moved is not None and (even.split, even.moved.rows) == ((), 512)


@pytest.mark.parametrize("body", ["p = gemm(h, w); y = all_reduce(p)", "y = all_reduce(gemm(h, w))"])
def test_a_product_that_is_summed_on_all_ranks(body: str) -> None:
    found = workload(f"h = tensor bf16[512, 256] shard cols; {W} shard rows; {body}")

    assert found.pattern is Pattern.GEMM_AR and found.gemm == GemmShape(512, 128, 64, BF16)
    assert found.moved is not None and found.moved.name == found.output == ("p" if "p =" in body else "y_partial")


@pytest.mark.parametrize(("rows", "cols"), [("", ""), ("", " shard cols"), (", rows=[256, 64, 128, 64]", "")])
def test_a_product_of_what_was_exchanged(rows: str, cols: str) -> None:
    found = workload(f"{X}; {W}{cols}; y = gemm(all_to_all(x{rows}), w)")

    assert found.pattern is Pattern.A2A_GEMM and found.gemm == GemmShape(512, 32 if cols else 128, 256, BF16)
    assert found.moved is not None and found.moved.name == "x" and found.output == "y"
    assert {tensor.name for tensor in found.tensors} == {"x", "w", "y", "x_exchanged"}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("shard", "operation", "pattern"),
    [(" shard rows", "all_gather", Pattern.GEMM_BESIDE_AG), ("", "all_to_all", Pattern.GEMM_BESIDE_A2A)],
)
def test_two_that_need_nothing_of_each_other(turned: bool, shard: str, operation: str, pattern: Pattern) -> None:
    parts = ["y = gemm(x, w)", f"g = {operation}(v)"]
    found = workload("; ".join([X, W, f"v = tensor bf16[64, 32]{shard}", *(reversed(parts) if turned else parts)]))

    assert (found.pattern, found.output, found.gemm) == (pattern, "y", GemmShape(512, 128, 256, BF16))
    assert found.moved is not None and (found.moved.rows, found.moved.cols) == (64, 32)
