"""``timed(like, x, y, takes=12 us)``: a kernel of which only the time is known, as a trace of a run has it.

What it leaves lies as its first operand does. The others say what it waits for, however they lie and of any type, terms
of a sum too. It takes no traffic into account: its time has that in it, without what runs beside it.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...codes import Code
from ..stopping import Rejection
from .base import CallArgument, CallArgumentKind, CallResult, KernelOperation, OperationCall, OperationError
from .kernel_shape import KernelShape

MOST_READ = 64
"""Tensors that a kernel may wait for."""


@dataclass(frozen=True, slots=True)
class TimedShape(KernelShape):
    """A kernel of ``ticks`` on ``sms`` SMs, all of them if 0, that begins ``after_ticks`` behind what it waits for."""

    operation: ClassVar[str] = "timed"

    ticks: int
    after_ticks: int = 0
    sms: int = 0

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
    shape = TimedShape(call.arguments["takes"], call.arguments.get("after", 0), sms)
    return CallResult(replace(call.tensors[0], name=call.result), shape)


OPERATION = KernelOperation(
    name="timed",
    example="timed(x, takes=12 us)",
    infer=_timed,
    num_tensors=(1, MOST_READ),
    arguments=(
        CallArgument("takes", CallArgumentKind.TIME, required=True),
        CallArgument("after", CallArgumentKind.TIME),
        CallArgument("sms", CallArgumentKind.COUNT),
    ),
    opaque=True,
)
