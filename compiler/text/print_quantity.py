"""Write quantities as text that the language reads back."""

from fractions import Fraction

from .units import BYTES, NUMBER, RATE, TIME, UNITS, Quantity

# Units to write a value in, largest first: the first one in which the value is a whole number.
_UNITS = {TIME: ("s", "ms", "us", "ns"), BYTES: ("GiB", "MiB", "KiB", "B"), RATE: ("GB/s", "MB/s", "B/s")}
_MAX_DECIMAL = Fraction(10) ** 12


def setting_text(value: Quantity) -> str:
    """Write a value in a common unit, so that ``--set`` reads it back exactly."""
    for unit in _UNITS.get(value.dimension, ()):
        amount = value.amount / UNITS[unit].factor
        if amount.denominator == 1 and (amount or unit == value.dimension.example):
            return f"{amount} {unit}"
    if value.dimension == NUMBER and abs(value.amount) < _MAX_DECIMAL:
        decimal = f"{float(value.amount):.12g}"
        if Fraction(decimal) == value.amount:
            return decimal
    number = f"{value.amount.numerator} {value.dimension.base_unit}".rstrip()
    return number if value.amount.denominator == 1 else f"{number} / {value.amount.denominator}"
