"""Operations of a workload that compute: the shape of the kernel that one rank runs."""

from collections.abc import Sequence
from dataclasses import replace

from ...codes import Code
from ...ir import DType, ElementwiseShape, GemmShape, GemvShape, GroupedGemmShape, KernelShape, Shard, Tensor
from ...text import syntax as ast
from ...text.source import Span
from .operands import COMBINATIONS, Making, Operand
from .operations import Named
from .tensors import layout


def gemm(making: Making, left: Operand, right: Operand, call: ast.Call, name: str) -> Operand:
    """``gemm(x, w)``: the product of one rank follows from how both lie on the ranks."""
    left = _side_by_side(making, left, right.tensor, call.span)
    a, b = left.tensor, right.tensor
    _check_gemm(making, left, right, call)
    ranks = making.system.num_ranks
    shards = Shard.NONE if left.gathered else a.shard, b.shard
    rows, cols, inner, shard, partial = a.rows, b.cols, a.cols, Shard.NONE, False
    match shards:
        case (Shard.NONE, Shard.NONE):
            pass
        case (Shard.NONE, Shard.COLS):
            cols, shard = b.cols // ranks, Shard.COLS
        case (Shard.ROWS, Shard.NONE):
            rows, shard = a.rows // ranks, Shard.ROWS
        case (Shard.COLS, Shard.ROWS):
            inner, partial = a.cols // ranks, True
        case (Shard.ROWS, _):
            gather = f"gather it first: gemm(all_gather({a.name}), {b.name})"
            hint = f"drop the shard of {b.name}" if left.made_by == "all_to_all" else gather
            message = f"{a.name} is {layout(a)} and {b.name} is {layout(b)}: no rank holds what it multiplies"
            raise making.misfit(message, call.span, hint)
        case _:
            message = f"{a.name} is {layout(a)} and {b.name} is {layout(b)}: the inner dimension does not meet"
            hint = "shard the inner dimension of both, x by cols and w by rows, or of neither"
            raise making.misfit(message, call.span, hint)
    making.computes(GemmShape(rows, cols, inner, a.dtype), name)
    return Operand(Tensor(name, a.dtype, a.rows, b.cols, shard), "gemm", partial)


def _side_by_side(making: Making, left: Operand, w: Tensor, span: Span) -> Operand:
    """What came by an all_to_all as ``w`` takes it: blocks as more rows, or as more columns of the same rows.

    The latter where ``w`` has rows for the columns of all ranks, as a projection of the heads of all ranks has.
    """
    x, ranks = left.tensor, making.system.num_ranks
    if left.made_by != "all_to_all":
        return left
    if x.shard is Shard.NONE and w.rows == ranks * x.cols:
        x = replace(x, cols=w.rows, shard=Shard.ROWS)
    if x.shard is Shard.ROWS and making.split:
        raise making.misfit(f"blocks of {x.name} side by side have as many rows each", span, "leave rows=[...] out")
    return replace(left, tensor=x)


def gemv(making: Making, operands: Sequence[Operand], call: ast.Call, name: str) -> Operand:
    """``gemv(w, x)``: a matrix [n, k] times a vector [k, 1]."""
    w, x = _lone(making, operands, "gemv", call.span)
    if x.cols != 1:
        message = f"gemv multiplies a vector, but {x.name} has {x.cols} columns"
        raise making.misfit(message, call.span, "use gemm for more than one column")
    _check_inner(making, w.name, w.cols, x, x.rows, call.span)
    check_peak(making, w.dtype, call.span)
    return made(making, GemvShape(w.rows, w.cols, w.dtype), Tensor(name, w.dtype, w.rows, 1, Shard.NONE))


def grouped_gemm(making: Making, operands: Sequence[Operand], call: ast.Call, name: str, named: Named) -> Operand:
    """``grouped_gemm(x, w, rows=[...])``: x is [sum of rows, k], w is [experts * k, n].

    x may have come by an all_gather or an all_to_all; the experts are those of one rank.
    """
    brought = operands[0].made_by in ("all_gather", "all_to_all")
    check_declared(making, operands[1:] if brought else operands, "grouped_gemm", call.span)
    x, w = (operand.tensor for operand in operands)
    check_types(making, [x, w], call.span)
    named.require("rows")
    rows = _experts(making, named, call.span)
    if sum(rows) != x.rows:
        message = f"the rows of all experts are {sum(rows)}, but {x.name} has {x.rows}"
        raise making.misfit(message, call.span)
    _check_inner(making, f"{len(rows)} experts of {x.name}", len(rows) * x.cols, w, w.rows, call.span)
    check_peak(making, x.dtype, call.span)
    output = Tensor(name, x.dtype, x.rows, w.cols, Shard.NONE)
    return made(making, GroupedGemmShape(rows, w.cols, x.cols, x.dtype), output)


def _experts(making: Making, named: Named, span: Span) -> tuple[int, ...]:
    """Rows of each expert, of the busiest rank where ranks get different numbers of them."""
    by_rank = named.of_ranks()
    if by_rank and making.table:
        making.loads, making.split = making.table, ()  # experts differ even where ranks send alike
    received = making.received
    if not by_rank and not received:
        return named.rows()
    if not by_rank or not received:
        message = "experts of each rank stand behind an all_to_all that says its rows [from][to], or rows_to"
        raise making.misfit(message, span, "rows=[[...], ...], a list for each rank, in both or in neither")
    if len(by_rank) != len(received) or len(set(map(len, by_rank))) > 1:
        message = f"there are {len(by_rank)} lists of experts of {len(received)} ranks"
        raise making.misfit(message, span, "a list for each rank, all of the same length")
    for rank, (rows, got) in enumerate(zip(by_rank, received, strict=True)):
        if sum(rows) != got:
            raise making.misfit(f"the experts of rank {rank} have {sum(rows)} rows, and it gets {got}", span)
    making.experts = by_rank
    return by_rank[making.busiest]


def add(making: Making, operands: Sequence[Operand], call: ast.Call, name: str) -> Operand:
    """``add(x, y)``, element by element."""
    x, y = _lone(making, operands, "add", call.span)
    if (x.rows, x.cols) != (y.rows, y.cols):
        message = f"{x.name} is [{x.rows}, {x.cols}] and {y.name} is [{y.rows}, {y.cols}]"
        raise making.misfit(message, call.span)
    output = Tensor(name, x.dtype, x.rows, x.cols, Shard.NONE)
    return made(making, ElementwiseShape(x.rows * x.cols, 2, x.dtype), output)


def _lone(making: Making, operands: Sequence[Operand], operation: str, span: Span) -> list[Tensor]:
    """The tensors of a kernel that stands alone: declared, whole on the rank, of one type."""
    check_declared(making, operands, operation, span)
    tensors = [operand.tensor for operand in operands]
    check_types(making, tensors, span)
    return tensors


def check_declared(making: Making, operands: Sequence[Operand], operation: str, span: Span) -> None:
    """Report operands that another operation made or that are not whole on the rank."""
    for operand in operands:
        if operand.made_by:
            raise making.refused(f"{operation} of the result of {operand.made_by} is not simulated", span)
        if operand.tensor.shard is not Shard.NONE:
            message = f"{operation} runs on one rank, but {operand.tensor.name} is {layout(operand.tensor)}"
            raise making.misfit(message, span, f"say the size of one rank and drop the shard of {operand.tensor.name}")


def made(making: Making, shape: KernelShape, output: Tensor) -> Operand:
    """The result of a kernel that is no GEMM."""
    making.computes(shape, output.name)
    return Operand(output, shape.operation)


def _check_gemm(making: Making, left: Operand, right: Operand, call: ast.Call) -> None:
    a, b = left.tensor, right.tensor
    for operand in (left, right):
        if operand.made_by not in ("", "all_gather", "all_to_all") or (operand is right and operand.made_by):
            message = f"a gemm of the result of {operand.made_by} is not simulated"
            hint = f"the first input may be gathered; Magus simulates: {COMBINATIONS}"
            raise making.refused(message, call.span, hint)
    _check_inner(making, a.name, a.cols, b, b.rows, call.span)
    check_types(making, [a, b], call.span)
    check_peak(making, a.dtype, call.span)


def _check_inner(making: Making, left: str, cols: int, right: Tensor, rows: int, span: Span) -> None:
    if cols != rows:
        message = f"inner dimensions differ: {left} has {cols} columns, {right.name} has {rows} rows"
        raise making.misfit(message, span)


def check_types(making: Making, tensors: Sequence[Tensor], span: Span) -> None:
    """Report tensors of several element types."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype is not first.dtype:
            message = f"types differ: {first.name} is {first.dtype.value}, {other.name} is {other.dtype.value}"
            raise making.misfit(message, span)


def check_peak(making: Making, dtype: DType, span: Span) -> None:
    """Report an element type that the GPU has no peak for."""
    gpu = making.system.gpu
    if not gpu.peak(dtype):
        known = ", ".join(each.value for each, _ in gpu.peak_flops)
        message = f"{gpu.name} has no peak rate for {dtype.value}"
        raise making.report.fail(Code.MGS405, message, span, f"it has: {known}")
