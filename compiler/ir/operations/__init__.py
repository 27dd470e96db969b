"""Operations of a workload: a call in, its result and the kernel or the moved tensor of one rank out.

A new one is a file, a line here, and a work model in the simulator unless it runs as one that is there.
"""

from . import (
    add,
    all_gather,
    all_to_all,
    attention,
    attention_back,
    batched_gemm,
    gemm,
    gemv,
    grouped_gemm,
    reductions,
    routing,
    row_wise,
)
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    CollectiveOperation,
    Exchange,
    KernelOperation,
    Operand,
    Operation,
    OperationCall,
    OperationError,
)

OPERATIONS: tuple[KernelOperation | CollectiveOperation, ...] = (
    gemm.OPERATION,
    gemv.OPERATION,
    grouped_gemm.OPERATION,
    batched_gemm.OPERATION,
    attention.OPERATION,
    attention_back.OPERATION,
    add.OPERATION,
    *row_wise.OPERATIONS,
    all_gather.OPERATION,
    reductions.REDUCE_SCATTER,
    reductions.ALL_REDUCE,
    all_to_all.OPERATION,
    all_gather.BROADCAST,
    all_gather.SEND_RECV,
    routing.DISPATCH,
    routing.COMBINE,
)

__all__ = [
    "OPERATIONS",
    "CallArgument",
    "CallArgumentKind",
    "CollectiveOperation",
    "Exchange",
    "KernelOperation",
    "CallResult",
    "Operand",
    "Operation",
    "OperationCall",
    "OperationError",
]
