"""``all_gather(x)``: rows of all ranks side by side, on every rank."""

from dataclasses import replace

from ..pattern import Pattern
from ..tensors import Shard
from .base import CollectiveOperation, Made, OperationCall, misfit
from .checks import check_declared


def _make(call: OperationCall) -> Made:
    (operand,), (tensor,) = call.operands, call.tensors
    check_declared(call, operand)
    if tensor.shard is not Shard.ROWS:
        hint = f"declare it with 'shard rows': {tensor.name} = tensor ... shard rows"
        raise misfit(f"all_gather joins rows, but {tensor.name} is {tensor.layout}", hint)
    gathered = replace(tensor, name=call.result)
    return Made(gathered, moved=gathered)


OPERATION = CollectiveOperation(
    name="all_gather",
    example="all_gather(x)",
    make=_make,
    result_suffix="gathered",
    alone=Pattern.ALL_GATHER,
    before_kernel=Pattern.AG_GEMM,
    beside_kernel=Pattern.GEMM_BESIDE_AG,
)
