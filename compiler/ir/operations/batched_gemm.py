"""``batched_gemm(x, w, heads=128)``: the columns of each head by weights of its own, in one launch.

x is [rows, heads * (k + rope)], w is [heads * k, n], one head below the other, and the result is
[rows, heads * (n + rope)]. The last ``rope`` columns of each head are not multiplied: kernels write the product beside
them. So MLA decodes whose projections are absorbed (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries are
multiplied by the heads' projections of keys before attention, and its result by those of values.
"""

from dataclasses import dataclass
from typing import ClassVar

from ..tensors import DType, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    KernelOperation,
    OperationCall,
    check_inner_blocks,
    check_local,
    check_peak,
    check_scales,
    mismatch,
    product_types,
)
from .kernel_shape import ProductShape


@dataclass(frozen=True, slots=True)
class BatchedGemmShape(ProductShape):
    """A GEMM of each of ``heads``: C_h[m, n] = A_h[m, k] B_h[k, n]; every B_h is read once."""

    operation: ClassVar[str] = "batched_gemm"

    heads: int
    m: int
    n: int
    k: int
    dtype: DType
    weights: DType | None = None
    out: DType | None = None

    @property
    def flops(self) -> int:
        """Operations of all heads, multiply and add counted as two."""
        return 2 * self.heads * self.m * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """A and B of every head."""
        return self.dtype.bytes_of(self.heads * self.m * self.k) + self.right.bytes_of(self.heads * self.k * self.n)

    @property
    def output_bytes(self) -> int:
        """C of every head."""
        return self.product.bytes_of(self.heads * self.m * self.n)

    @property
    def text(self) -> str:
        """The product of one head, and how many heads there are."""
        return f"{self.sizes_text(self.m, self.n, self.k)} of {self.heads} heads"


def _infer(call: OperationCall) -> CallResult:
    check_local(call, call.operands)
    x, w = call.tensors
    heads, rope = call.arguments["heads"], call.arguments.get("rope", 0)
    weights, out = product_types(call, x, w)
    check_scales(call, x.dtype)
    check_peak(call.gpu, x.dtype)
    if x.cols % heads or w.rows % heads:
        raise mismatch(f"{heads} heads do not divide {x.cols} columns of {x.name} and {w.rows} rows of {w.name}")
    inner = w.rows // heads
    if x.cols // heads != inner + rope:
        beside = f" and {rope} of rope" if rope else ""
        message = f"a head of {x.name} has {x.cols // heads} columns, one of {w.name} multiplies {inner}{beside}"
        more = x.cols // heads - inner
        hint = f"or add rope={more}, columns that stay behind the product" if more > 0 else ""
        raise mismatch(message, f"w is [heads * k, n], x is [rows, heads * (k + rope)]; {hint}".rstrip("; "))
    check_inner_blocks(x, w, inner)
    shape = BatchedGemmShape(heads, x.rows, w.cols, inner, x.dtype, weights, out)
    return CallResult(Tensor(call.result, shape.product, x.rows, heads * (w.cols + rope), Shard.NONE), shape)


OPERATION = KernelOperation(
    name="batched_gemm",
    example="batched_gemm(x, w, heads=128)",
    infer=_infer,
    num_tensors=(2, 2),
    arguments=(
        CallArgument("heads", CallArgumentKind.COUNT, required=True),
        CallArgument("rope", CallArgumentKind.COUNT),
        CallArgument("type", CallArgumentKind.TYPE),
    ),
)
