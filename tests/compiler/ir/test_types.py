"""Sizes of element types: what a block of each takes with its scales, and that what moves adds up to the tensor."""

from dataclasses import replace

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import DType, EngineChoice, EngineKind, GemmShape, OpChoice, Transfer
from magus.compiler.ir.operations.kernel_shape import ProductShape
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.lower.state import moved_bytes

# Bytes of 128 elements: those of the elements, and of as many scales as the formats say.
OF_128 = {
    DType.BF16: 256,
    DType.FP16: 256,
    DType.FP8: 128,
    DType.FP32: 512,
    DType.FP8_BLOCK: 128 + 4,
    DType.MXFP8: 128 + 4,
    DType.NVFP4: 64 + 8,
    DType.MXFP4: 64 + 4,
}
GATHER = """use "nvidia/h100"
system s {{ gpus 4 x H100; fabric full_mesh(nvlink) }}
workload w on s {{
  x = tensor {dtype}[{rows}, 1152] {shard}
  y = all_gather(x)
}}
"""


@pytest.mark.parametrize("dtype", DType)
def test_scales_are_in_the_size(dtype: DType) -> None:
    assert dtype.bytes_of(128) == OF_128[dtype] == 128 * dtype.mean_bytes
    assert dtype.bytes_of(3) == -(-3 * OF_128[dtype] // 128)


@pytest.mark.parametrize("dtype", [DType.FP8_BLOCK, DType.NVFP4, DType.MXFP4])
@pytest.mark.parametrize("shard", ["shard rows", "shard flat"])
def test_what_moves_is_the_elements_and_their_scales(dtype: DType, shard: str) -> None:
    case = compile_text(GATHER.format(dtype=dtype.value, rows=36, shard=shard)).scenario().case
    plan = build_op_plan(case, OpChoice("direct", 12, EngineChoice(EngineKind.DMA, 3)))

    sent = sum(moved_bytes(case, step.region) for step in plan.steps if isinstance(step, Transfer))

    assert sent == 3 * (36 * 1152 * OF_128[dtype] // 128) // 4
    assert simulate_op(case, plan).traffic.link_bytes == sent


PRODUCTS = """use "nvidia/b200"
system s {{ gpus 4 x B200; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor {x}[1024, 2048]
  w = tensor {w}[{k}, 4096]
  y = {call}
}}
"""


def product(x: str, w: str, call: str = "gemm(x, w)", k: int = 2048) -> ProductShape:
    shape = compile_text(PRODUCTS.format(x=x, w=w, call=call, k=k)).scenario().case.shape
    compute = shape.compute
    assert isinstance(compute, ProductShape)
    return compute


@pytest.mark.parametrize(
    ("x", "w", "out", "sizes"),
    [
        ("bf16", "bf16", "", (256, 256, 2)),
        ("fp8", "fp8", "", (128, 128, 1)),
        ("fp8", "fp8", ", type=bf16", (128, 128, 2)),
        ("nvfp4", "nvfp4", "", (72, 72, 2)),
        ("fp8_block", "mxfp4", "", (132, 68, 2)),
        ("bf16", "nvfp4", ", type=fp32", (256, 72, 4)),
    ],
)
def test_each_matrix_of_a_product_counts_with_its_own_type(
    x: str, w: str, out: str, sizes: tuple[int, int, int]
) -> None:
    left, right, of_out = sizes
    found = product(x, w, f"gemm(x, w{out})")
    several = product(x, w, f"grouped_gemm(x, w, rows=[512, 0, 512]{out})", k=3 * 2048)

    assert found.operand_bytes == 1024 * 16 * left + 4096 * 16 * right
    assert several.operand_bytes == 1024 * 16 * left + 2 * 4096 * 16 * right
    assert found.output_bytes == 1024 * 4096 * of_out
    assert several.output_bytes == 1024 * 4096 * max(2, of_out)


@pytest.mark.parametrize(("x", "w"), [("fp8", "bf16"), ("fp8", "fp8_block"), ("nvfp4", "mxfp8"), ("bf16", "fp16")])
def test_weights_are_of_the_type_of_what_they_multiply_or_of_a_narrower_one(x: str, w: str) -> None:
    with pytest.raises(CompileError, match=f"types differ: x is {x}, w is {w}"):
        product(x, w)


def test_narrower_weights_save_reads_and_no_math() -> None:
    case = compile_text(PRODUCTS.format(x="fp8", w="fp8", call="gemm(x, w)", k=2048)).scenario().case
    few, many = GemmShape(16, 4096, 8192, DType.FP8), GemmShape(8192, 8192, 8192, DType.FP8)

    plain, narrow = (
        [gemm_work(case.gpu, replace(each, weights=w), 148) for each in (few, many)] for w in (None, DType.MXFP4)
    )

    assert narrow[0].alone_ticks < 0.9 * plain[0].alone_ticks
    assert narrow[1].alone_ticks == pytest.approx(plain[1].alone_ticks, rel=0.02)
    assert plain[0].hbm_read_bytes - narrow[0].hbm_read_bytes == 4096 * 8192 * (128 - 68) // 128
