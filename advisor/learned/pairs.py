"""Features of a structure in a situation, for all structures of a library at once: what the trees are asked about."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from .pipeline import pipeline_times
from .situation import Situation
from .structure import KNOBS, Shapes

FloatArray = npt.NDArray[np.float64]

# Numbers of the situation that are compared with those of the one that a structure won in.
COMPARED = (
    "log_comm_over_whole", "waves", "log_rows", "log_ranks", "log_whole_us", "event_over_whole", "setup_over_comm",
)  # fmt: skip
PIPELINE = "pipeline"


def names_of_features(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns of ``pair_features`` for situations with these ``names``."""
    compared = (f"{name}_beside_origin" for name in COMPARED)
    return (*names, *KNOBS, PIPELINE, "pipeline_over_best", "distance", *compared)


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """Standard deviations of the numbers of situations, [F]."""

    deviation: FloatArray

    @classmethod
    def of(cls, values: FloatArray) -> "FeatureScale":
        """Return the scale of situations [N, F]; a number that never varies is no distance."""
        deviation = values.std(axis=0)
        return cls(np.where(deviation > 0, deviation, 1.0))

    def apart(self, values: FloatArray, origins: FloatArray) -> FloatArray:
        """Return by how many standard deviations ``values`` [F] are from ``origins`` [P, F], as [P, F]."""
        return np.asarray((values - origins) / self.deviation)


def pair_features(situation: Situation, shapes: Shapes, origins: FloatArray, scale: FeatureScale) -> FloatArray:
    """Return features of P structures in one situation, [P, G]; ``origins`` [P, F] are the situations they won in."""
    times = pipeline_times(situation, shapes)
    apart = scale.apart(situation.values, origins)
    compared = [situation.names.index(name) for name in COMPARED]
    columns = (
        np.broadcast_to(situation.values, origins.shape),
        shapes.knobs,
        times[:, None],
        (times - times.min())[:, None],
        np.sqrt(np.square(apart).mean(axis=1))[:, None],
        apart[:, compared],
    )
    return np.hstack(columns)


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
