"""What a predicted gain may promise: its interval by measured errors, and the verdict that this allows."""

from dataclasses import dataclass

from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.quantities import us_text

MIN_GAIN = 0.02
"""Smallest gain that is worth a change."""

KERNEL_NAMES = ("mkernel", "thunderkittens")
"""Shipped implementations that are written to the limit: what a schedule here would be as a kernel."""

KERNEL_ERROR = 0.11
"""The largest error that they state, of rows that none of their constants was fitted to."""

MOST_ERROR = 0.9
"""Errors beyond this say nothing."""

KERNEL_SHORTEST_US = 73.0
"""The shortest time among their rows."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A predicted speedup. ``error`` is the relative error of such speedups, None if it was not measured.

    ``outside`` says why the error was not measured for the like of this, empty if it was.
    """

    speedup: float
    error: float | None
    outside: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The speedups that the error leaves possible, as (low, high); None if it was not measured."""
        return None if self.error is None else (self.speedup / (1 + self.error), self.speedup / (1 - self.error))

    @property
    def verdict(self) -> Verdict:
        """OVERLAP if the gain is beyond the error, WORTH_TRYING if it is not but is a gain, else SERIAL."""
        if self.speedup <= 1 + MIN_GAIN:
            return Verdict.SERIAL
        if self.error is None or self.outside or self.speedup <= 1 + self.error:
            return Verdict.WORTH_TRYING
        return Verdict.OVERLAP


def kernel_promise(speedup: float, us: float, resolution: float, gain_error: float = 0.0) -> Promise:
    """Return what a kernel for a schedule of ``us`` promises; its error is no less than what the profile resolves.

    The ``gain_error`` of what was estimated and not simulated comes on top.
    """
    shorter = us < KERNEL_SHORTEST_US
    outside = f"kernels written to the limit were measured from {us_text(KERNEL_SHORTEST_US)} on" if shorter else ""
    of_kernel = max(KERNEL_ERROR, resolution)
    return Promise(speedup, min(MOST_ERROR, of_kernel + gain_error * (1 + of_kernel)), outside)
