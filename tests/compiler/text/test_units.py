from fractions import Fraction

import pytest

from magus.compiler.text.units import BYTES, RATE, TIME, UNITS, fits, num_digits, round_half_up, unit_hint


@pytest.mark.parametrize(
    ("unit", "factor", "dimension"),
    [
        ("KiB", Fraction(1024), BYTES),
        ("KB", Fraction(1000), BYTES),
        ("GiB", Fraction(2**30), BYTES),
        ("Gb", Fraction(10**9, 8), BYTES),
        ("GB/s", Fraction(10**9), RATE),
        ("Gb/s", Fraction(125_000_000), RATE),
        ("us", Fraction(1, 10**6), TIME),
        ("ns", Fraction(1, 10**9), TIME),
    ],
)
def test_factors_are_exact(unit: str, factor: Fraction, dimension: object) -> None:
    assert UNITS[unit].factor == factor
    assert UNITS[unit].dimension == dimension


@pytest.mark.parametrize(
    ("value", "rounded"), [("1/2", 1), ("3/2", 2), ("-1/2", 0), ("5/4", 1), ("7", 7), ("-3/2", -1)]
)
def test_halves_go_up(value: str, rounded: int) -> None:
    assert round_half_up(Fraction(value)) == rounded


@pytest.mark.parametrize(("number", "digits"), [("8_192", 4), ("1.5e3", 5), ("1e-30", 31), ("1e999999999", 360)])
def test_digits_count_the_exponent(number: str, digits: int) -> None:
    assert num_digits(number) >= min(digits, 41)


def test_large_numbers_do_not_fit() -> None:
    assert fits(Fraction(2**4095)) and not fits(Fraction(2**4096)) and not fits(Fraction(1, 2**4096))


def test_hints() -> None:
    assert "eighth" in unit_hint("GBps")
    assert unit_hint("gb/S") == "did you mean GB/s?" or "Gb/s" in unit_hint("gb/S")
    assert "GiB is 1024^3" in unit_hint("G")
