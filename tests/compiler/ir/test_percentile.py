"""Percentiles by nearest rank."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import percentile


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 15), (1, 15), (5, 15), (30, 20), (40, 20), (50, 35), (99, 50), (100, 50)]
)
def test_known_percentiles(percent: int, value: int) -> None:
    numbers = [35, 20, 15, 50, 40]

    assert percentile(numbers, percent) == value
    assert percentile([Fraction(number) for number in numbers], Fraction(percent)) == value


@given(values=st.lists(st.fractions(max_denominator=1000), min_size=1, max_size=70), percent=st.integers(1, 100))
def test_so_many_percent_are_not_above_it_and_less_are_below(values: list[Fraction], percent: int) -> None:
    found = percentile(values, percent)

    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1], -1), ([1], 101)])
def test_no_percentile_of_nothing(values: list[int], percent: int) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile(values, percent)
