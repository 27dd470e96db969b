"""Collectives that copy: ``all_gather(x)``, ``broadcast(x)`` and ``send_recv(x)``.

An all_gather brings rows of all ranks side by side to every rank, the others what rank 0 holds to all or to rank 1.
"""

from dataclasses import replace
from math import gcd

from ..tensors import Pattern, Shard, Tensor
from .base import CallResult, CollectiveOperation, OperationCall, mismatch
from .checks import check_blocks, check_whole, parts_of


def _infer(call: OperationCall) -> CallResult:
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


OPERATION = CollectiveOperation(
    name="all_gather",
    example="all_gather(x)",
    infer=_infer,
    result_suffix="gathered",
    alone=Pattern.ALL_GATHER,
    before_kernel=Pattern.AG_GEMM,
    independent_kernel=Pattern.GEMM_BESIDE_AG,
)
BROADCAST = CollectiveOperation(name="broadcast", example="broadcast(x)", infer=_from_first, alone=Pattern.BROADCAST)
SEND_RECV = CollectiveOperation(name="send_recv", example="send_recv(x)", infer=_from_first, alone=Pattern.SEND_RECV)
