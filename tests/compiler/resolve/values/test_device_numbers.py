"""Dataclasses made of the numbers of a device."""

from dataclasses import dataclass, field
from fractions import Fraction

from magus.compiler.ir import TICKS_PER_SECOND, Origin
from magus.compiler.resolve.values.device_numbers import DeviceNumbers, NumberWithOrigin
from magus.compiler.text.diagnostics import Source, Span
from magus.compiler.text.units import Quantity

NOWHERE = Span(Source("", ""), 0, 0)


@dataclass(frozen=True)
class Clock:
    after_ticks: int
    share: Fraction


@dataclass(frozen=True)
class Kernel:
    setup_ticks: int
    peak_bytes_per_s: int
    clock: Clock | None = None
    small: "Kernel | None" = None
    words: tuple[str, ...] = field(default=())


def numbers(**amounts: Fraction | int) -> DeviceNumbers:
    of = {path.replace("__", "."): Quantity(Fraction(amount)) for path, amount in amounts.items()}
    return DeviceNumbers({path: NumberWithOrigin(each, Origin.ASSUMED, "", NOWHERE) for path, each in of.items()})


def test_fields_are_filled_by_their_names_and_units() -> None:
    found = numbers(k__setup=1, k__bandwidth=Fraction(5, 2)).filled(Kernel, "k.")
    assert found == Kernel(TICKS_PER_SECOND, 3)


def test_a_dataclass_is_filled_by_a_block_of_its_name_or_by_numbers_that_begin_with_it() -> None:
    third = Fraction(1, 3)
    found = numbers(
        k__setup=1, k__bandwidth=2, k__clock_after=3, k__clock_share=third, k__small__setup=4, k__small__bandwidth=5
    ).filled(Kernel, "k.")
    assert found.clock == Clock(3 * TICKS_PER_SECOND, third)
    assert found.small == Kernel(4 * TICKS_PER_SECOND, 5)


def test_a_dataclass_without_a_number_that_it_needs_is_left_out() -> None:
    assert numbers(k__setup=1, k__bandwidth=2, k__clock_after=3).filled(Kernel, "k.").clock is None
    assert numbers(k__setup=1).filled_if(Kernel, "k.") is None
    assert numbers(k__bandwidth=2).filled_if(Kernel, "k.", setup_ticks=7) == Kernel(7, 2)
