"""Quantities: exact numbers with a dimension, and the units of the language.

KiB is 1024 bytes, KB 1000; rates are decimal, and Gb/s is an eighth of GB/s. Multiply and add count as two FLOP.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 40
MAX_BITS = 4096


@dataclass(frozen=True, slots=True)
class Dimension:
    """Exponents of the three base units."""

    num_bytes: int = 0
    flops: int = 0
    seconds: int = 0

    def __add__(self, other: "Dimension") -> "Dimension":
        return Dimension(self.num_bytes + other.num_bytes, self.flops + other.flops, self.seconds + other.seconds)

    def __sub__(self, other: "Dimension") -> "Dimension":
        return Dimension(self.num_bytes - other.num_bytes, self.flops - other.flops, self.seconds - other.seconds)

    def __str__(self) -> str:
        return _DIMENSION_NAMES.get(self, "a unit that has no name")

    @property
    def example(self) -> str:
        """A unit of this dimension, to show in a hint."""
        return _EXAMPLE_UNITS.get(self, "")

    @property
    def base_unit(self) -> str:
        """The unit with factor 1; empty for plain numbers and for dimensions without a unit."""
        return _BASE_UNITS.get(self, "")


NUMBER = Dimension()
BYTES = Dimension(num_bytes=1)
TIME = Dimension(seconds=1)
RATE = Dimension(num_bytes=1, seconds=-1)
FLOP = Dimension(flops=1)
FLOP_RATE = Dimension(flops=1, seconds=-1)
FREQUENCY = Dimension(seconds=-1)

_DIMENSION_NAMES = {
    NUMBER: "a plain number",
    BYTES: "bytes",
    TIME: "time",
    RATE: "bytes per time",
    FLOP: "operations",
    FLOP_RATE: "operations per time",
    FREQUENCY: "a frequency",
}
_BASE_UNITS = {BYTES: "B", TIME: "s", RATE: "B/s", FLOP: "FLOP", FLOP_RATE: "FLOP/s", FREQUENCY: "Hz"}
_EXAMPLE_UNITS = {BYTES: "MiB", TIME: "us", RATE: "GB/s", FLOP: "GFLOP", FLOP_RATE: "TFLOP/s", FREQUENCY: "GHz"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number in base units: bytes, FLOP, seconds."""

    amount: Fraction
    dimension: Dimension = NUMBER


@dataclass(frozen=True, slots=True)
class Unit:
    """The factor of a unit to base units; ``cycles`` is the power of the clock's period in it."""

    factor: Fraction
    dimension: Dimension
    cycles: int = 0


_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def _all_units() -> dict[str, Unit]:
    units = {"%": Unit(Fraction(1, 100), NUMBER)}
    for name, exponent in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9)):
        units[name] = Unit(Fraction(1, 10**exponent), TIME)
    for name, exponent in (("Hz", 0), ("kHz", 3), ("MHz", 6), ("GHz", 9)):
        units[name] = Unit(Fraction(10**exponent), FREQUENCY)
    for prefix, power in _PREFIXES.items():
        sizes = {f"{prefix}B": Fraction(1000**power), f"{prefix}b": Fraction(1000**power, 8)}
        if prefix:
            sizes |= {f"{prefix}iB": Fraction(1024**power), f"{prefix}ib": Fraction(1024**power, 8)}
        for name, factor in sizes.items():
            units[name] = Unit(factor, BYTES)
            units[f"{name}/s"] = Unit(factor, RATE)
            units[f"{name}/cycle"] = Unit(factor, RATE, cycles=-1)
        units[f"{prefix}FLOP"] = Unit(Fraction(1000**power), FLOP)
        units[f"{prefix}FLOP/s"] = Unit(Fraction(1000**power), FLOP_RATE)
        units[f"{prefix}FLOP/cycle"] = Unit(Fraction(1000**power), FLOP_RATE, cycles=-1)
    units["cycle"] = units["cycles"] = Unit(Fraction(1), TIME, cycles=1)
    return units


UNITS = _all_units()
_WRONG_SPELLINGS = {
    "gbps": "did you mean GB/s? Gb/s is an eighth of it",
    "g": "GiB is 1024^3 bytes, GB is 1000^3",
    "m": "MiB is 1024^2 bytes, MB is 1000^2",
    "k": "KiB is 1024 bytes, KB is 1000",
    "tflops": "operations per time are TFLOP/s",
    "gflops": "operations per time are GFLOP/s",
    "tb": "TB is 1000^4 bytes, TB/s a rate",
    "usec": "microseconds are us",
    "nsec": "nanoseconds are ns",
    "percent": "write %",
    "clk": "write cycles",
}


def unit_hint(word: str) -> str:
    """Suggest a replacement for an unknown unit."""
    lower = word.lower()
    if lower in _WRONG_SPELLINGS:
        return _WRONG_SPELLINGS[lower]
    same = [name for name in UNITS if name.lower() == lower]
    return (
        f"did you mean {same[0]}?"
        if same
        else "units are B, KiB, KB ... GB/s, Gb/s, TFLOP/s, s, ms, us, ns, Hz, cycles, %"
    )


def looks_like_unit(word: str) -> bool:
    """Whether a word after a number was probably meant as a unit."""
    lower = word.lower()
    return lower in _WRONG_SPELLINGS or any(name.lower() == lower for name in UNITS) or bool(_RATE_WORD.fullmatch(word))


_RATE_WORD = re.compile(r"[KMGTP]i?[Bb]?(ps)?|[KMGTP]?FLOPS?|[kKMG]?[Hh]z", re.IGNORECASE)


def exact(number: str) -> Fraction:
    """Return the exact value of a written number, for instance ``8_192`` or ``1.5e3``."""
    return Fraction(number.replace("_", ""))


def num_digits(number: str) -> int:
    """Return the number of digits of a written number with its exponent written out."""
    mantissa, _, exponent = number.replace("_", "").lower().partition("e")
    digits = sum(character.isdigit() for character in mantissa)
    return digits + (abs(int(exponent)) if len(exponent) < 6 and exponent else MAX_DIGITS * len(exponent))


def round_half_up(value: Fraction) -> int:
    """Return the nearest integer, a half going up."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def fits(value: Fraction) -> bool:
    """Whether a computed number is within the limit on its size."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS
