"""The parts of a profile that are fitted one by one: measured rows of one kind, their constants, and the model."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from ....compiler.ir import Gpu
from .constants import Constant
from .fitting import Fitted, Floats, fit

HELD_OUT_DIVISOR = 5
"""One of this number of rows is held out of the fit."""

ANY_ROWS_DIVISOR = 5
"""One of this number of sampled rows is any row, if some rows count first."""


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One measured value: its error is summed up under ``group``, and ``key`` identifies what was measured.

    The model is mainly used for rows that are ``first``; a fit takes more of them than of others.
    """

    group: str
    key: tuple[int | str, ...]
    measured: float
    file: str
    first: bool = False


Predict = Callable[[Gpu, Sequence[FittedRow]], Floats]
Fit = Callable[[Gpu, Gpu, Sequence[FittedRow]], tuple[Fitted, ...]]


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """Rows of one kind with their model.

    ``predict`` returns the values of rows by a profile; ``fit`` takes a profile, the profile whose constants are the
    start, and rows. ``num_constants`` is the number of fitted constants.
    """

    name: str
    rows: tuple[FittedRow, ...]
    predict: Predict
    fit: Fit
    num_constants: int


def parted(rows: Sequence[FittedRow], sample: int, seed: int) -> tuple[tuple[FittedRow, ...], tuple[FittedRow, ...]]:
    """Return at most ``sample`` rows to fit, and the held-out fifth; the order of ``rows`` does not matter.

    Up to four fifths of the sample are rows that count ``first``, the rest any rows.
    """
    shuffled = sorted(rows, key=lambda row: (row.group, row.key))
    random.Random(seed).shuffle(shuffled)
    num_held = len(shuffled) // HELD_OUT_DIVISOR
    held, rest = shuffled[:num_held], shuffled[num_held:]
    any_rows = sample // ANY_ROWS_DIVISOR if any(row.first for row in rest) else sample
    taken, left = rest[:any_rows], rest[any_rows:]
    left.sort(key=lambda row: not row.first)
    return (*taken, *left[: sample - len(taken)]), tuple(held)


def fit_rows(
    constants: Sequence[Constant],
    gpu: Gpu,
    start: Gpu,
    rows: Sequence[FittedRow],
    predict: Predict,
    order: Sequence[tuple[int, int]] = (),
) -> tuple[Fitted, ...]:
    """Fit by the closed form: every trial is a profile, whose values ``predict`` returns."""

    def logs(values: Floats) -> Floats:
        trial = reduce(
            lambda profile, trial: trial[0].put(profile, Fraction(trial[1])),
            zip(constants, values.tolist(), strict=True),
            gpu,
        )
        return np.log(predict(trial, rows))

    measured = np.array([row.measured for row in rows])
    return fit(constants, [[constant.of(start) for constant in constants]], logs, measured, order=order)
