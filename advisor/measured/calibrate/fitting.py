"""Constants of a profile fitted to measured times by bounded robust least squares.

Residuals are logarithms of predicted over measured time, so that a large and a small kernel count alike. The loss is
soft L1 (``scipy.optimize.least_squares``), which is robust to outliers. A weak prior holds every constant to its start,
so that constants that the rows do not determine keep their values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from ....compiler.ir import TICKS_PER_US, TYPES_WITH_CONSTANTS, DType, TypedModel
from ....compiler.text.units import exact_bytes_text, round_half_up

Profile = TypeVar("Profile")
"""What constants are of: a GPU, or a method of an implementation."""

_TENTH = Decimal("0.1")
_FACTORS = {"ns": Fraction(1, 1000), "TB/s": Fraction(1000), "%": Fraction(1, 100)}


class ConstantUnit(Enum):
    """The unit of a constant during a fit."""

    TIME = "us"
    RATE = "GB/s"
    SHARE = "%"
    NUMBER = ""
    SIZE = "B"

    @property
    def of_profile(self) -> int:
        """The unit in those of the profile, ticks or bytes per second."""
        return {ConstantUnit.TIME: TICKS_PER_US, ConstantUnit.RATE: 10**9}.get(self, 1)

    @property
    def digits(self) -> int:
        """Number of significant digits that are written."""
        return 4 if self in (ConstantUnit.TIME, ConstantUnit.RATE) else 3


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: its path in the language, its attributes in a profile, and its bounds in us, GB/s or shares.

    ``plain`` constants may be near zero and are fitted directly, others as logarithms. ``width`` is the width of the
    prior around the start, in ln or in plain numbers.
    """

    path: str
    attributes: tuple[str, ...]
    unit: ConstantUnit
    low: float
    high: float
    plain: bool = False
    width: float = 0.7

    @property
    def name(self) -> str:
        """The name within its block of the language."""
        return self.path.rpartition(".")[2]

    def of(self, profile: object) -> float:
        """Return the constant of a profile."""
        held: Any = profile
        for name in self.attributes:
            held = _held(held, name)
        return float(Fraction(held) / self.unit.of_profile)

    def put(self, profile: Profile, value: Fraction) -> Profile:
        """Return the profile with another value of the constant."""
        whole = self.unit in (ConstantUnit.TIME, ConstantUnit.RATE, ConstantUnit.SIZE)
        number = round_half_up(value * self.unit.of_profile) if whole else value
        changed: Profile = _put(profile, self.attributes, number)
        return changed

    def written(self, value: float) -> str:
        """Return ``value`` with its unit as a person would write it, with at most ``digits`` digits."""
        if self.unit is ConstantUnit.SIZE:
            return exact_bytes_text(round(value))
        amount, unit = Decimal(value), ""
        if self.unit is ConstantUnit.TIME:
            amount, unit = (amount * 1000, "ns") if 0 < value < 0.1 else (amount, "us")
        elif self.unit is ConstantUnit.RATE:
            amount, unit = (amount / 1000, "TB/s") if value >= 1000 else (amount, "GB/s")
        elif self.unit is ConstantUnit.SHARE:
            amount, unit = amount * 100, "%"
        rounded = amount.quantize(_TENTH) if self.plain else _rounded(amount, self.unit.digits)
        return f"{rounded:f} {unit}".strip()

    def rounded(self, value: float) -> Fraction:
        """Return the exact value of the written text, in the units of the fit."""
        if self.unit is ConstantUnit.SIZE:
            return Fraction(round(value))
        number, _, unit = self.written(value).partition(" ")
        return Fraction(number) * _FACTORS.get(unit, 1)


def _rounded(amount: Decimal, digits: int) -> Decimal:
    """Return ``amount`` with ``digits`` significant digits, without trailing zeros."""
    exact = amount.quantize(Decimal(1).scaleb(amount.adjusted() - digits + 1), ROUND_HALF_EVEN)
    return Decimal(f"{exact.normalize():f}")


def _put(thing: Any, attributes: Sequence[str], value: object) -> Any:
    """Return a frozen dataclass with one nested field replaced."""
    name, *deeper = attributes
    return replace(thing, **{name: _put(_held(thing, name), deeper, value) if deeper else value})


def _held(thing: Any, name: str) -> Any:
    """Return a part of a profile; for constants of a type that it does not have those that serve."""
    held = getattr(thing, name)
    if held is None and isinstance(thing, TypedModel):
        return thing.of(DType(name)).with_types(dict.fromkeys(TYPES_WITH_CONSTANTS))
    return held


Floats = npt.NDArray[np.float64]
LogTimes = Callable[[Floats], Floats]
"""Natural logarithms of predicted times [R] for constants in us, GB/s and plain shares."""

Jacobian = Callable[[Floats], Floats]
"""Their derivatives [R, C] by the constants."""

NOISE = 0.05
"""Residuals above this count linearly; about the scatter between two measurements of one GEMM."""

ORDER_WIDTH = 0.002
"""Width of the penalty on constants that violate their order, in ln."""

BOUND_TOLERANCE = 0.005
"""Relative distance from a bound below which a constant counts as at the bound."""

MAX_RELATIVE_ERROR = 0.5
"""Relative standard error above which the rows hardly determine a constant."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A constant after a fit, rounded as it is printed; ``relative_error`` is its standard error, possibly infinite."""

    constant: Constant
    before: float
    value: Fraction
    relative_error: float
    at_bound: bool

    @property
    def undetermined(self) -> bool:
        """Whether the rows hardly determine the constant, so that it stays near its start."""
        return not self.relative_error <= MAX_RELATIVE_ERROR

    @property
    def weak(self) -> bool:
        """Whether the constant is undetermined or at a bound."""
        return self.at_bound or self.undetermined

    @property
    def text(self) -> str:
        """The value with its unit, as in the language."""
        return self.constant.written(float(self.value))


def with_values(profile: Profile, constants: Sequence[Constant], values: Sequence[float | Fraction]) -> Profile:
    """Return the profile with these values of the constants."""
    for constant, value in zip(constants, values, strict=True):
        profile = constant.put(profile, Fraction(value))
    return profile


def put_all(profile: Profile, fitted: Sequence[Fitted]) -> Profile:
    """Return the profile with the fitted constants."""
    return with_values(profile, [one.constant for one in fitted], [one.value for one in fitted])


def fit(
    constants: Sequence[Constant],
    starts: Sequence[Sequence[float]],
    predict: LogTimes,
    measured_us: Floats,
    jacobian: Jacobian | None = None,
    order: Sequence[tuple[int, int]] = (),
) -> tuple[Fitted, ...]:
    """Return the constants that fit ``measured_us`` [R] best.

    Parameters
    ----------
    starts
        One or more sets of constants to start from; the prior is around the first. The best result is returned.
    predict, jacobian
        The model. Without a Jacobian finite differences are used.
    order
        Pairs of indices of constants; the first of a pair is at most the second.
    """
    scale = _Scale(constants)
    fence = np.zeros((len(order), len(constants)))
    for row, (smaller, larger) in enumerate(order):
        fence[row, smaller], fence[row, larger] = 1, -1
    widths = np.array([constant.width for constant in constants])
    logs, prior = np.log(measured_us), scale.inward(np.array(starts[0], dtype=np.float64))

    def residuals(inner: Floats) -> Floats:
        off = (predict(scale.outward(inner)) - logs) / NOISE
        return np.concatenate([off, (inner - prior) / widths, np.maximum(0, fence @ inner) / ORDER_WIDTH])

    def derivatives(inner: Floats) -> Floats:
        violated = fence * (fence @ inner > 0)[:, None]
        slopes = _slopes(scale, inner, predict, jacobian)
        return np.vstack([slopes / NOISE, np.diag(1 / widths), violated / ORDER_WIDTH])

    ends = [
        least_squares(
            residuals, scale.inward(np.array(start, dtype=np.float64)), derivatives, scale.bounds, loss="soft_l1"
        )
        for start in starts
    ]
    best = min(ends, key=lambda end: float(end.cost))
    errors = _standard_errors(_slopes(scale, best.x, predict, jacobian), residuals(best.x)[: len(logs)] * NOISE)
    values = scale.outward(best.x)
    held = {index for pair in order if values[pair[0]] >= values[pair[1]] * (1 - BOUND_TOLERANCE) for index in pair}
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
    """Conversion between constants and fitted variables: logarithms, except for plain constants."""

    def __init__(self, constants: Sequence[Constant]) -> None:
        self._plain = np.array([constant.plain for constant in constants])
        self._low, self._high = (np.array([getattr(one, end) for one in constants]) for end in ("low", "high"))
        self.bounds = self._raw(self._low), self._raw(self._high)

    def inward(self, values: Floats) -> Floats:
        """Convert constants to variables, slightly inside the bounds, as the solver requires of a start."""
        low, high = self.bounds
        margin = 1e-6 * (high - low)
        inner: Floats = np.clip(self._raw(np.clip(values, self._low, self._high)), low + margin, high - margin)
        return inner

    def outward(self, inner: Floats) -> Floats:
        """Convert variables to constants."""
        return np.where(self._plain, inner, np.exp(np.where(self._plain, 0.0, inner)))

    def stretch(self, values: Floats) -> Floats:
        """Return the derivatives of constants by variables."""
        return np.where(self._plain, 1.0, values)

    def _raw(self, values: Floats) -> Floats:
        return np.where(self._plain, values, np.log(np.where(self._plain, 1.0, values)))


def _slopes(scale: _Scale, inner: Floats, predict: LogTimes, jacobian: Jacobian | None) -> Floats:
    """Return the derivatives [R, C] of the logarithms of all times by variables."""
    if jacobian is not None:
        values = scale.outward(inner)
        return jacobian(values) * scale.stretch(values)
    return differences(lambda at: predict(scale.outward(at)), inner)


def differences(function: LogTimes, at: Floats, step: float = 1e-5) -> Floats:
    """Return the central differences [R, C] of ``function``."""
    moves = np.eye(len(at)) * step
    columns = [(function(at + move) - function(at - move)) / (2 * step) for move in moves]
    return np.stack(columns, axis=1)


def _standard_errors(slopes: Floats, residuals: Floats) -> Floats:
    """Return standard errors by the rows without the prior; infinite in directions that no row determines."""
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
    return value <= constant.low * (1 + BOUND_TOLERANCE) or value >= constant.high * (1 - BOUND_TOLERANCE)
