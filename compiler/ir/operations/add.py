"""``add(x, y)``: two tensors of one shape, element by element, alone on one rank."""

from dataclasses import dataclass
from typing import ClassVar

from ..tensors import DType, Shard, Tensor
from .base import CallResult, KernelOperation, OperationCall, mismatch
from .checks import lone_tensors
from .kernel_shape import KernelShape


@dataclass(frozen=True, slots=True)
class ElementwiseShape(KernelShape):
    """One output of ``num_elements`` from ``num_inputs`` inputs of that size, element by element.

    Shapes of other elementwise operations derive from it, and then run by the same work model.
    """

    operation: ClassVar[str] = "add"

    num_elements: int
    num_inputs: int
    dtype: DType

    @property
    def flops(self) -> int:
        """Operations: one for each input after the first, at least one for each element."""
        return self.num_elements * max(1, self.num_inputs - 1)

    @property
    def operand_bytes(self) -> int:
        """All inputs."""
        return self.num_inputs * self.output_bytes

    @property
    def output_bytes(self) -> int:
        """As large as one input."""
        return self.dtype.bytes_of(self.num_elements)


def _infer(call: OperationCall) -> CallResult:
    x, y = lone_tensors(call)
    if (x.rows, x.cols) != (y.rows, y.cols):
        raise mismatch(f"{x.name} is [{x.rows}, {x.cols}] and {y.name} is [{y.rows}, {y.cols}]")
    output = Tensor(call.result, x.dtype, x.rows, x.cols, Shard.NONE)
    return CallResult(output, ElementwiseShape(x.rows * x.cols, 2, x.dtype))


OPERATION = KernelOperation(name="add", example="add(x, y)", infer=_infer, num_tensors=(2, 2))
