"""Quantities, written so that they are read back."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.resolve.values.evaluate import ExpressionEvaluator, Place
from magus.compiler.resolve.values.sentences import single
from magus.compiler.text.diagnostics import Report
from magus.compiler.text.names import Scope
from magus.compiler.text.parse import parse_value
from magus.compiler.text.print_quantity import setting_text
from magus.compiler.text.source import Source
from magus.compiler.text.units import BYTES, FLOP_RATE, FREQUENCY, NUMBER, RATE, TIME, UNITS, Dimension, Quantity, exact

dimensions = st.sampled_from([NUMBER, BYTES, TIME, RATE, FREQUENCY, FLOP_RATE])


def read(text: str) -> Quantity:
    report = Report()
    return ExpressionEvaluator(report, {})(single(parse_value(Source("a.mgs", text), report), report), Place(Scope()))


@given(dimensions, st.fractions(min_value=0, max_denominator=10**9))
def test_a_written_value_is_read_back(dimension: Dimension, amount: Fraction) -> None:
    value = Quantity(amount, dimension)

    assert read(setting_text(value)) == value


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

    assert setting_text(Quantity(exact(number) * factor, dimension)) == text
