"""Values of terms: percentiles, means, and how they are shown."""

from fractions import Fraction
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.expect.values import figure_value
from magus.compiler.ir import FigureKind, Value, percentile
from tests.helpers.marks import examples

numbers = st.lists(st.fractions(max_denominator=1000), min_size=1, max_size=70)


@examples(40, deep=1000)
@given(numbers)
def test_the_mean_lies_between_the_extremes(values: list[Fraction]) -> None:
    assert percentile(values, Fraction(0)) <= mean(values) <= percentile(values, Fraction(100))


@pytest.mark.parametrize(
    ("value", "text", "number", "unit"),
    [
        (Value(Fraction(150_000_000), FigureKind.TIME), "1.50 us", 1.5, "us"),
        (Value(Fraction(3 << 20), FigureKind.BYTES), "3 MiB", 3 << 20, "B"),
        (Value(Fraction(96), FigureKind.BYTES), "96 B", 96, "B"),
        (Value(Fraction(64 * 10**9, 10**14), FigureKind.RATE), "64 GB/s", 64.0, "GB/s"),
        (Value(Fraction(123_456), FigureKind.RATIO), "123,456", 123_456, ""),
        (Value(Fraction(1, 3), FigureKind.RATIO), "0.3333", 1 / 3, ""),
    ],
)
def test_how_values_are_shown(value: Value, text: str, number: float, unit: str) -> None:
    shown = figure_value("left", value)

    assert (shown.text, shown.unit) == (text, unit)
    assert shown.number == pytest.approx(number)
