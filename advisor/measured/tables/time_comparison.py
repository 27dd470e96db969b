"""Measured and predicted times of a fused kernel and of its serial partner, and their speedups."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class MeasuredPair(Protocol):
    """The measured times of a fused kernel and of its partner, None if the table has none."""

    @property
    def fused_us(self) -> float:
        """The time of the fused kernel."""

    @property
    def serial_us(self) -> float | None:
        """The time of its partner."""


Row = TypeVar("Row", bound=MeasuredPair)


@dataclass(frozen=True, slots=True)
class TimeComparison(Generic[Row]):
    """One row, with the predicted times of its partner and of the fused kernel."""

    row: Row
    serial_us: float
    fused_us: float

    @property
    def measured(self) -> float:
        """The measured speedup; without a partner that over its predicted time."""
        return (self.row.serial_us or self.serial_us) / self.row.fused_us

    @property
    def predicted(self) -> float:
        """The predicted speedup."""
        return self.serial_us / self.fused_us

    @property
    def error(self) -> float:
        """Signed relative error of the predicted speedup, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def serial_error(self) -> float:
        """Signed relative error of the predicted time of the partner, in percent; 0 without one."""
        return 100 * (self.serial_us / (self.row.serial_us or self.serial_us) - 1)

    @property
    def fused_error(self) -> float:
        """Signed relative error of the predicted time of the fused kernel, in percent."""
        return 100 * (self.fused_us / self.row.fused_us - 1)
