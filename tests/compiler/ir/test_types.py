"""Sizes of element types: what a block of each takes with its scales, and that what moves adds up to the tensor."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import DType, EngineChoice, EngineKind, OpChoice, Transfer
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
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
