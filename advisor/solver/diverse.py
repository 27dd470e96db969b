"""A small sample of a large space in which no two choices are alike."""

import numpy as np
import numpy.typing as npt

from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.planning.knobs.execution import KERNEL, TRANSFER
from ...compiler.planning.knobs.structure import CHUNKS, TEMPLATE
from .knobs import Codes, Knobs

# What tells schedules apart most: what moves, in how many pieces and by whom; then how it is carried out.
WEIGHTS = {TEMPLATE: 4, CHUNKS: 2, ENGINE: 2, TRANSFER: 2, KERNEL: 2}


def diverse(knobs: Knobs, codes: Codes, count: int, seed: int = 0) -> Codes:
    """At most ``count`` of ``codes``, in ascending order: the most usual choice of each template, then others.

    Each further one is the farthest from all before it (Gonzalez, 1985) by the weighted number of knobs in which two
    choices differ; ties go by lots, drawn from ``seed``.
    """
    if count >= len(codes):
        return codes
    columns = {knob: knobs.digits(codes, knob) for knob, values in knobs.values.items() if len(values) > 1}
    _, first = np.unique(knobs.digits(codes, TEMPLATE), return_index=True)
    lots = np.random.default_rng(seed).permutation(len(codes))
    nearest = np.full(len(codes), np.iinfo(np.int64).max)
    chosen: list[int] = []
    for place in first[:count].tolist():
        _take(place, chosen, nearest, columns)
    while len(chosen) < count:
        farthest = np.flatnonzero(nearest == nearest.max())
        _take(int(farthest[lots[farthest].argmin()]), chosen, nearest, columns)
    return np.sort(codes[chosen])


def _take(
    place: int,
    chosen: list[int],
    nearest: npt.NDArray[np.int64],
    columns: dict[Knob, npt.NDArray[np.uint16]],
) -> None:
    """Choose a place, and note how far all others are from it; ``nearest`` is the least so far."""
    chosen.append(place)
    distance = np.zeros(len(nearest), np.int64)
    for knob, digits in columns.items():
        distance += WEIGHTS.get(knob, 1) * (digits != digits[place])
    np.minimum(nearest, distance, out=nearest)
