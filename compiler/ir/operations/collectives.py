"""Collectives that copy or sum: all_gather, broadcast, send_recv, reduce_scatter and all_reduce.

An all_gather brings rows of all ranks side by side to every rank, a broadcast and a send_recv what rank 0 holds to all
or to rank 1. A reduce_scatter leaves row block r of the sum of what all ranks hold on rank r, as many rows on each; an
all_reduce leaves all of it on all, and takes any number of rows, see ``ir/tensors.py``.
"""

from dataclasses import replace
from math import gcd

from ..tensors import Pattern, Shard, Tensor
from .base import CallResult, CollectiveOperation, KernelOperation, OperationCall, mismatch, not_simulated
from .checks import check_blocks, check_rows, check_scales, check_whole, parts_of


def _gathered(call: OperationCall) -> CallResult:
    (tensor,) = call.tensors
    if tensor.shard is Shard.FLAT:
        check_blocks(f"a part of {tensor.name}", tensor.dtype, tensor.rows * tensor.cols // call.num_ranks)
        return CallResult(replace(tensor, name=call.result), moved=_in_rows(tensor, call))
    if tensor.shard is not Shard.ROWS:
        hint = f"declare it with 'shard rows': {tensor.name} = tensor ... shard rows"
        raise mismatch(f"all_gather joins rows, but {tensor.name} is {tensor.layout}", hint)
    gathered = replace(tensor, name=call.result)
    return CallResult(gathered, moved=gathered)


def _in_rows(tensor: Tensor, call: OperationCall) -> Tensor:
    """What moves of a tensor in flat shards: rows of equal parts of all elements, as many as the ranks share evenly."""
    parts = call.num_ranks // gcd(tensor.rows, call.num_ranks)
    return replace(tensor, name=call.result, rows=tensor.rows * parts, cols=tensor.cols // parts, shard=Shard.ROWS)


def _from_first(call: OperationCall) -> CallResult:
    (tensor,) = call.tensors
    check_whole(tensor, f"{call.operation.name} moves what rank 0 holds in full")
    parts = parts_of(call, tensor)
    moved = replace(parts.moved, shard=Shard.NONE)
    return CallResult(replace(tensor, name=call.result), moved=moved, in_parts=parts)


ALL_GATHER = CollectiveOperation(
    name="all_gather",
    example="all_gather(x)",
    infer=_gathered,
    result_suffix="gathered",
    alone=Pattern.ALL_GATHER,
    before_kernel=Pattern.AG_GEMM,
    independent_kernel=Pattern.GEMM_BESIDE_AG,
)
BROADCAST = CollectiveOperation(name="broadcast", example="broadcast(x)", infer=_from_first, alone=Pattern.BROADCAST)
SEND_RECV = CollectiveOperation(name="send_recv", example="send_recv(x)", infer=_from_first, alone=Pattern.SEND_RECV)


def _summed(call: OperationCall) -> Tensor:
    """The tensor of which every rank holds a part of the sum."""
    (operand,), (tensor,) = call.operands, call.tensors
    check_scales(call, tensor.dtype)
    opaque = isinstance(operand.made_by, KernelOperation) and operand.made_by.opaque
    if operand.made_by is not None and not operand.partial and not opaque:
        hint = "shard the inner dimension: x by cols and w by rows"
        raise not_simulated(f"{call.operation.name} needs partial sums to add", hint)
    if operand.made_by is None or opaque:
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
