"""Checks that operations share. Each raises OperationError."""

from collections.abc import Sequence
from dataclasses import replace

from ...codes import Code
from ..hardware import Gpu
from ..stopping import Rejection
from ..tensors import DType, RankParts, Shard, Tensor, rank_parts
from .base import Operand, OperationCall, OperationError, mismatch, not_simulated


def lone_tensors(call: OperationCall) -> tuple[Tensor, ...]:
    """The tensors of a kernel that stands alone: declared, whole on the rank, of one type."""
    check_local(call, call.operands)
    check_types(call.tensors)
    return call.tensors


def check_local(call: OperationCall, operands: Sequence[Operand]) -> None:
    """Reject operands that another operation made or that are not whole on the rank."""
    for operand in operands:
        if operand.made_by is not None:
            message = f"{call.operation.name} of the result of {operand.origin} is not simulated"
            raise not_simulated(message, f"{call.operation.name} takes what is declared or what a kernel makes")
        tensor = operand.tensor
        if tensor.shard is not Shard.NONE:
            message = f"{call.operation.name} runs on one rank, but {tensor.name} is {tensor.layout}"
            raise mismatch(message, f"say the size of one rank and drop the shard of {tensor.name}")


def check_whole(tensor: Tensor, why: str) -> None:
    """Reject a tensor that is sharded; ``why`` it must not be."""
    if tensor.shard is not Shard.NONE:
        raise mismatch(f"{why}, but {tensor.name} is {tensor.layout}", f"drop the shard of {tensor.name}")


def check_types(tensors: Sequence[Tensor]) -> None:
    """Reject tensors of several element types."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype is not first.dtype:
            raise mismatch(f"types differ: {first.name} is {first.dtype.value}, {other.name} is {other.dtype.value}")


def product_types(call: OperationCall, x: Tensor, w: Tensor) -> tuple[DType | None, DType | None]:
    """The types of the weights ``w`` and of the product as the shape has them; None where they follow from ``x``.

    Weights may be of a narrower type than ``x``, at whose rate they are multiplied: kernels widen them on the way.
    Reject others.
    """
    narrower = (w.dtype.block > 1 or w.dtype is DType.FP8) and w.dtype.mean_bytes < x.dtype.mean_bytes
    if not narrower:
        check_types([x, w])
    return w.dtype if narrower else None, call.arguments.get("type")


def check_inner(left: str, cols: int, right: Tensor) -> None:
    """Reject a product whose left factor, of so many columns, does not meet the rows of the right one."""
    if cols != right.rows:
        raise mismatch(f"inner dimensions differ: {left} has {cols} columns, {right.name} has {right.rows} rows")


def check_peak(gpu: Gpu, dtype: DType) -> None:
    """Reject an element type that the GPU has no peak for."""
    if not gpu.peak(dtype):
        known = ", ".join(each.value for each, _ in gpu.peak_flops)
        message = f"{gpu.name} has no peak rate for {dtype.value}"
        raise OperationError(Rejection(Code.MGS405, message, f"it has: {known}"))


def reject_share(size: int, what: str, num_ranks: int) -> Rejection | None:
    """Why the ranks cannot get the same share, None if they can."""
    if size % num_ranks == 0:
        return None
    less = size // num_ranks * num_ranks
    hint = f"use {less + num_ranks}{f' or {less}' if less else ''}, a multiple of {num_ranks}"
    return Rejection(Code.MGS304, f"{size} {what} do not divide among {num_ranks} ranks", hint)


def reject_blocks(name: str, dtype: DType, size: int) -> Rejection | None:
    """Why ``size`` elements side by side of ``name`` are no whole blocks of one scale each, None if they are."""
    block = dtype.block
    if size % block == 0:
        return None
    message = f"{dtype.value} has a scale for each {block} elements, and {size} of {name} are not whole blocks"
    return Rejection(Code.MGS304, message, f"use {-(-size // block) * block}, a multiple of {block}")


def check_inner_blocks(x: Tensor, w: Tensor, inner: int) -> None:
    """Reject a product of ``inner`` elements of each rank that are not whole blocks of one scale each."""
    for tensor in (x, w):
        check_blocks(f"the inner dimension of {tensor.name}", tensor.dtype, inner)


def check_blocks(name: str, dtype: DType, size: int) -> None:
    """Reject ``size`` elements side by side that are not whole blocks of one scale each."""
    rejection = reject_blocks(name, dtype, size)
    if rejection is not None:
        raise OperationError(rejection)


def check_scales(call: OperationCall, dtype: DType) -> None:
    """Reject a type with scales where the elements of several tensors meet, as in a sum or in attention."""
    if dtype.block > 1:
        message = f"{call.operation.name} of {dtype.value}, whose blocks have scales of their own, is not simulated"
        raise not_simulated(message, "in bf16: a cast before it, or gemm(x, w, type=bf16)")


def parts_of(call: OperationCall, tensor: Tensor) -> RankParts:
    """The parts of a tensor that ranks hold in full, one for each rank; reject one that is too small."""
    parts = rank_parts(tensor, call.num_ranks)
    if parts is None:
        message = f"{tensor.name} of {tensor.rows} x {tensor.cols} has no part for each of {call.num_ranks} ranks"
        hint = f"{call.num_ranks} or more rows or columns"
        raise OperationError(Rejection(Code.MGS304, message, hint))
    return parts


def check_rows(call: OperationCall, tensor: Tensor, instead: str) -> None:
    """Reject rows of which not every rank gets the same share; ``instead`` says what takes any number of them."""
    rejection = reject_share(tensor.rows, "rows", call.num_ranks)
    if rejection is not None:
        raise OperationError(replace(rejection, hint=f"{rejection.hint}; {instead}"))
