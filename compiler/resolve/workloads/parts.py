"""The parts of a workload while its calls are followed one by one."""

from dataclasses import dataclass, field

from ...ir import GemmShape, KernelShape, Pattern, Tensor, Then, Workload
from ...ir.operations import CallResult, Exchange, Operation
from ...ir.workloads.rank_parts import RankParts


@dataclass(slots=True)
class WorkloadParts:
    """``calls`` are the operations so far, ``unnamed`` the results of calls inside others; the rest as in Workload."""

    calls: list[Operation] = field(default_factory=list)
    unnamed: list[Tensor] = field(default_factory=list)
    kernel: KernelShape | None = None
    then: Then | None = None
    moved: Tensor | None = None
    output: str = ""
    exchange: Exchange = field(default_factory=Exchange)
    in_parts: RankParts | None = None

    def add(self, result: CallResult) -> None:
        """Take in what a call adds. The first kernel computes the output, whatever moves."""
        name = result.tensor.name
        if result.kernel is not None and self.kernel is None:
            self.kernel, self.output = result.kernel, name
        elif result.kernel is not None:
            self.then = Then(result.kernel, name)
        if result.moved is not None:
            self.moved, self.in_parts, self.output = result.moved, result.in_parts, self.output or name
        if result.exchange is not None:
            self.exchange = result.exchange

    def workload(
        self, name: str, pattern: Pattern, tensors: tuple[Tensor, ...], made: tuple[str, ...], about: str = ""
    ) -> Workload:
        """The workload of that name, with the ``tensors`` of its text and the names of those that calls make."""
        return Workload(
            name=name,
            about=about,
            pattern=pattern,
            tensors=tensors,
            moved=self.moved,
            gemm=self.kernel if isinstance(self.kernel, GemmShape) else None,
            output=self.output,
            kernel=None if isinstance(self.kernel, GemmShape) else self.kernel,
            split=self.exchange.split,
            made=made,
            then=self.then,
            loads=self.exchange.loads if self.in_parts is None else self.in_parts.loads,
            by_columns=self.in_parts is not None and self.in_parts.by_columns,
            experts=self.exchange.experts,
            rank=self.exchange.busiest,
            routed=self.exchange.routing is not None,
        )
