"""Constants of a profile fitted to measured times by bounded robust least squares.

Residuals are logarithms of predicted over measured time, so that a large and a small kernel count alike. The loss is
soft L1 (``scipy.optimize.least_squares``), which a few wild rows do not bend, and every constant is held to where it
started by a weak prior, so that what the rows do not determine stays where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from ....compiler.ir import Gpu
from .constants import Constant

Floats = npt.NDArray[np.float64]
LogTimes = Callable[[Floats], Floats]
"""Natural logarithms of predicted times [R] for constants in us, GB/s and plain shares."""

Jacobian = Callable[[Floats], Floats]
"""Their derivatives [R, C] by the constants."""

NOISE = 0.05
"""Residuals above this count linearly: about the scatter between two measurements of one GEMM."""

FENCE = 0.002
"""How softly constants that must not pass each other are kept apart, in ln."""

BOUND = 0.005
"""What is this near to a bound is at it."""

WEAK = 0.5
"""A relative standard error above this says that the rows hardly determine a constant."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A constant after a fit, rounded to what is printed; ``relative_error`` is its standard error, maybe infinite."""

    constant: Constant
    before: float
    value: Fraction
    relative_error: float
    at_bound: bool

    @property
    def undetermined(self) -> bool:
        """Whether the rows hardly determine it, so that it stays near where it was."""
        return not self.relative_error <= WEAK

    @property
    def weak(self) -> bool:
        """Whether it is undetermined or at a bound."""
        return self.at_bound or self.undetermined

    @property
    def text(self) -> str:
        """The value with its unit, as in the language."""
        return self.constant.written(float(self.value))


def put_all(gpu: Gpu, found: Sequence[Fitted]) -> Gpu:
    """The profile with all these constants."""
    return reduce(lambda profile, each: each.constant.put(profile, each.value), found, gpu)


def put_back(gpu: Gpu, found: Sequence[Fitted]) -> Gpu:
    """The profile with the constants from which the fit started."""
    return reduce(lambda profile, each: each.constant.put(profile, Fraction(each.before)), found, gpu)


def fit(
    constants: Sequence[Constant],
    starts: Sequence[Sequence[float]],
    predict: LogTimes,
    measured_us: Floats,
    jacobian: Jacobian | None = None,
    order: Sequence[tuple[int, int]] = (),
) -> tuple[Fitted, ...]:
    """Constants that fit ``measured_us`` [R] best.

    Parameters
    ----------
    starts
        One or more sets of constants to start from; the first is what the prior holds to. The best end counts.
    predict, jacobian
        The model. Without a Jacobian differences are taken.
    order
        Pairs of indices of constants; the first of a pair is at most the second.
    """
    scale = _Scale(constants)
    fence = np.zeros((len(order), len(constants)))
    for row, (smaller, larger) in enumerate(order):
        fence[row, smaller], fence[row, larger] = 1, -1
    widths = np.array([each.width for each in constants])
    logs, prior = np.log(measured_us), scale.inward(np.array(starts[0], dtype=np.float64))

    def residuals(inner: Floats) -> Floats:
        off = (predict(scale.outward(inner)) - logs) / NOISE
        return np.concatenate([off, (inner - prior) / widths, np.maximum(0, fence @ inner) / FENCE])

    def derivatives(inner: Floats) -> Floats:
        beyond = fence * (fence @ inner > 0)[:, None]
        return np.vstack([_slopes(scale, inner, predict, jacobian) / NOISE, np.diag(1 / widths), beyond / FENCE])

    ends = [
        least_squares(
            residuals, scale.inward(np.array(start, dtype=np.float64)), derivatives, scale.bounds, loss="soft_l1"
        )
        for start in starts
    ]
    best = min(ends, key=lambda end: float(end.cost))
    errors = _standard_errors(_slopes(scale, best.x, predict, jacobian), residuals(best.x)[: len(logs)] * NOISE)
    values = scale.outward(best.x)
    held = {index for pair in order if values[pair[0]] >= values[pair[1]] * (1 - BOUND) for index in pair}
    for smaller, larger in order:
        values[smaller] = min(values[smaller], values[larger])
    return tuple(
        Fitted(
            constant=constant,
            before=before,
            value=constant.rounded(float(value)),
            relative_error=float(error),
            at_bound=index in held or _at_bound(constant, float(value)),
        )
        for index, (constant, before, value, error) in enumerate(zip(constants, starts[0], values, errors, strict=True))
    )


class _Scale:
    """Constants as the fit sees them: logarithms, but for those that may be near zero."""

    def __init__(self, constants: Sequence[Constant]) -> None:
        self._plain = np.array([each.plain for each in constants])
        self._low, self._high = (np.array([getattr(each, end) for each in constants]) for end in ("low", "high"))
        self.bounds = self._raw(self._low), self._raw(self._high)

    def inward(self, values: Floats) -> Floats:
        """Constants to what is fitted, a little inside the bounds, as the solver wants its start."""
        low, high = self.bounds
        margin = 1e-6 * (high - low)
        inner: Floats = np.clip(self._raw(np.clip(values, self._low, self._high)), low + margin, high - margin)
        return inner

    def outward(self, inner: Floats) -> Floats:
        """What is fitted to constants."""
        return np.where(self._plain, inner, np.exp(np.where(self._plain, 0.0, inner)))

    def stretch(self, values: Floats) -> Floats:
        """Derivatives of constants by what is fitted."""
        return np.where(self._plain, 1.0, values)

    def _raw(self, values: Floats) -> Floats:
        return np.where(self._plain, values, np.log(np.where(self._plain, 1.0, values)))


def _slopes(scale: _Scale, inner: Floats, predict: LogTimes, jacobian: Jacobian | None) -> Floats:
    """Derivatives of the logarithms of all times [R, C] by what is fitted."""
    if jacobian is not None:
        values = scale.outward(inner)
        return jacobian(values) * scale.stretch(values)
    return differences(lambda at: predict(scale.outward(at)), inner)


def differences(function: LogTimes, at: Floats, step: float = 1e-5) -> Floats:
    """Central differences [R, C] of ``function``."""
    moves = np.eye(len(at)) * step
    columns = [(function(at + move) - function(at - move)) / (2 * step) for move in moves]
    return np.stack(columns, axis=1)


def _standard_errors(slopes: Floats, residuals: Floats) -> Floats:
    """Standard errors from the rows alone, without the prior; infinite in directions that no row determines."""
    freedom = max(1, len(residuals) - slopes.shape[1])
    _, singular, axes = np.linalg.svd(slopes, full_matrices=False)
    if len(singular) < slopes.shape[1]:
        return np.full(slopes.shape[1], np.inf)
    with np.errstate(divide="ignore"):
        spread = np.where(singular > 1e-9 * singular[0], 1 / singular, np.inf)
    weights = np.where(np.abs(axes) > 1e-6, axes, 0.0)
    with np.errstate(invalid="ignore"):
        variances = np.nansum((weights * spread[:, None]) ** 2, axis=0)
    errors: Floats = np.sqrt(variances * float(residuals @ residuals) / freedom)
    return errors


def _at_bound(constant: Constant, value: float) -> bool:
    return value <= constant.low * (1 + BOUND) or value >= constant.high * (1 - BOUND)
