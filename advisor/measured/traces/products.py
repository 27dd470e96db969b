"""Which operations of PyTorch are products of matrices, and of which shape, by the inputs that a profiler records.

Names are those of PyTorch's operators and of its libraries without their namespace; an autograd function, as of
TransformerEngine, has the name of its class. Their arguments are those of the sources: ``native_functions.yaml`` of
PyTorch, ``module/linear.py`` and ``layernorm_linear.py`` of TransformerEngine, ``csrc/torch_bindings.cpp`` and
``fp8_utils.py`` of vLLM, ``csrc/common_extension.cc`` of SGLang.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....compiler.ir import DType

MAX_SIZE = 1 << 24
DTYPES = {
    "BFloat16": DType.BF16,
    "Half": DType.FP16,
    "Float8_e4m3fn": DType.FP8,
    "Float8_e4m3fnuz": DType.FP8,
    "Float8_e5m2": DType.FP8,
    "Float8_e5m2fnuz": DType.FP8,
}
"""Element types by their name in PyTorch; operands have ``c10::`` before it."""
_OTHER_TYPES = {"float": "float32", "double": "float64", "signed char": "int8", "unsigned char": "uint8"}
WITHOUT_SHAPES = "without shapes"
_FOUR_BITS = "with weights of 4 bits, a type that is not simulated"
_MOE = "of a fused mixture of experts, two products in one operation"


@dataclass(frozen=True, slots=True)
class Product:
    """[m, k] by [k, n] of ``dtype``; with ``groups`` each of them has a part of the m rows and a matrix of its own.

    The first operand of one that ``gathers`` may be the rows of this rank, which the operation gathers itself.
    """

    m: int
    n: int
    k: int
    dtype: DType
    groups: int = 1
    gathers: bool = False


_LAYER_NORM_LINEAR, _LINEAR = "_LayerNormLinear", "_Linear"
# The inputs that the first matrix may be, and the second one; the first that is a matrix counts.
_OPERANDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(
        ("mm", "_scaled_mm", "linear", "bmm", "_grouped_mm", "_scaled_grouped_mm", "_int_mm"), ((0,), (1,))
    ),
    **dict.fromkeys(("addmm", "_addmm_activation", "baddbmm"), ((1,), (2,))),
    # vLLM, SGLang, AITER
    **dict.fromkeys(("cutlass_scaled_mm", "cutlass_scaled_mm_azp", "cutlass_moe_mm"), ((1,), (2,))),
    **dict.fromkeys(("rocm_unquantized_gemm", "rocm_unquantized_gemm_impl", "wvSplitK", "LLMM1"), ((0,), (1,))),
    **dict.fromkeys(("apply_w8a8_block_fp8_linear", "w8a8_block_fp8_matmul_deepgemm"), ((0,), (1,))),
    **dict.fromkeys(("w8a8_triton_block_scaled_mm_func", "w8a8_block_fp8_matmul_func"), ((0,), (1,))),
    **dict.fromkeys(("fp8_scaled_mm", "fp8_blockwise_scaled_mm", "rocm_aiter_tuned_gemm"), ((0,), (1,))),
    "fp8_gemm_nt_op": ((0,), (2,)),
    # TransformerEngine; older versions have copies of the weight in fp8 behind it.
    _LAYER_NORM_LINEAR: ((0,), (3, 2)),
    _LINEAR: ((3, 1), (0,)),
}
_NOT_READ = {
    **dict.fromkeys(("_LayerNormMLP", "_GroupedLinear"), "of TransformerEngine, several products in one operation"),
    **dict.fromkeys(
        ("_LinearBackward", "_LayerNormLinearBackward", "_LayerNormMLPBackward", "_GroupedLinearBackward"),
        "of TransformerEngine's backward pass, several products in one operation",
    ),
    **dict.fromkeys(("inplace_fused_experts", "outplace_fused_experts", "fused_experts", "fused_moe"), _MOE),
    **dict.fromkeys(("moe_forward", "moe_forward_shared", "rocm_aiter_fused_moe", "trtllm_fp8_block_scale_moe"), _MOE),
    **dict.fromkeys(("awq_gemm", "gptq_gemm", "gptq_marlin_gemm", "marlin_gemm", "machete_mm"), _FOUR_BITS),
    **dict.fromkeys(("moe_wna16_gemm", "moe_wna16_marlin_gemm", "cutlass_scaled_fp4_mm", "nvfp4_gemm"), _FOUR_BITS),
}
"""Products that no pair is made of, and why: phrases behind their number."""
_KERNEL = re.compile(
    r"gemm|nvjet|cijk|xmma|splitk|cutlass|matmul|wgmma|\bmm_|triton_mm|triton_tem_\w*mm", re.IGNORECASE
)
_NO_PRODUCT = re.compile(r"flash|fmha|attention|attn|nccl|gemv", re.IGNORECASE)
_FP8_KERNEL = re.compile(r"e4m3|nvjet_qq|float8", re.IGNORECASE)


def is_product_kernel(kernel: str) -> bool:
    """Whether a kernel is a GEMM, by its name: of cuBLAS, CUTLASS, Tensile (``Cijk_...``), CK or Triton."""
    return _KERNEL.search(kernel) is not None and _NO_PRODUCT.search(kernel) is None


def is_fp8_kernel(kernel: str) -> bool:
    """Whether the name of a kernel says that its operands are fp8, as TransformerEngine's operations do not."""
    return _FP8_KERNEL.search(kernel) is not None


def product_of(operation: str, dims: object, types: object) -> Product | str | None:
    """The product that an operation is, or why it is none that is read; None for operations that are no products."""
    name = operation.rpartition("::")[2]
    if name in _NOT_READ:
        return _NOT_READ[name]
    if name not in _OPERANDS:
        return None
    if not isinstance(dims, list) or not isinstance(types, list) or not any(dims):
        return WITHOUT_SHAPES
    first, second = (_operand(dims, choice) for choice in _OPERANDS[name])
    if first is None or second is None:
        return "whose operands are no matrices"
    dtype = _dtype(types, first, second)
    if isinstance(dtype, str):
        return dtype
    return _product(_sizes(dims[first]), _sizes(dims[second]), dtype, gathers=name in (_LAYER_NORM_LINEAR, _LINEAR))


def _product(one: list[int], other: list[int], dtype: DType, *, gathers: bool) -> Product | str:
    """Rows of the first matrix, of all groups, by the second; its inner dimension is the one that is as long."""
    k = one[-1]
    if not all(0 < size <= MAX_SIZE for size in (*one, *other)) or prod(one[:-1]) > MAX_SIZE:
        return "with a size of 0, or above 16,777,216"
    groups = other[0] if len(other) == 3 else 1
    if (len(other) == 3 and len(one) == 3 and one[0] != groups) or len(other) > 3 or k not in other[-2:]:
        return "whose sizes do not meet"
    n = other[-1] if other[-2] == k else other[-2]
    return Product(prod(one[:-1]), n, k, dtype, groups, gathers)


def _operand(dims: Sequence[object], choice: tuple[int, ...]) -> int | None:
    """The first of ``choice`` that has rows and columns."""
    return next((at for at in choice if at < len(dims) and len(_sizes(dims[at])) > 1), None)


def _sizes(found: object) -> list[int]:
    """The sizes of a tensor; none of anything else."""
    if not isinstance(found, list) or not all(isinstance(size, int) and not isinstance(size, bool) for size in found):
        return []
    return found


def _dtype(types: Sequence[object], first: int, second: int) -> DType | str:
    """The type of both operands, fp8 where either is; else why it is none that is simulated."""
    names = [str(types[at]).removeprefix("c10::") if at < len(types) else "" for at in (first, second)]
    found = [DTYPES.get(name) for name in names]
    if DType.FP8 in found:
        return DType.FP8
    other = next((name for name, dtype in zip(names, found, strict=True) if dtype is None), "")
    if found[0] is not None and not other:
        return found[0]
    said = _OTHER_TYPES.get(other, other[:32])
    return f"in {said}, for which no GPU of the library has a rate" if said else "whose type the trace does not say"
