"""``grouped_gemm(x, w, rows=[...])``: the experts of one rank; x is [sum of rows, k], w is [experts * k, n].

x may have come by an all_gather or an all_to_all. Behind a dispatch routing says the rows. Where ranks have a part of
the columns of every expert, x by cols and w by rows leave terms of a sum.

The gradients are products of the same experts: ``grouped_gemm(dy, w.t)`` is [sum of rows, k], each expert's weights
transposed; ``grouped_gemm(x.t, dy)`` is [experts * k, n], a sum over the rows of each expert.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...codes import Code
from ..stopping import Rejection
from ..tensors import DType, Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    Exchange,
    KernelOperation,
    OperationCall,
    OperationError,
    check_inner,
    check_inner_blocks,
    check_local,
    check_peak,
    mismatch,
    not_simulated,
    product_types,
)
from .kernel_shape import Cutting, ProductShape, matrix_cutting


@dataclass(frozen=True, slots=True)
class GroupedGemmShape(ProductShape):
    """GEMMs of several experts in one launch: C_e[rows[e], n] = A_e[rows[e], k] B_e[k, n]; rows may be uneven or 0."""

    operation: ClassVar[str] = "grouped_gemm"

    rows: tuple[int, ...]
    n: int
    k: int
    dtype: DType
    weights: DType | None = None
    out: DType | None = None

    @property
    def flops(self) -> int:
        """Operations of all experts, multiply and add counted as two."""
        return 2 * sum(self.rows) * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """A of every expert, and B of those that have rows."""
        used = sum(count > 0 for count in self.rows)
        return self.dtype.bytes_of(sum(self.rows) * self.k) + self.right.bytes_of(used * self.n * self.k)

    @property
    def output_bytes(self) -> int:
        """C of every expert; of fp8 too a kernel writes 16 bits, even where the next one takes what it rounds to."""
        count = sum(self.rows) * self.n
        return self.out.bytes_of(count) if self.out else max(2 * count, self.product.bytes_of(count))

    @property
    def accumulator_bytes(self) -> int:
        """The output while parts of it are being summed: in fp32."""
        return 4 * sum(self.rows) * self.n

    @property
    def text(self) -> str:
        """As one product of all rows, and how many experts share them."""
        return f"{self.sizes_text(sum(self.rows), self.n, self.k)} in {len(self.rows)} experts"

    def cutting(self, pattern: Pattern, moved: Tensor) -> Cutting:
        """As a GEMM."""
        return matrix_cutting(pattern)

    def tile_extent(self, pattern: Pattern, moved: Tensor | None) -> tuple[int, int]:
        """n and k beside a collective; alone it is one tile."""
        return (1, 1) if moved is None else (self.n, self.k)

    def at_rank(self, rows: int, experts: tuple[int, ...], of: int) -> "GroupedGemmShape":
        """Each expert with its rows at the rank."""
        return replace(self, rows=experts) if experts else self


def _infer(call: OperationCall) -> CallResult:
    delivered = call.operands[0].origin in OPERATION.after
    check_local(call, call.operands[1:] if delivered else call.operands)
    x, w = call.tensors
    weights, out = product_types(call, x, w)
    exchange = _exchange(call)
    rows = exchange.experts[exchange.busiest] if exchange.experts else _rows(call)
    check_peak(call.gpu, x.dtype)
    if call.operands[0].transposed:
        shape, height = _over_rows(x, w, rows), len(rows) * x.rows
    else:
        if sum(rows) != x.rows:
            raise mismatch(f"the rows of all experts are {sum(rows)}, but {x.name} has {x.rows}")
        shape, height = _by_rows(x, w, rows, transposed=call.operands[1].transposed), x.rows
    check_inner_blocks(x, w, shape.k)
    shape = replace(shape, weights=weights, out=out)
    return CallResult(Tensor(call.result, shape.product, height, shape.n, Shard.NONE), shape, exchange=exchange)


def _by_rows(x: Tensor, w: Tensor, rows: tuple[int, ...], *, transposed: bool) -> GroupedGemmShape:
    """The rows of each expert by its weights; of transposed weights experts lie side by side."""
    if not transposed:
        if len(rows) * x.cols != w.rows:
            needed = f"{len(rows)} experts of {x.name} need {len(rows)} x {x.cols} rows of weights on a rank"
            raise mismatch(f"{needed}, {w.name} has {w.rows}")
        return GroupedGemmShape(rows, w.cols, x.cols, x.dtype)
    check_inner(x.name, x.cols, w)
    if w.cols % len(rows):
        raise mismatch(f"{w.name} has {w.cols} columns, which do not divide among {len(rows)} experts")
    return GroupedGemmShape(rows, w.cols // len(rows), x.cols, x.dtype)


def _over_rows(x: Tensor, y: Tensor, rows: tuple[int, ...]) -> GroupedGemmShape:
    """The transposed rows of each expert by as many rows of ``y``: a product of the form of its weights."""
    if len(set(rows)) > 1:
        message = f"a sum over the rows of experts, which have {min(rows)} to {max(rows)} rows, is not simulated"
        raise not_simulated(message, "experts that have as many rows each")
    if sum(rows) != x.cols:
        raise mismatch(f"the rows of all experts are {sum(rows)}, but {x.name} has {x.cols} columns")
    check_inner(x.name, x.cols, y)
    return GroupedGemmShape((x.rows,) * len(rows), y.cols, rows[0], x.dtype)


def _rows(call: OperationCall) -> tuple[int, ...]:
    """The rows of each expert of a rank, as the call or the routing before it says."""
    routing = call.exchange.routing
    if "rows" in call.arguments:
        return call.counts("rows")
    if routing is None:
        raise OperationError(Rejection(Code.MGS209, f"{call.operation.name} does not say its rows", OPERATION.example))
    return routing.dealt


def _exchange(call: OperationCall) -> Exchange:
    """The all_to_all before it with the rows of each expert of each rank, where ranks get different numbers of them."""
    exchange, by_rank = call.exchange, call.counts_by_rank("rows")
    if by_rank and exchange.table:
        # Experts differ even where ranks send alike.
        exchange = replace(exchange, loads=exchange.table, split=())
    received = exchange.received
    if not by_rank and not received:
        return exchange
    if not by_rank or not received:
        message = "experts of each rank stand behind an all_to_all that says its rows [from][to], or rows_to"
        raise mismatch(message, "rows=[[...], ...], a list for each rank, in both or in neither")
    if len(by_rank) != len(received) or len(set(map(len, by_rank))) > 1:
        message = f"there are {len(by_rank)} lists of experts of {len(received)} ranks"
        raise mismatch(message, "a list for each rank, all of the same length")
    for rank, (rows, got) in enumerate(zip(by_rank, received, strict=True)):
        if sum(rows) != got:
            raise mismatch(f"the experts of rank {rank} have {sum(rows)} rows, and it gets {got}")
    return replace(exchange, experts=by_rank)


OPERATION = KernelOperation(
    name="grouped_gemm",
    example="grouped_gemm(x, w, rows=[512, 256])",
    infer=_infer,
    num_tensors=(2, 2),
    arguments=(CallArgument("rows", CallArgumentKind.TABLE), CallArgument("type", CallArgumentKind.TYPE)),
    after=("all_gather", "all_to_all"),
    before=("all_to_all", "reduce_scatter", "all_reduce"),
    follows=("gemm",),
    uneven=True,
)
