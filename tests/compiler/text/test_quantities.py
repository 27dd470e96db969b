"""Quantities as text: exact ones are read back, rounded ones are for reading."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.resolve.values.evaluate import ExpressionEvaluator, Place
from magus.compiler.resolve.values.words import single
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.names import Scope
from magus.compiler.text.parsing.parse import parse_value
from magus.compiler.text.units import (
    BYTES,
    FLOP_RATE,
    FREQUENCY,
    NUMBER,
    RATE,
    TIME,
    UNITS,
    Dimension,
    Quantity,
    bytes_text,
    exact,
    exact_bytes_text,
    exact_text,
    rate_text,
    ticks_text,
    us_text,
)

dimensions = st.sampled_from([NUMBER, BYTES, TIME, RATE, FREQUENCY, FLOP_RATE])


def read(text: str) -> Quantity:
    report = Report()
    return ExpressionEvaluator(report, {})(single(parse_value(Source("a.mgs", text), report), report), Place(Scope()))


@given(dimensions, st.fractions(min_value=0, max_denominator=10**9))
def test_a_written_value_is_read_back(dimension: Dimension, amount: Fraction) -> None:
    value = Quantity(amount, dimension)

    assert read(exact_text(value)) == value


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        ("8192", "", "8192"),
        ("0.05", "", "0.05"),
        ("10", "us", "10 us"),
        ("0", "us", "0 us"),
        ("1500", "us", "1500 us"),
        ("64", "KiB", "64 KiB"),
        ("2048", "KiB", "2 MiB"),
        ("64", "GB/s", "64 GB/s"),
    ],
)
def test_how_values_are_written(number: str, unit: str, text: str) -> None:
    factor, dimension = (UNITS[unit].factor, UNITS[unit].dimension) if unit else (Fraction(1), NUMBER)

    assert exact_text(Quantity(exact(number) * factor, dimension)) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (100, "100 B"),
        (1500, "1.46 KiB"),
        (1536, "1.5 KiB"),
        (117_440_512, "112 MiB"),
        (-(3 << 40), "-3 TiB"),
    ],
)
def test_sizes_for_reading(num_bytes: int, text: str) -> None:
    assert bytes_text(num_bytes) == text


@pytest.mark.parametrize(("num_bytes", "text"), [(1500, "1500 B"), (1536 << 10, "1536 KiB"), (512 << 20, "512 MiB")])
def test_exact_sizes(num_bytes: int, text: str) -> None:
    assert exact_bytes_text(num_bytes) == text


def test_times_and_rates_for_reading() -> None:
    assert (us_text(886.54), us_text(3.256, 2), ticks_text(88_654_000_000)) == ("886.5 us", "3.26 us", "886.5 us")
    assert [rate_text(rate) for rate in (312.46e9, 48e9, 5.3e12, 2e13)] == [
        *("312.5 GB/s", "48 GB/s", "5,300 GB/s", "20,000 GB/s")
    ]
