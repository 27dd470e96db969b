"""Values of terms, combined in exact arithmetic, and whether statements about them hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from statistics import mean

from ...compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    Chain,
    End,
    Extreme,
    FigureKind,
    Metric,
    MetricOf,
    Negation,
    Operator,
    OverSeeds,
    Speedup,
    Term,
    Value,
    percentile,
)
from ...compiler.resolve.expect.expectation import CheckedSweep, Crossover, Inside, Linear, Trend, TrendDirection
from ...compiler.resolve.expect.terms import dimension_of
from ...compiler.text.units import Quantity, bytes_text, exact_text, fits, rate_text, us_text
from ...simcore import Result
from .simulations import BOUND, ExpectationError, Runs, StepRuns

US_PER_SECOND = 1_000_000
_LARGEST = Fraction(10) ** 300
"""Limit of values in reports, a little below the largest floating-point number."""


@dataclass(frozen=True, slots=True)
class FigureValue:
    """A value for reports: as text, and as a number with its unit, which is empty for plain numbers.

    A value that is a word, such as a verdict, has the word for both.
    """

    name: str
    text: str
    number: int | float | str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Evaluates terms about one scenario; reductions run over ``num_seeds`` seeds."""

    runs: Runs | StepRuns
    num_seeds: int = 0

    def value(self, term: Term) -> Value:
        """Return the value of ``term``.

        Raises
        ------
        ExpectationError
            If a figure in it does not exist, or a number in it is too large.
        ZeroDivisionError
            If it divides by zero.
        """
        amount = self._amount(term, None)
        if abs(amount) >= _LARGEST:
            raise ExpectationError("a value of 300 digits or more")
        return Value(amount, dimension_of(term))

    def _amount(self, term: Term, seed: int | None) -> Fraction:
        match term:
            case Value(amount=amount):
                return amount
            case MetricOf(schedule=schedule, metric=metric, op=op) if op:
                assert isinstance(self.runs, Runs), "a step has no ops"
                return Fraction(self.runs.of_op(schedule, op, metric, seed))
            case MetricOf(schedule=schedule, metric=metric):
                return self._metric(schedule, metric, seed)
            case Speedup(fast=fast, slow=slow):
                makespans = [self._metric(name, Metric.MAKESPAN, seed) for name in (slow, fast)]
                return makespans[0] / makespans[1]
            case Negation(operand=operand):
                return -self._amount(operand, seed)
            case Chain(first=first, rest=rest):
                total = self._amount(first, seed)
                for operator, operand in rest:
                    total = _applied(operator, total, self._amount(operand, seed))
                    if not fits(total):
                        raise ExpectationError("a computed number is too large")
                return total
            case Extreme(end=end, terms=terms):
                amounts = [self._amount(operand, seed) for operand in terms]
                return min(amounts) if end is End.LEAST else max(amounts)
            case OverSeeds(term=inner, percent=percent):
                amounts = [self._amount(inner, seed) for seed in range(self.num_seeds)]
                return mean(amounts) if percent is None else percentile(amounts, percent)

    def _metric(self, schedule: str, metric: Metric, seed: int | None) -> Fraction:
        if isinstance(self.runs, StepRuns):
            return self.runs.figure(schedule, metric)
        if schedule == BOUND and metric is Metric.MAKESPAN:
            return Fraction(self.runs.bound_ticks())
        if seed is None:
            return metric_of(self.runs.result(schedule, explained=metric is Metric.CIL), metric)
        return metric_of(self.runs.seeded(schedule, self.num_seeds)[seed], metric)


def metric_of(result: Result, metric: Metric) -> Fraction:
    """Return a figure of ``result``: times in ticks, traffic in bytes of the busiest rank.

    Raises
    ------
    ExpectationError
        If the schedule has no such figure.
    """
    traffic = result.traffic
    integers = {
        Metric.MAKESPAN: result.makespan_ticks,
        Metric.COMPUTE_TIME: result.compute_ticks,
        Metric.COMM_TIME: result.comm_ticks,
        Metric.EXPOSED_TIME: result.exposed_ticks,
        Metric.STAGING: result.schedule.staging_bytes,
        Metric.HBM_BYTES: traffic.hbm_read_bytes + traffic.hbm_write_bytes,
        Metric.HBM_READ_BYTES: traffic.hbm_read_bytes,
        Metric.HBM_WRITE_BYTES: traffic.hbm_write_bytes,
        Metric.L2_BYTES: traffic.l2_bytes,
        Metric.LINK_BYTES: traffic.link_bytes,
        Metric.FLAG_BYTES: traffic.flag_bytes,
        Metric.FLAG_READS: traffic.flag_reads,
        Metric.LINE_HOPS: result.line_hops,
    }
    if metric in integers:
        return Fraction(integers[metric])
    ratio = _ratio(result, metric)
    if ratio is None:
        raise ExpectationError(f"{result.schedule.expression} has no {metric.value}")
    return Fraction(ratio)


def _ratio(result: Result, metric: Metric) -> Fraction | float | None:
    match metric:
        case Metric.EXPOSED:
            return Fraction(result.exposed_ticks, max(1, result.makespan_ticks))
        case Metric.OVERLAP_EFFICIENCY:
            hidden = result.compute_ticks + result.comm_ticks - result.union_ticks
            return Fraction(hidden, result.comm_ticks) if result.comm_ticks else None
        case Metric.DIL:
            return result.dil
        case _:
            return result.cil


def _applied(operator: Operator, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case Operator.ADD:
            return left + right
        case Operator.SUBTRACT:
            return left - right
        case Operator.MULTIPLY:
            return left * right
        case Operator.DIVIDE:
            return left / right


def figure_value(name: str, value: Value) -> FigureValue:
    """Return a value for reports: times in us, rates in GB/s, sizes in bytes."""
    match value.dimension:
        case FigureKind.TIME:
            number = float(value.amount / TICKS_PER_US)
            text = us_text(number, 2) if number < US_PER_SECOND else f"{number / US_PER_SECOND:.4g} s"
            return FigureValue(name, text, number, "us")
        case FigureKind.BYTES:
            return FigureValue(name, bytes_text(float(value.amount)), _number(value.amount), "B")
        case FigureKind.RATE:
            rate = value.amount * TICKS_PER_SECOND
            return FigureValue(name, rate_text(float(rate)), float(rate / 10**9), "GB/s")
        case FigureKind.RATIO:
            exact = _number(value.amount)
            return FigureValue(name, f"{exact:,}" if isinstance(exact, int) else f"{exact:.4g}", exact)


def show(value: Value) -> str:
    """Return a value as text."""
    return figure_value("", value).text


def _number(amount: Fraction) -> int | float:
    return int(amount) if amount.denominator == 1 else float(amount)


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
    mean_x, mean_y = mean(xs), mean(ys)
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
    value = _crossing(crossing, sweep)
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


def _crossing(amount: Fraction, sweep: CheckedSweep) -> FigureValue:
    """Return a value of the swept parameter, rounded if its exact text is a fraction."""
    text = exact_text(Quantity(amount, sweep.unit))
    if "/ " in text:
        text = f"{float(amount):.6g} {sweep.unit.base_unit}".rstrip()
    return FigureValue("crossover", text, float(amount), sweep.unit.base_unit)


def _shown(amount: Fraction, like: Sequence[Value]) -> str:
    return show(Value(amount, like[0].dimension))
