"""``gemm(x, w)``: the product of two matrices; the GEMM of one rank follows from how both lie on the ranks.

``gemv(w, x)``: a matrix [n, k] times a vector [k, 1], alone on one rank.
``batched_gemm(x, w, heads=128)``: the columns of each head by weights of its own, in one launch.

x of the last one is [rows, heads * (k + rope)], w is [heads * k, n], one head below the other, and the result is
[rows, heads * (n + rope)]. The last ``rope`` columns of each head are not multiplied: kernels write the product beside
them. So MLA decodes whose projections are absorbed (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries are
multiplied by the heads' projections of keys before attention, and its result by those of values.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..tensors import DType, Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    KernelOperation,
    Operand,
    OperationCall,
    check_inner,
    check_inner_blocks,
    check_local,
    check_peak,
    check_scales,
    lone_tensors,
    mismatch,
    not_simulated,
    product_types,
)
from .kernel_shape import Adds, Cutting, KernelShape, ProductShape, matrix_cutting


@dataclass(frozen=True, slots=True)
class GemmShape(ProductShape):
    """The GEMM of one rank: C[m, n] = A[m, k] B[k, n].

    ``whole_flops`` are the operations of the GEMM that it is a part of, None if it is whole.
    """

    operation: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    dtype: DType
    weights: DType | None = None
    out: DType | None = None
    whole_flops: int | None = None

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.m * self.n * self.k

    @property
    def left_bytes(self) -> int:
        """A."""
        return self.dtype.bytes_of(self.m * self.k)

    @property
    def right_bytes(self) -> int:
        """B."""
        return self.right.bytes_of(self.k * self.n)

    @property
    def operand_bytes(self) -> int:
        """A and B."""
        return self.left_bytes + self.right_bytes

    @property
    def output_bytes(self) -> int:
        """C."""
        return self.product.bytes_of(self.m * self.n)

    @property
    def accumulator_bytes(self) -> int:
        """The output while parts of it are being summed: in fp32."""
        return 4 * self.m * self.n

    @property
    def text(self) -> str:
        """Type and m x n x k."""
        return self.sizes_text(self.m, self.n, self.k)

    def cutting(self, pattern: Pattern, moved: Tensor) -> Cutting:
        """Columns of what arrives are the inner dimension, of one rank or of all ranks side by side.

        The latter is behind an all_to_all that turns a sharding by columns into one by rows.
        """
        if pattern is Pattern.A2A_GEMM and self.k != moved.cols:
            return Cutting(Adds.BLOCKS)
        return matrix_cutting(pattern)

    def tile_extent(self, pattern: Pattern, moved: Tensor | None) -> tuple[int, int]:
        """n, and k or, where blocks lie side by side, the columns of one block."""
        if moved is not None and self.cutting(pattern, moved).adds is Adds.BLOCKS:
            return self.n, moved.cols
        return self.n, self.k

    def at_rank(self, rows: int, experts: tuple[int, ...], of: int) -> "GemmShape":
        """A product of all rows that the rank gets."""
        return replace(self, m=rows)


def _infer(call: OperationCall) -> CallResult:
    left, right = call.operands
    a, b, ranks = _side_by_side(call, left, right.tensor), right.tensor, call.num_ranks
    _check(call, a, b)
    types = product_types(call, a, b)
    rows, cols, inner, shard, partial = a.rows, b.cols, a.cols, Shard.NONE, False
    match Shard.NONE if left.origin == "all_gather" else a.shard, b.shard:
        case (Shard.NONE, Shard.NONE):
            pass
        case (Shard.NONE, Shard.COLS):
            cols, shard = b.cols // ranks, Shard.COLS
        case (Shard.ROWS, Shard.NONE):
            rows, shard = a.rows // ranks, Shard.ROWS
        case (Shard.COLS, Shard.ROWS):
            inner, partial = a.cols // ranks, True
        case (Shard.FLAT, _) | (_, Shard.FLAT):
            raise mismatch(f"{_layouts(a, b)}: flat shards are gathered first", "g = all_gather(w)")
        case (Shard.ROWS, _):
            gather = f"gather it first: gemm(all_gather({a.name}), {b.name})"
            hint = f"drop the shard of {b.name}" if left.origin == "all_to_all" else gather
            raise mismatch(f"{_layouts(a, b)}: no rank holds what it multiplies", hint)
        case _:
            hint = "shard the inner dimension of both, x by cols and w by rows, or of neither"
            raise mismatch(f"{_layouts(a, b)}: the inner dimension does not meet", hint)
    check_inner_blocks(a, b, inner)
    shape = GemmShape(rows, cols, inner, a.dtype, *types)
    return CallResult(Tensor(call.result, shape.product, a.rows, b.cols, shard), shape, partial=partial)


def _side_by_side(call: OperationCall, left: Operand, w: Tensor) -> Tensor:
    """The first input as ``w`` takes it: blocks of an all_to_all as more rows, or as more columns of the same rows.

    The latter where ``w`` has rows for the columns of all ranks, as a projection of the heads of all ranks has.
    """
    x = left.tensor
    if left.origin != "all_to_all":
        return x
    if x.shard is Shard.NONE and w.rows == call.num_ranks * x.cols:
        x = replace(x, cols=w.rows, shard=Shard.ROWS)
    if x.shard is Shard.ROWS and call.exchange.split:
        raise mismatch(f"blocks of {x.name} side by side have as many rows each", "leave rows=[...] out")
    return x


def _check(call: OperationCall, a: Tensor, b: Tensor) -> None:
    left, right = call.operands
    if left.origin and a.shard is Shard.FLAT:
        hint = "gather it in a line of its own: g = all_gather(w)"
        raise not_simulated(f"{a.name} comes in flat shards, of which rows are no part", hint)
    for operand, allowed in ((left, ("", *OPERATION.after)), (right, ("",))):
        if operand.origin not in allowed:
            hint = "the first input may be gathered: gemm(all_gather(x), w), or come by an all_to_all"
            raise not_simulated(f"a gemm of the result of {operand.origin} is not simulated", hint)
    check_inner(a.name, a.cols, b)
    check_peak(call.gpu, a.dtype)


def _layouts(a: Tensor, b: Tensor) -> str:
    return f"{a.name} is {a.layout} and {b.name} is {b.layout}"


OPERATION = KernelOperation(
    name="gemm",
    example="gemm(x, w)",
    infer=_infer,
    num_tensors=(2, 2),
    arguments=(CallArgument("type", CallArgumentKind.TYPE),),
    alone=Pattern.GEMM,
    after=("all_gather", "all_to_all"),
    before=("reduce_scatter", "all_reduce", "all_to_all"),
    beside=("all_gather", "all_to_all"),
    follows=("gemm", "grouped_gemm", "attention"),
    uneven=True,
)


@dataclass(frozen=True, slots=True)
class GemvShape(KernelShape):
    """Matrix times vector, y[n] = W[n, k] x[k], for each of a few vectors (``batch``) at once."""

    operation: ClassVar[str] = "gemv"

    n: int
    k: int
    dtype: DType
    batch: int = 1

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.batch * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """The matrix and the vectors."""
        return self.dtype.bytes_of((self.n + self.batch) * self.k)

    @property
    def output_bytes(self) -> int:
        """A vector for each of those read."""
        return self.dtype.bytes_of(self.batch * self.n)


def _infer_gemv(call: OperationCall) -> CallResult:
    w, x = lone_tensors(call)
    if x.cols != 1:
        message = f"gemv multiplies a vector, but {x.name} has {x.cols} columns"
        raise mismatch(message, "use gemm for more than one column")
    check_inner(w.name, w.cols, x)
    check_peak(call.gpu, w.dtype)
    return CallResult(Tensor(call.result, w.dtype, w.rows, 1, Shard.NONE), GemvShape(w.rows, w.cols, w.dtype))


GEMV = KernelOperation(name="gemv", example="gemv(w, x)", infer=_infer_gemv, num_tensors=(2, 2))


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


def _infer_batched(call: OperationCall) -> CallResult:
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


BATCHED = KernelOperation(
    name="batched_gemm",
    example="batched_gemm(x, w, heads=128)",
    infer=_infer_batched,
    num_tensors=(2, 2),
    arguments=(
        CallArgument("heads", CallArgumentKind.COUNT, required=True),
        CallArgument("rope", CallArgumentKind.COUNT),
        CallArgument("type", CallArgumentKind.TYPE),
    ),
)
