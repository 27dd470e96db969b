"""Operations of a workload: a call in, its result and the kernel or the moved tensor of one rank out.

A new one is a file, a line here, and a work model in the simulator unless it runs as one that is there.
"""

from . import attention, collectives, gemm, grouped_gemm, routing, row_wise
from .base import CallArgument as CallArgument
from .base import CallArgumentKind as CallArgumentKind
from .base import CallResult as CallResult
from .base import CollectiveOperation as CollectiveOperation
from .base import Exchange as Exchange
from .base import KernelOperation as KernelOperation
from .base import Operand as Operand
from .base import Operation as Operation
from .base import OperationCall as OperationCall
from .base import OperationError as OperationError

OPERATIONS: tuple[KernelOperation | CollectiveOperation, ...] = (
    gemm.OPERATION,
    gemm.GEMV,
    grouped_gemm.OPERATION,
    gemm.BATCHED,
    attention.OPERATION,
    attention.BACK,
    *row_wise.OPERATIONS,
    row_wise.OPERATION,
    collectives.ALL_GATHER,
    collectives.REDUCE_SCATTER,
    collectives.ALL_REDUCE,
    collectives.OPERATION,
    collectives.BROADCAST,
    collectives.SEND_RECV,
    routing.DISPATCH,
    routing.COMBINE,
)
