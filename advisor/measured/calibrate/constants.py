"""Constants that are fitted: their place in a profile, their bounds, and their text.

During a fit times are in us, rates in GB/s, shares and exponents plain numbers, sizes in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from ....compiler.ir import TICKS_PER_US
from ....compiler.text.quantities import exact_bytes_text
from ....compiler.text.units import round_half_up

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
            held = getattr(held, name)
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
    return replace(thing, **{name: _put(getattr(thing, name), deeper, value) if deeper else value})
