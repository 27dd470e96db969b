"""``reduce_scatter(x)``: the sum of what all ranks hold, row block r of it on rank r. ``all_reduce(x)``: all on all.

A reduce_scatter leaves every rank as many rows; an all_reduce takes any number of them, see ``ir/tensors.py``.
"""

from dataclasses import replace

from ..tensors import Pattern, Shard, Tensor
from .base import CallResult, CollectiveOperation, OperationCall, not_simulated
from .checks import check_rows, check_scales, check_whole, parts_of


def _summed(call: OperationCall) -> Tensor:
    """The tensor of which every rank holds a part of the sum."""
    (operand,), (tensor,) = call.operands, call.tensors
    check_scales(call, tensor.dtype)
    if operand.made_by is not None and not operand.partial:
        hint = "shard the inner dimension: x by cols and w by rows"
        raise not_simulated(f"{call.operation.name} needs partial sums to add", hint)
    if operand.made_by is None:
        check_whole(tensor, f"{call.operation.name} adds what every rank holds in full")
    return tensor


def _scattered(call: OperationCall) -> CallResult:
    tensor = _summed(call)
    check_rows(call, tensor, "all_reduce takes any number of rows")
    moved = replace(tensor, shard=Shard.ROWS)
    return CallResult(replace(moved, name=call.result), moved=moved)


def _everywhere(call: OperationCall) -> CallResult:
    tensor = _summed(call)
    parts = parts_of(call, tensor)
    return CallResult(replace(tensor, name=call.result, shard=Shard.NONE), moved=parts.moved, in_parts=parts)


REDUCE_SCATTER = CollectiveOperation(
    name="reduce_scatter",
    example="reduce_scatter(x)",
    infer=_scattered,
    operand_suffix="partial",
    alone=Pattern.REDUCE_SCATTER,
    after_kernel=Pattern.GEMM_RS,
)
ALL_REDUCE = CollectiveOperation(
    name="all_reduce",
    example="all_reduce(x)",
    infer=_everywhere,
    operand_suffix="partial",
    alone=Pattern.ALL_REDUCE,
    after_kernel=Pattern.GEMM_AR,
)
