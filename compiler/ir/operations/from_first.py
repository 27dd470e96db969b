"""``broadcast(x)`` and ``send_recv(x)``: what rank 0 holds, on every rank or on rank 1."""

from dataclasses import replace

from ..tensors import Pattern, Shard
from .base import CallResult, CollectiveOperation, OperationCall
from .checks import check_whole, parts_of


def _infer(call: OperationCall) -> CallResult:
    (tensor,) = call.tensors
    check_whole(tensor, f"{call.operation.name} moves what rank 0 holds in full")
    parts = parts_of(call, tensor)
    moved = replace(parts.moved, shard=Shard.NONE)
    return CallResult(replace(tensor, name=call.result), moved=moved, in_parts=parts)


BROADCAST = CollectiveOperation(name="broadcast", example="broadcast(x)", infer=_infer, alone=Pattern.BROADCAST)
SEND_RECV = CollectiveOperation(name="send_recv", example="send_recv(x)", infer=_infer, alone=Pattern.SEND_RECV)
