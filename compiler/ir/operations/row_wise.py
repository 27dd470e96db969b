"""``add(x, y)``, ``norm(x)``, ``swiglu(u)``, ``gelu(x)``, what goes back through them, ``cast(x, type=fp8)``.

Each row by itself, alone on one rank. One generic kernel: it reads its tensors once and writes its result once.
``norm(x, rope=64)`` leaves the last columns of x out, those of keys that turn with the position (DeepSeek-V2, arXiv
2405.04434, section 2.1.3). A gelu of what a gemm computes may be the end of that gemm (NVIDIA cuBLASLt,
CUBLASLT_EPILOGUE_GELU); the others are kernels of their own in libraries.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

from ...codes import Code
from ..stopping import Rejection
from ..tensors import DType, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    KernelOperation,
    OperationCall,
    OperationError,
    check_blocks,
    lone_tensors,
    mismatch,
)
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

    def at_rank(self, rows: int, experts: tuple[int, ...], of: int) -> Self:
        """Of each row as many elements."""
        return replace(self, num_elements=self.num_elements * rows // of)


def _add(call: OperationCall) -> CallResult:
    x, y = lone_tensors(call)
    if (x.rows, x.cols) != (y.rows, y.cols):
        raise mismatch(f"{x.name} is [{x.rows}, {x.cols}] and {y.name} is [{y.rows}, {y.cols}]")
    output = Tensor(call.result, x.dtype, x.rows, x.cols, Shard.NONE)
    return CallResult(output, ElementwiseShape(x.rows * x.cols, 2, x.dtype))


ADD = KernelOperation(name="add", example="add(x, y)", infer=_add, num_tensors=(2, 2))


@dataclass(frozen=True, slots=True)
class RowWiseShape(ElementwiseShape):
    """A kernel that reads ``read_bytes`` and writes ``num_elements``, row by row.

    Where it finds the rows of some experts it looks at the choices of all tokens: ``chosen`` are these tokens, and how
    many experts each of them goes to.
    """

    operation: ClassVar[str] = "row_wise"

    read_bytes: int = 0
    chosen: tuple[int, int] = (0, 0)

    @property
    def operand_bytes(self) -> int:
        """All inputs."""
        return self.read_bytes

    def at_rank(self, rows: int, experts: tuple[int, ...], of: int) -> Self:
        """Of each row as many elements and bytes."""
        elements, read = (number * rows // of for number in (self.num_elements, self.read_bytes))
        return replace(self, num_elements=elements, read_bytes=read)


def _infer(call: OperationCall, inputs: tuple[int, ...], output_width: int) -> CallResult:
    """``inputs`` and ``output_width`` are columns of each, in units that are the same for all of a call."""
    tensors, rope = lone_tensors(call), call.arguments.get("rope", 0)
    first = replace(tensors[0], cols=max(0, tensors[0].cols - rope))
    unit = first.cols // inputs[0]
    if not unit:
        raise mismatch(f"{first.name} has {tensors[0].cols} columns, of which {rope} of rope leave none")
    if first.cols % inputs[0]:
        raise mismatch(f"{first.name} has {first.cols} columns, which are not {inputs[0]} equal parts")
    for tensor, width in zip((first, *tensors[1:]), inputs, strict=True):
        if (tensor.rows, tensor.cols) != (first.rows, width * unit):
            what = f"{tensor.name} is [{tensor.rows}, {tensor.cols}], {call.operation.name} needs"
            raise mismatch(f"{what} [{first.rows}, {width * unit}] beside {first.name}")
    is_gradient = len(tensors) > 1
    output = replace(first, name=call.result, cols=output_width * unit + rope * is_gradient)
    check_blocks(f"{call.operation.name}({first.name})", output.dtype, output.cols)
    read = sum(tensor.num_bytes for tensor in (first, *tensors[1:]))
    return CallResult(output, RowWiseShape(output.rows * output.cols, len(tensors), first.dtype, read))


def _row_wise(
    name: str, example: str, inputs: tuple[int, ...], output: int, *, ends_gemm: bool = False
) -> KernelOperation:
    return KernelOperation(
        name=name,
        example=example,
        infer=partial(_infer, inputs=inputs, output_width=output),
        num_tensors=(len(inputs), len(inputs)),
        arguments=(CallArgument("rope", CallArgumentKind.COUNT),) if name.startswith("norm") else (),
        ends=("gemm",) if ends_gemm else (),
    )


def _cast(call: OperationCall) -> CallResult:
    (tensor,) = lone_tensors(call)
    output = replace(tensor, name=call.result, dtype=call.arguments["type"])
    check_blocks(tensor.name, output.dtype, output.cols)
    return CallResult(output, RowWiseShape(output.rows * output.cols, 1, output.dtype, tensor.num_bytes))


CAST = KernelOperation(
    name="cast",
    example="cast(x, type=fp8)",
    infer=_cast,
    arguments=(CallArgument("type", CallArgumentKind.TYPE, required=True),),
)

OPERATIONS = (
    ADD,
    _row_wise("norm", "norm(x)", (1,), 1),
    _row_wise("norm_back", "norm_back(x, dy)", (1, 1), 1),
    _row_wise("swiglu", "swiglu(u)", (2,), 1),
    _row_wise("swiglu_back", "swiglu_back(u, dh)", (2, 1), 2),
    _row_wise("gelu", "gelu(x)", (1,), 1, ends_gemm=True),
    _row_wise("gelu_back", "gelu_back(x, dy)", (1, 1), 1),
    CAST,
)


# ``timed(like, x, y, takes=12 us)``: a kernel of which only the time is known, as a trace of a run has it. Of several
# ranks, ``takes=[12 us, 14 us]``.
#
# What it leaves lies as its first operand does. The others say what it waits for, however they lie and of any type,
# terms of a sum too. It takes no traffic into account: its time has that in it, without what runs beside it.

MOST_READ = 64
"""Tensors that a kernel may wait for."""


@dataclass(frozen=True, slots=True)
class TimedShape(KernelShape):
    """A kernel of ``ticks`` on ``sms`` SMs, all of them if 0, that begins ``after_ticks`` behind what it waits for.

    Where ranks differ, both are those of rank 0, and each rank has its own in the lists.
    """

    operation: ClassVar[str] = "timed"

    ticks: int
    after_ticks: int = 0
    sms: int = 0
    ticks_by_rank: tuple[int, ...] = ()
    after_ticks_by_rank: tuple[int, ...] = ()

    @property
    def ranks_differ(self) -> bool:
        """Whether each rank has its own times."""
        return bool(self.ticks_by_rank)

    def of_rank(self, rank: int) -> Self:
        """The kernel of one rank."""
        if not self.ranks_differ:
            return self
        own = self.ticks_by_rank[rank], self.after_ticks_by_rank[rank]
        return self if own == (self.ticks, self.after_ticks) else replace(self, ticks=own[0], after_ticks=own[1])

    @property
    def flops(self) -> int:
        """Not known."""
        return 0

    @property
    def operand_bytes(self) -> int:
        """Not known: they are part of its time."""
        return 0

    @property
    def output_bytes(self) -> int:
        """Not known: they are part of its time."""
        return 0


def _timed(call: OperationCall) -> CallResult:
    sms = call.arguments.get("sms", 0)
    if sms > call.gpu.sms:
        message = f"{call.gpu.name} has {call.gpu.sms} SMs, got {sms}"
        raise OperationError(Rejection(Code.MGS307, message, "leave sms out: all of them"))
    takes, after = call.arguments["takes"], call.arguments.get("after", (0,))
    ranks = max(len(takes), len(after))
    by_rank = takes * (ranks // len(takes)), after * (ranks // len(after))
    differ = len(set(zip(*by_rank, strict=True))) > 1
    shape = TimedShape(takes[0], after[0], sms, *(by_rank if differ else ()))
    return CallResult(replace(call.tensors[0], name=call.result), shape)


OPERATION = KernelOperation(
    name="timed",
    example="timed(x, takes=12 us)",
    infer=_timed,
    num_tensors=(1, MOST_READ),
    arguments=(
        CallArgument("takes", CallArgumentKind.TIMES, required=True),
        CallArgument("after", CallArgumentKind.TIMES),
        CallArgument("sms", CallArgumentKind.COUNT),
    ),
    opaque=True,
)
