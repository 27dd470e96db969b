"""What the points of a sweep say together."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magus.advisor.expect.values import (
    crossing_of,
    fit_line,
    judge_crossover,
    judge_inside,
    judge_linear,
    judge_trend,
    judge_winner,
)
from magus.compiler.ir import End, FigureKind, Value
from magus.compiler.resolve.expect.expectation import (
    CheckedSweep,
    Crossover,
    Inside,
    Linear,
    SweptValue,
    Trend,
    TrendDirection,
)
from magus.compiler.text.units import NUMBER
from tests.helpers.marks import examples

RATIO = FigureKind.RATIO
NOTHING = Value(Fraction(0), RATIO)
numbers = st.fractions(min_value=-1000, max_value=1000, max_denominator=100)


def sweep_over(*amounts: int) -> CheckedSweep:
    points = tuple(SweptValue(str(amount), Fraction(amount)) for amount in amounts)
    return CheckedSweep("M", "a domain", NUMBER, points, ())


def values(*amounts: float) -> list[Value]:
    return [Value(Fraction(str(amount)), RATIO) for amount in amounts]


@pytest.mark.parametrize(
    ("direction", "amounts", "holds"),
    [
        (TrendDirection.RISING, (1, 2, 3), True),
        (TrendDirection.RISING, (1, 2, 1.981), True),
        (TrendDirection.RISING, (1, 2, 1.979), False),
        (TrendDirection.RISING, (1, 1, 1), False),
        (TrendDirection.RISING, (100, 99.5, 99, 98.5), False),
        (TrendDirection.RISING, (-3, -2, -1), True),
        (TrendDirection.FALLING, (3, 2, 1), True),
        (TrendDirection.FALLING, (3, 2, 2.02), True),
        (TrendDirection.FALLING, (3, 2, 2.03), False),
        (TrendDirection.FLAT, (1, 1.01, 1), True),
        (TrendDirection.FLAT, (1, 1.02, 1), False),
        (TrendDirection.FLAT, (0, 0, 0), True),
        (TrendDirection.FLAT, (-1, 1, 0), False),
    ],
)
def test_trends(direction: TrendDirection, amounts: tuple[float, ...], holds: bool) -> None:
    sweep = sweep_over(*range(1, len(amounts) + 1))

    assert judge_trend(Trend(NOTHING, direction, Fraction(1, 100)), sweep, values(*amounts)).passed is holds


def test_a_trend_says_where_it_breaks() -> None:
    found = judge_trend(Trend(NOTHING, TrendDirection.RISING, Fraction(0)), sweep_over(8, 16, 32), values(1, 3, 2))

    assert found.text == "falls at M = 32, from 3 to 2"


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=12, unique=True), numbers, numbers)
def test_r2_of_a_straight_line_is_one(xs: list[int], slope: Fraction, start: Fraction) -> None:
    assume(slope)

    fit = fit_line(list(map(Fraction, xs)), [start + slope * x for x in xs])

    assert fit == (slope > 0, Fraction(1))


@examples(15, deep=400)
@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=12, unique_by=lambda point: point[0]))
def test_r2_is_a_share(points: list[tuple[Fraction, Fraction]]) -> None:
    fit = fit_line([x for x, _ in points], [y for _, y in points])

    assert (fit is None) == (len({y for _, y in points}) == 1)
    assert fit is None or 0 <= fit[1] <= 1


@pytest.mark.parametrize(
    ("amounts", "holds"), [((1, 2, 3), True), ((3, 2, 1), False), ((5, 5, 5), False), ((1, 9, 2), False)]
)
def test_linear(amounts: tuple[int, ...], holds: bool) -> None:
    assert judge_linear(Linear(NOTHING, Fraction(98, 100)), sweep_over(1, 2, 3), values(*amounts)).passed is holds


@pytest.mark.parametrize(
    ("end", "amounts", "holds"),
    [
        (End.LEAST, (3, 1, 2), True),
        (End.LEAST, (1, 2, 3), False),
        (End.LEAST, (1, 1, 3), False),
        (End.GREATEST, (1, 3, 2), True),
        (End.GREATEST, (1, 2, 2), False),
    ],
)
def test_an_extreme_inside(end: End, amounts: tuple[int, ...], holds: bool) -> None:
    assert judge_inside(Inside(NOTHING, end), sweep_over(1, 2, 3), values(*amounts)).passed is holds


def crossover(low: int, high: int, left: tuple[float, ...], right: tuple[float, ...]) -> tuple[bool, str]:
    body = Crossover(NOTHING, NOTHING, Fraction(low), Fraction(high))
    found = judge_crossover(body, sweep_over(10, 20, 40, 80), values(*left), values(*right))
    return found.passed, found.text


def test_a_crossover_is_interpolated() -> None:
    assert crossover(20, 40, (1, 2, 5, 9), (3, 3, 3, 3)) == (True, "at M = 26.6667")
    assert crossover(20, 26, (1, 2, 5, 9), (3, 3, 3, 3)) == (False, "at M = 26.6667")
    assert crossover(10, 80, (1, 3, 5, 9), (3, 3, 3, 3)) == (True, "at M = 20")


def test_no_crossover_and_several_are_reported() -> None:
    assert crossover(10, 80, (1, 1, 1, 1), (3, 3, 3, 3)) == (False, "no crossover: left is below right everywhere")
    passed, text = crossover(10, 80, (1, 5, 1, 1), (3, 3, 3, 3))
    assert not passed
    assert text == "2 crossovers: between M = 10 and 20, 20 and 40"


@examples(15, deep=400)
@given(numbers, numbers, numbers, numbers)
def test_a_crossover_lies_between_its_points(x0: Fraction, x1: Fraction, gap0: Fraction, gap1: Fraction) -> None:
    assume((gap0 <= 0) != (gap1 <= 0))

    assert min(x0, x1) <= crossing_of(x0, x1, gap0, gap1) <= max(x0, x1)


def test_the_winner_changes_or_not() -> None:
    found = judge_winner(sweep_over(1, 2, 4), ["a", "a", "b"])

    assert (found.passed, found.text) == (True, "M: a at 1..2, b at 4")
    assert not judge_winner(sweep_over(1, 2, 4), ["a", "a", "a"]).passed
