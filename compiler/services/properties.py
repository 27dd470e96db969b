"""Numbers that a statement says: their units and ranges, and what a unit is worth."""

from collections.abc import Iterable, Mapping

from ..text.quantities import exact_text
from ..text.units import BYTES, FLOP_RATE, FREQUENCY, RATE, UNITS, Quantity
from ..text.vocabulary import (
    CACHE_NUMBERS,
    COLLECTIVES,
    GPU_BLOCKS,
    GPU_NUMBERS,
    LINK_NUMBERS,
    METHOD_NUMBERS,
    PEAK,
    SWITCH_NUMBERS,
    Property,
)
from .context import Context
from .expected import section_of

_OF_SECTION: Mapping[str, Iterable[Property]] = {
    "gpu": (*GPU_NUMBERS, PEAK),
    "gpu.cache": CACHE_NUMBERS,
    **{f"gpu.{block}": numbers for block, numbers in GPU_BLOCKS.items()},
    **{f"gpu.collectives.{part}".rstrip("."): numbers for part, numbers in COLLECTIVES.items()},
    "link": LINK_NUMBERS,
    "switch": SWITCH_NUMBERS,
    "method": METHOD_NUMBERS,
}
_READ_IN = {
    FREQUENCY: ("GHz", "MHz"),
    FLOP_RATE: ("TFLOP/s", "GFLOP/s"),
    RATE: ("TB/s", "GB/s", "MB/s"),
    BYTES: ("TiB", "GiB", "MiB", "KiB"),
}


def property_of(section: str, word: str) -> Property | None:
    """Return the number that a word of a section stands for, None if it is no number."""
    return next((each for each in _OF_SECTION.get(section, ()) if each.name == word), None)


def property_at(place: Context) -> Property | None:
    """Return the number that the statement at a place says, None if it says no number of a device."""
    return property_of(section_of(place), place.head)


def amount_text(value: Quantity) -> str:
    """Return an exact value in a unit that is easy to read: ``1.98 GHz``, ``989 TFLOP/s``; others as exact text."""
    for unit in _READ_IN.get(value.dimension, ()):
        amount = value.amount / UNITS[unit].factor
        if amount >= 1 and (amount * 1000).denominator == 1:
            return f"{float(amount):,.10g} {unit}"
    return exact_text(value)


def property_doc(wanted: Property) -> str:
    """Return unit and range of a number in words: ``bytes per time, from 1 MB/s to 1000000 GB/s``."""
    low, high = (amount_text(Quantity(end, wanted.dimension)) for end in (wanted.low, wanted.high))
    return f"{wanted.dimension}, from {low} to {high}" + ("" if wanted.required else "; may be left out")


def unit_doc(name: str) -> str:
    """Return what a unit is worth in base units: ``1 KiB = 1,024 B``."""
    unit = UNITS[name]
    per = {0: "", 1: " at the clock of the gpu", -1: " at the clock of the gpu"}[unit.cycles]
    factor = unit.factor
    amount = f"{factor.numerator:,}" if factor.denominator == 1 else f"1/{factor.denominator:,}"
    return f"1 {name} = {amount} {unit.dimension.base_unit}".rstrip() + per
