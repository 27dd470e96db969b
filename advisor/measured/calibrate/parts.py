"""What ``magus calibrate`` fits as a whole: measured rows of one kind, the constants behind them, and the model."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from ....compiler.ir import Gpu
from .constants import Constant
from .fitting import Fitted, Floats, fit

HELD_OUT = 5
"""One of so many rows is never seen by a fit."""

ANY_ROWS = 5
"""One of so many rows of a sample is any row where others count first."""


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One measured value: ``group`` is what its error is summed up under, ``key`` what was measured.

    Rows that are ``first`` are what the model is used for; a fit takes more of them than of others.
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

    ``predict`` says what a profile makes of rows, ``fit`` takes a profile, the profile whose constants are the start,
    and rows. ``num_constants`` is how many are fitted.
    """

    name: str
    rows: tuple[FittedRow, ...]
    predict: Predict
    fit: Fit
    num_constants: int


def parted(rows: Sequence[FittedRow], sample: int, seed: int) -> tuple[tuple[FittedRow, ...], tuple[FittedRow, ...]]:
    """Rows to fit, at most ``sample``, and the held-out fifth; the order of ``rows`` does not count.

    Four fifths of the sample are rows that count ``first``, as far as there are so many, the rest any rows.
    """
    shuffled = sorted(rows, key=lambda row: (row.group, row.key))
    random.Random(seed).shuffle(shuffled)
    num_held = len(shuffled) // HELD_OUT
    held, rest = shuffled[:num_held], shuffled[num_held:]
    any_rows = sample // ANY_ROWS if any(row.first for row in rest) else sample
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
    """Fit by the closed form itself: every trial is a profile, and ``predict`` asks the models what it makes of it."""

    def logs(values: Floats) -> Floats:
        trial = reduce(
            lambda profile, each: each[0].put(profile, Fraction(each[1])),
            zip(constants, values.tolist(), strict=True),
            gpu,
        )
        return np.log(predict(trial, rows))

    measured = np.array([row.measured for row in rows])
    return fit(constants, [[constant.of(start) for constant in constants]], logs, measured, order=order)
