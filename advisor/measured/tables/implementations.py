"""Measured and predicted times of implementations, and their speedups over the library."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ....compiler import CompileError
from ....compiler.ir import Rejection
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ...implementations.predict import predict_us
from ...implementations.promise import Promise
from .fused import scenario_on
from .implementation_rows import ImplementationRow
from .time_comparison import TimeComparison

LIBRARY = "torch_nccl"
MARGIN = 0.02
"""An implementation is slower if it takes more than this share longer than the library."""


@dataclass(frozen=True, slots=True)
class ImplementationComparison(TimeComparison[ImplementationRow]):
    """One row, with the predicted times of the implementation and of the library.

    ``resolution`` is the error of predicted speedups that the implementation states, 0 without one.
    """

    resolution: float = 0.0

    @property
    def sign_is_right(self) -> bool:
        """Whether it is predicted to be faster than the library where it is, and slower where it is."""
        return (self.predicted > 1) == (self.measured > 1)

    @property
    def promised(self) -> bool:
        """Whether the predicted gain is beyond the error that the implementation states."""
        return Promise(self.predicted, self.resolution).verdict is Verdict.OVERLAP

    @property
    def slower(self) -> bool:
        """Whether it is measured to be slower than the library."""
        return self.measured < 1 - MARGIN


def implementation_comparisons(
    rows: Sequence[ImplementationRow], advance: Callable[[], None]
) -> Iterator[ImplementationComparison | str]:
    """Yield the prediction of every row, or a text that says why there is none; ``advance`` is called after each."""
    for row in rows:
        yield _compared(row)
        advance()


def _compared(row: ImplementationRow) -> ImplementationComparison | str:
    try:
        scenario = scenario_on(row.gpu, row.ranks, row.dtype, row.part)
    except CompileError as error:
        return f"{row.name}, {row.label}: {str(error).splitlines()[0]}"
    shipped = {each.name: each for each in shipped_implementations(scenario.system)}
    times = [predict_us(scenario, shipped[name]) for name in (LIBRARY, row.name)]
    for us in times:
        if isinstance(us, Rejection):
            return f"{row.label}: {us.message}"
    serial_us, fused_us = (us for us in times if not isinstance(us, Rejection))
    method = shipped[row.name].method(row.part.pattern)
    resolution = float(method.error) if method is not None and method.error is not None else 0.0
    return ImplementationComparison(row, serial_us, fused_us, resolution)
