"""Kernels that are rewritten, with the arguments that they take after the tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "kernels"
BLOCK = 16


def sizes_of(matrices: Sequence[Any]) -> tuple[int, int, int]:
    """M, N and K of a, b and c."""
    return matrices[0].shape[0], matrices[1].shape[1], matrices[0].shape[1]


def _grouped(matrices: Sequence[Any]) -> tuple[list[Any], dict[str, object]]:
    strides = [stride for matrix in matrices for stride in matrix.stride()]
    blocks: dict[str, object] = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK, "BLOCK_K": 2 * BLOCK, "GROUP": 2}
    return [*matrices, *sizes_of(matrices), *strides], blocks


def _by_rows(**constants: object) -> Callable[[Sequence[Any]], tuple[list[Any], dict[str, object]]]:
    def arguments(matrices: Sequence[Any]) -> tuple[list[Any], dict[str, object]]:
        return [*matrices, *sizes_of(matrices), *(matrix.stride(0) for matrix in matrices)], constants

    return arguments


def _described(matrices: Sequence[Any]) -> tuple[list[Any], dict[str, object]]:
    return [*matrices, *sizes_of(matrices)], {"BM": BLOCK, "BN": BLOCK, "BK": 2 * BLOCK, "GROUP": 2, "SMS": 3}


def _by_host(matrices: Sequence[Any]) -> tuple[list[Any], dict[str, object]]:
    blocks = ((BLOCK, 2 * BLOCK), (2 * BLOCK, BLOCK), (BLOCK, BLOCK))
    described = [descriptor_of(matrix, block) for matrix, block in zip(matrices, blocks, strict=True)]
    return [*described, *sizes_of(matrices)], {"BM": BLOCK, "BN": BLOCK, "BK": 2 * BLOCK}


def descriptor_of(matrix: Any, block: Sequence[int]) -> Any:
    """What a host makes for a kernel: Triton's of a tensor, of an array of numpy its own."""
    if hasattr(matrix, "described"):
        return matrix.described(block)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(matrix, list(block))


KERNELS = {
    "grouped": ("grouped_gemm_kernel", _grouped),
    "persistent": ("persistent_kernel", _by_rows(BM=BLOCK, BN=BLOCK, BK=2 * BLOCK, GROUP_M=2, NUM_SMS=3)),
    "grid": ("grid_kernel", _by_rows(ROWS=BLOCK, COLS=BLOCK, INNER=2 * BLOCK)),
    "twice": ("twice_kernel", _by_rows(BM=BLOCK, BN=BLOCK, BK=2 * BLOCK, GROUP=2, SMS=3)),
    "tuned": ("tuned_kernel", _by_rows(BM=BLOCK, BN=BLOCK, BK=2 * BLOCK)),
    "described": ("described_kernel", _described),
    "by_host": ("by_host_kernel", _by_host),
    "guarded": ("guarded_kernel", _by_rows(BM=BLOCK, BN=BLOCK, BK=2 * BLOCK)),
    "counted": ("counted_kernel", _by_rows(BM=BLOCK, BN=BLOCK, BK=2 * BLOCK, ORDER="rows")),
}
"""By file: the name of the kernel, and what it takes for a, b and c."""
