"""``reduce_scatter(x)``: the sum of what all ranks hold, row block r of it on rank r. ``all_reduce(x)``: all on all."""

from dataclasses import replace

from ..workloads.pattern import Pattern
from ..workloads.tensors import Shard
from .base import CallResult, CollectiveOperation, OperationCall, not_simulated
from .checks import check_rows, check_whole


def _infer(call: OperationCall, result: Shard) -> CallResult:
    (operand,), (tensor,) = call.operands, call.tensors
    if operand.made_by is not None and not operand.partial:
        hint = "shard the inner dimension: x by cols and w by rows"
        raise not_simulated(f"{call.operation.name} needs partial sums to add", hint)
    if operand.made_by is None:
        check_whole(tensor, f"{call.operation.name} adds what every rank holds in full")
    check_rows(call, tensor)
    return CallResult(replace(tensor, name=call.result, shard=result), moved=replace(tensor, shard=Shard.ROWS))


def _scattered(call: OperationCall) -> CallResult:
    return _infer(call, Shard.ROWS)


def _everywhere(call: OperationCall) -> CallResult:
    return _infer(call, Shard.NONE)


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
