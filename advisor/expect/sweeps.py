"""Judgements over the points of a sweep: trends, straight lines, extremes, crossovers and changes of the winner."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise

from ...compiler.ir import End, Value
from ...compiler.resolve.expect.expectation import CheckedSweep, Crossover, Inside, Linear, Trend, TrendDirection
from ...compiler.text.quantities import exact_text
from ...compiler.text.units import Quantity
from .values import FigureValue, show


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a statement holds and why, with the computed values."""

    passed: bool
    text: str
    values: tuple[FigureValue, ...] = ()


def judge_trend(body: Trend, sweep: CheckedSweep, values: Sequence[Value]) -> Judgement:
    """Judge a trend: a rising term never falls by more than the tolerance, and ends above its start."""
    amounts = [value.amount for value in values]
    if body.direction is TrendDirection.FLAT:
        return _flat(body.tolerance, values)
    sign = 1 if body.direction is TrendDirection.RISING else -1
    furthest = amounts[0]
    for point, amount in zip(sweep.points, amounts, strict=True):
        if sign * (furthest - amount) > body.tolerance * abs(furthest):
            step = "falls" if sign > 0 else "rises"
            text = (
                f"{step} at {sweep.param} = {point.text}, from {_shown(furthest, values)} to {_shown(amount, values)}"
            )
            return Judgement(False, text)
        furthest = max(furthest, amount, key=lambda each: sign * each)
    ends = f"from {show(values[0])} to {show(values[-1])}"
    if sign * (amounts[-1] - amounts[0]) > 0:
        return Judgement(True, ends)
    return Judgement(False, f"ends no {'higher' if sign > 0 else 'lower'} than it starts: {ends}")


def _flat(tolerance: Fraction, values: Sequence[Value]) -> Judgement:
    """Judge a flat term: the greatest value is within the tolerance of the least."""
    amounts = [value.amount for value in values]
    low, high = min(amounts), max(amounts)
    passed = high - low <= tolerance * min(map(abs, amounts))
    return Judgement(passed, f"between {_shown(low, values)} and {_shown(high, values)}")


def judge_linear(body: Linear, sweep: CheckedSweep, values: Sequence[Value]) -> Judgement:
    """Judge a line: the least-squares fit rises, and its coefficient of determination reaches the threshold."""
    fit = fit_line([point.amount for point in sweep.points], [value.amount for value in values])
    if fit is None:
        return Judgement(False, f"the same everywhere: {show(values[0])}")
    rises, r2 = fit
    text = f"r2 {float(r2):.4f}" + ("" if rises else ", but it falls")
    return Judgement(rises and r2 >= body.least_r2, text, (FigureValue("r2", f"{float(r2):.4f}", float(r2)),))


def fit_line(xs: Sequence[Fraction], ys: Sequence[Fraction]) -> tuple[bool, Fraction] | None:
    """Return whether the least-squares line rises, and r2 = Sxy^2 / (Sxx Syy), exactly; None if all ``ys`` are equal.

    The coefficient of determination of simple linear regression, Draper and Smith, Applied Regression Analysis,
    section 1.3.
    """
    mean_x, mean_y = sum(xs, Fraction(0)) / len(xs), sum(ys, Fraction(0)) / len(ys)
    sxx = sum(((x - mean_x) ** 2 for x in xs), Fraction(0))
    syy = sum(((y - mean_y) ** 2 for y in ys), Fraction(0))
    sxy = sum(((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)), Fraction(0))
    return (sxy > 0, sxy**2 / (sxx * syy)) if syy else None


def judge_inside(body: Inside, sweep: CheckedSweep, values: Sequence[Value]) -> Judgement:
    """Judge an inner extreme, which must beat both ends."""
    sign, word = (1, "least") if body.end is End.LEAST else (-1, "greatest")
    amounts = [sign * value.amount for value in values]
    at = amounts.index(min(amounts))
    best = f"{word} at {sweep.param} = {sweep.points[at].text}: {show(values[at])}"
    passed = amounts[at] < min(amounts[0], amounts[-1])
    return Judgement(passed, f"{best}; at the ends {show(values[0])} and {show(values[-1])}")


def judge_crossover(body: Crossover, sweep: CheckedSweep, left: Sequence[Value], right: Sequence[Value]) -> Judgement:
    """Judge a crossover: ``left <= right`` changes exactly once, at a value of the parameter in the range."""
    gaps = [a.amount - b.amount for a, b in zip(left, right, strict=True)]
    indices = [at for at, (before, after) in enumerate(pairwise(gaps)) if (before <= 0) != (after <= 0)]
    if not indices:
        return Judgement(False, f"no crossover: left is {'below' if gaps[0] <= 0 else 'above'} right everywhere")
    if len(indices) > 1:
        between = [f"{sweep.points[at].text} and {sweep.points[at + 1].text}" for at in indices]
        return Judgement(False, f"{len(indices)} crossovers: between {sweep.param} = {', '.join(between)}")
    at = indices[0]
    crossing = crossing_of(sweep.points[at].amount, sweep.points[at + 1].amount, gaps[at], gaps[at + 1])
    value = _parameter("crossover", crossing, sweep)
    return Judgement(body.low <= crossing <= body.high, f"at {sweep.param} = {value.text}", (value,))


def crossing_of(x0: Fraction, x1: Fraction, gap0: Fraction, gap1: Fraction) -> Fraction:
    """Return the zero of the straight line from (x0, gap0) to (x1, gap1); the gaps differ in sign."""
    return x0 + (x1 - x0) * gap0 / (gap0 - gap1)


def judge_winner(sweep: CheckedSweep, winners: Sequence[str]) -> Judgement:
    """Judge a change of the winner: not the same schedule wins at every point."""
    stretches: list[str] = []
    named = zip(sweep.points, winners, strict=True)
    for winner, group in groupby(named, key=lambda each: each[1]):
        points = [point.text for point, _ in group]
        stretches.append(f"{winner} at {points[0]}" + (f"..{points[-1]}" if len(points) > 1 else ""))
    return Judgement(len(set(winners)) > 1, f"{sweep.param}: {', '.join(stretches)}")


def _parameter(name: str, amount: Fraction, sweep: CheckedSweep) -> FigureValue:
    """Return a value of the swept parameter, rounded if its exact text is a fraction."""
    text = exact_text(Quantity(amount, sweep.unit))
    if "/ " in text:
        text = f"{float(amount):.6g} {sweep.unit.base_unit}".rstrip()
    return FigureValue(name, text, float(amount), sweep.unit.base_unit)


def _shown(amount: Fraction, like: Sequence[Value]) -> str:
    return show(Value(amount, like[0].dimension))
