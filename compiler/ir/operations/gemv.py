"""``gemv(w, x)``: a matrix [n, k] times a vector [k, 1], alone on one rank."""

from dataclasses import dataclass
from typing import ClassVar

from ..tensors import DType, Shard, Tensor
from .base import CallResult, KernelOperation, OperationCall, mismatch
from .checks import check_inner, check_peak, lone_tensors
from .kernel_shape import KernelShape


@dataclass(frozen=True, slots=True)
class GemvShape(KernelShape):
    """Matrix times vector, y[n] = W[n, k] x[k], for each of a few vectors (``batch``) at once."""

    operation: ClassVar[str] = "gemv"

    n: int
    k: int
    dtype: DType
    batch: int = 1

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.batch * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """The matrix and the vectors."""
        return self.dtype.bytes_of((self.n + self.batch) * self.k)

    @property
    def output_bytes(self) -> int:
        """A vector for each of those read."""
        return self.dtype.bytes_of(self.batch * self.n)


def _infer(call: OperationCall) -> CallResult:
    w, x = lone_tensors(call)
    if x.cols != 1:
        message = f"gemv multiplies a vector, but {x.name} has {x.cols} columns"
        raise mismatch(message, "use gemm for more than one column")
    check_inner(w.name, w.cols, x)
    check_peak(call.gpu, w.dtype)
    return CallResult(Tensor(call.result, w.dtype, w.rows, 1, Shard.NONE), GemvShape(w.rows, w.cols, w.dtype))


OPERATION = KernelOperation(name="gemv", example="gemv(w, x)", infer=_infer, num_tensors=(2, 2))
