"""Sizes, times and rates as text: exact ones that the language reads back, rounded ones for reading."""

from fractions import Fraction

from ..ir import TICKS_PER_US
from .units import BYTES, FLOP_RATE, FREQUENCY, NUMBER, RATE, TIME, UNITS, Dimension, Quantity

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


def rate_text(bytes_per_s: float) -> str:
    """Return a rate to four digits, for instance ``312.5 GB/s``."""
    rate = bytes_per_s / 1e9
    return f"{rate:,.0f} GB/s" if rate >= 1000 else f"{rate:.4g} GB/s"
