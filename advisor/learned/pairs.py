"""Features of a structure in a situation, for all structures of a library at once: what the trees are asked about."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .pipeline import pipeline_times
from .shapes import KNOBS, Shapes
from .situation import Situation

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
