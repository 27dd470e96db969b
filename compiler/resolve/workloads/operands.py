"""Operands of a workload's operations, what the operations make, and which of their combinations are simulated."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...codes import Code
from ...ir import GemmShape, KernelShape, Pattern, System, Tensor, Then
from ...text.diagnostics import Report, Stopped
from ...text.source import Span
from .tensors import TensorReader

COMBINATIONS = (
    "gemm; gemv; grouped_gemm; attention; add; all_gather; reduce_scatter; all_reduce; all_to_all; broadcast; "
    "send_recv; gemm, grouped_gemm or attention of a gathered input or of an all_to_all; all_to_all of what one of "
    "them makes, and a gemm of that, or a grouped_gemm where a gemm made it; reduce_scatter or all_reduce of a gemm "
    "whose inner dimension is sharded; a gemm beside an all_gather or an all_to_all"
)
PATTERNS: Mapping[tuple[str, ...], Pattern] = {
    ("gemm",): Pattern.GEMM,
    ("gemv",): Pattern.KERNEL,
    ("grouped_gemm",): Pattern.KERNEL,
    ("attention",): Pattern.KERNEL,
    ("add",): Pattern.KERNEL,
    ("all_gather",): Pattern.ALL_GATHER,
    ("reduce_scatter",): Pattern.REDUCE_SCATTER,
    ("all_reduce",): Pattern.ALL_REDUCE,
    ("all_to_all",): Pattern.ALL_TO_ALL,
    ("broadcast",): Pattern.BROADCAST,
    ("send_recv",): Pattern.SEND_RECV,
    ("all_gather", "gemm"): Pattern.AG_GEMM,
    ("gemm", "reduce_scatter"): Pattern.GEMM_RS,
    ("gemm", "all_reduce"): Pattern.GEMM_AR,
    ("all_to_all", "gemm"): Pattern.A2A_GEMM,
    ("all_gather", "grouped_gemm"): Pattern.AG_GEMM,
    ("all_to_all", "grouped_gemm"): Pattern.A2A_GEMM,
    ("all_gather", "attention"): Pattern.AG_GEMM,
    ("all_to_all", "attention"): Pattern.A2A_GEMM,
    ("gemm", "all_to_all"): Pattern.GEMM_A2A,
    ("grouped_gemm", "all_to_all"): Pattern.GEMM_A2A,
    ("attention", "all_to_all"): Pattern.GEMM_A2A,
    ("gemm", "all_to_all", "gemm"): Pattern.GEMM_A2A_GEMM,
    ("gemm", "all_to_all", "grouped_gemm"): Pattern.GEMM_A2A_GEMM,
    ("grouped_gemm", "all_to_all", "gemm"): Pattern.GEMM_A2A_GEMM,
    ("attention", "all_to_all", "gemm"): Pattern.GEMM_A2A_GEMM,
}
# Two operations that need nothing of each other, in any order.
BESIDE: Mapping[frozenset[str], Pattern] = {
    frozenset({"gemm", "all_gather"}): Pattern.GEMM_BESIDE_AG,
    frozenset({"gemm", "all_to_all"}): Pattern.GEMM_BESIDE_A2A,
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and how it came about: declared, or by an operation; ``partial`` if ranks hold terms of a sum."""

    tensor: Tensor
    made_by: str = ""
    partial: bool = False
    gathered: bool = False


@dataclass(slots=True)
class Making:
    """A workload while its operations are followed; most are fields of ``Workload``.

    ``table`` are the rows of an all_to_all [from][to] where they are said so, even if all ranks send alike.
    """

    system: System
    reader: TensorReader
    report: Report
    order: list[str] = field(default_factory=list)
    moved: Tensor | None = None
    gemm: GemmShape | None = None
    kernel: KernelShape | None = None
    split: tuple[int, ...] = ()
    output: str = ""
    then: Then | None = None
    loads: tuple[tuple[int, ...], ...] = ()
    experts: tuple[tuple[int, ...], ...] = ()
    table: tuple[tuple[int, ...], ...] = ()

    @property
    def received(self) -> tuple[int, ...]:
        """Rows that each rank has after an all_to_all whose loads differ from rank to rank; empty without one."""
        return tuple(map(sum, zip(*self.loads, strict=True)))

    @property
    def busiest(self) -> int:
        """The rank that stands for all: the first of those that get most."""
        return self.received.index(max(self.received)) if self.loads else 0

    def computes(self, shape: GemmShape | KernelShape, output: str) -> None:
        """Note the kernel, or the one behind the collective of another."""
        if self.gemm is not None or self.kernel is not None:
            self.then = Then(shape, output)
        elif isinstance(shape, GemmShape):
            self.gemm, self.output = shape, output
        else:
            self.kernel, self.output = shape, output

    def refused(self, message: str, span: Span, hint: str = "") -> Stopped:
        """Report a combination that is not simulated; to be raised."""
        return self.report.fail(Code.MGS520, message, span, hint or f"Magus simulates: {COMBINATIONS}")

    def misfit(self, message: str, span: Span, hint: str = "") -> Stopped:
        """Report shapes, types or layouts that do not fit; to be raised."""
        return self.report.fail(Code.MGS310, message, span, hint)
