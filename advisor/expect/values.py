"""Values of terms: figures of simulated schedules, combined in exact arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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
)
from ...compiler.resolve.expect.terms import dimension_of
from ...compiler.text.quantities import bytes_text, rate_text, us_text
from ...compiler.text.units import fits
from ...simcore import Result
from .simulations import BOUND, ExpectationError, Simulated

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

    runs: Simulated
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


def percentile(values: Sequence[Fraction], percent: Fraction) -> Fraction:
    """Return the nearest-rank percentile: the least value such that ``percent`` % of all are not above it."""
    rank = -(-percent * len(values) // 100)
    return sorted(values)[max(1, int(rank)) - 1]


def mean(values: Sequence[Fraction]) -> Fraction:
    """Return the arithmetic mean."""
    return sum(values, Fraction(0)) / len(values)


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
            return FigureValue(name, us_text(number, 2), number, "us")
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
