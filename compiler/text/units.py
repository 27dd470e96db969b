"""Quantities: exact numbers with a dimension, and the units of the language.

KiB is 1024 bytes, KB 1000; rates are decimal, and Gb/s is an eighth of GB/s. Multiply and add count as two FLOP.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from ..ir import TICKS_PER_SECOND, TICKS_PER_US

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


# Units to write a value in, the largest first; one is taken if the value is whole in it.
_EXACT_UNITS = {TIME: ("s", "ms", "us", "ns"), BYTES: ("GiB", "MiB", "KiB", "B"), RATE: ("GB/s", "MB/s", "B/s")}
_MAX_DECIMAL = Fraction(10) ** 12


def exact_text(value: Quantity) -> str:
    """Return the exact value in the largest unit in which it is whole; ``--set`` reads it back."""
    for unit in _EXACT_UNITS.get(value.dimension, ()):
        amount = value.amount / UNITS[unit].factor
        if amount.denominator == 1 and (amount or unit == value.dimension.example):
            return f"{amount} {unit}"
    if value.dimension == NUMBER and abs(value.amount) < _MAX_DECIMAL:
        decimal = f"{float(value.amount):.12g}"
        if Fraction(decimal) == value.amount:
            return decimal
    number = f"{value.amount.numerator} {value.dimension.base_unit}".rstrip()
    return number if value.amount.denominator == 1 else f"{number} / {value.amount.denominator}"


# Units to show a value in, the largest first; one is taken if there is one or more of it.
_READ_UNITS: dict[Dimension, tuple[str, ...]] = {
    TIME: ("s", "ms", "us", "ns"),
    BYTES: ("GiB", "MiB", "KiB", "B"),
    RATE: ("TB/s", "GB/s", "MB/s", "B/s"),
    FLOP_RATE: ("TFLOP/s", "GFLOP/s", "FLOP/s"),
    FREQUENCY: ("GHz", "MHz", "Hz"),
}


def read_text(value: Quantity, digits: int = 6) -> str:
    """Return a value to some digits, in the largest unit of which there is one or more; the language reads it.

    >>> read_text(Quantity(Fraction(46_500_000_000), RATE)), read_text(Quantity(Fraction(1, 3)), 2)
    ('46.5 GB/s', '0.33')
    """
    units = _READ_UNITS.get(value.dimension)
    if units is None:
        return f"{_digits(value.amount, digits)} {value.dimension.base_unit}".rstrip()
    unit = next((each for each in units if abs(value.amount) >= UNITS[each].factor), units[-1])
    return f"{_digits(value.amount / UNITS[unit].factor, digits)} {unit}"


def _digits(amount: Fraction, digits: int) -> str:
    """Return a number to some digits, without an exponent and without zeros at its end."""
    if amount.denominator == 1:
        return str(amount.numerator)
    text = f"{float(amount):.{digits}g}"
    return text if "e" not in text else f"{float(amount):.{digits + 6}f}".rstrip("0").rstrip(".")


def exact_bytes_text(num_bytes: int) -> str:
    """Return the exact size, for instance ``512 MiB`` or ``1536 KiB``."""
    return exact_text(Quantity(Fraction(num_bytes), BYTES))


def bytes_text(num_bytes: float) -> str:
    """Return a size to two decimals, in the largest binary unit of which there is one or more.

    >>> bytes_text(117_440_512), bytes_text(1500), bytes_text(100)
    ('112 MiB', '1.46 KiB', '100 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(num_bytes) >= 1024**power:
            return f"{_two_decimals(num_bytes / 1024**power)} {unit}"
    return f"{_two_decimals(num_bytes)} B"


def _two_decimals(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def us_text(us: float, decimals: int = 1) -> str:
    """Return a time in microseconds, for instance ``886.5 us``."""
    return f"{us:.{decimals}f} us"


def ticks_text(ticks: int) -> str:
    """Return a time in ticks as text in microseconds, for instance ``886.5 us``."""
    return us_text(ticks / TICKS_PER_US)


def is_short(whole_ticks: int) -> bool:
    """Return whether times of a step of ``whole_ticks`` are written in us: seconds would have few digits."""
    return whole_ticks < TICKS_PER_SECOND // 100


def seconds_text(ticks: int, whole_ticks: int | None = None) -> str:
    """Return a time of a step that takes ``whole_ticks``, itself if left out: in us if that ``is_short``."""
    if is_short(ticks if whole_ticks is None else whole_ticks):
        return ticks_text(ticks)
    seconds = ticks / TICKS_PER_SECOND
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.2f} s"


def axis_unit(whole_ticks: int) -> tuple[str, int]:
    """Return the unit of an axis of time of a step that takes ``whole_ticks``, and its ticks."""
    return ("us", TICKS_PER_US) if is_short(whole_ticks) else ("s", TICKS_PER_SECOND)


def span_text(start_ticks: int, end_ticks: int, whole_ticks: int) -> str:
    """Return from when to when something lasts, in a step that takes ``whole_ticks``."""
    if is_short(whole_ticks):
        return f"{start_ticks / TICKS_PER_US:.1f} to {ticks_text(end_ticks)}"
    return f"{start_ticks / TICKS_PER_SECOND:.4f} to {end_ticks / TICKS_PER_SECOND:.4f} s"


def lasting_text(ticks: int, whole_ticks: int) -> str:
    """Return how long something lasts, with the digits of ``span_text``."""
    return ticks_text(ticks) if is_short(whole_ticks) else f"{ticks / TICKS_PER_SECOND:.4f} s"


def rate_text(bytes_per_s: float) -> str:
    """Return a rate to four digits, for instance ``312.5 GB/s``."""
    rate = bytes_per_s / 1e9
    return f"{rate:,.0f} GB/s" if rate >= 1000 else f"{rate:.4g} GB/s"


def round_step(least_ticks: float) -> int:
    """Return the smallest step for an axis of time, 1, 2 or 5 with zeros ns, of at least ``least_ticks``."""
    power = TICKS_PER_US // 1000
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least_ticks:
                return factor * power
        power *= 10
