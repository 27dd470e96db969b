"""How far estimates of proposals are off, as intervals that a share of the searched scenarios is in.

The ranks are those of a conformal prediction: what is drawn alike is in the interval with at least that probability.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

# Share of errors that an interval covers.
COVERED = 0.9

Interval = tuple[float, float]
"""Lower and upper logarithm of a simulated over an estimated figure."""


@dataclass(frozen=True, slots=True)
class Found:
    """Times that a search found; infinite without a search.

    ``estimate_ticks`` is the least estimate, ``picked_ticks`` the simulated time of the plan that has it. Simulated are
    ``best_ticks``, of the fastest plan, and ``serial_ticks``, of the baseline, whose estimate is
    ``serial_estimate_ticks``.
    """

    estimate_ticks: float = math.inf
    picked_ticks: float = math.inf
    best_ticks: float = math.inf
    serial_ticks: float = math.inf
    serial_estimate_ticks: float = math.inf


@dataclass(frozen=True, slots=True)
class EstimateErrors:
    """Intervals of the ``time`` of the schedule with the least estimate, and of its ``gain`` over the baseline.

    It is chosen by estimates, as a proposal is; the baseline is estimated too.
    """

    time: Interval = (0.0, 0.0)
    gain: Interval = (0.0, 0.0)

    @classmethod
    def of(cls, found: Iterable[Found]) -> "EstimateErrors":
        """Return the intervals of what searches ``found``; those of nothing are (0, 0)."""
        searched = [each for each in found if max(astuple(each)) < math.inf]
        times = [math.log(each.picked_ticks / each.estimate_ticks) for each in searched]
        serial = [math.log(each.serial_ticks / each.serial_estimate_ticks) for each in searched]
        gains = [own - time for own, time in zip(serial, times, strict=True)]
        return cls(_conformal(times), _conformal(gains))


NO_ERRORS = EstimateErrors()


def _conformal(errors: Sequence[float]) -> Interval:
    if not errors:
        return (0.0, 0.0)
    ordered = sorted(errors)
    outside = math.floor((1 - COVERED) / 2 * (len(ordered) + 1) + 1e-9)
    low, high = max(0, outside - 1), min(len(ordered) - 1, len(ordered) - outside)
    return ordered[low], ordered[high]
