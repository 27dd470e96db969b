"""Expectations: ``expect workload with M = 16 { mine.makespan < 900 us; verdict == serial }``."""

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .expectation import (
    Check,
    Comparison,
    Dimension,
    Expectation,
    Metric,
    MetricOf,
    Relation,
    Speedup,
    Value,
    Verdict,
    VerdictIs,
)
from .figures import check_dimension
from .names import dotted
from .phrases import reject_note, side_by_side, single
from .scenario import TICKS_PER_SECOND
from .tables import ALWAYS_THERE, METRICS
from .units import BYTES, NUMBER, TIME, Quantity
from .units import Dimension as Units

_UNITS = {Dimension.TIME: TIME, Dimension.BYTES: BYTES, Dimension.RATIO: NUMBER}
_DIMENSIONS = {units: dimension for dimension, units in _UNITS.items()}
_EXAMPLE = "mine.makespan < 900 us"
Side = MetricOf | Speedup | Value


class ExpectReader:
    """Reads the expectations about one workload, whose declared schedules are ``schedules``."""

    def __init__(self, schedules: tuple[str, ...], place: Place, evaluator: Evaluator, report: Report) -> None:
        self._schedules = (*schedules, *ALWAYS_THERE)
        self._place, self._evaluator, self._report = place, evaluator, report

    def read(self, question: ast.Expect, workload: str) -> Expectation:
        """Return the expectations of one block."""
        checks: list[Check] = []
        for statement in question.block.statements:
            with self._report.attempt():
                checks.append(self._check(statement))
        bindings = tuple((each.name, single(each.values, self._report).span.text) for each in question.bindings)
        return Expectation(workload, bindings, tuple(checks))

    def _check(self, statement: ast.Define | ast.Say) -> Check:
        if isinstance(statement, ast.Define):
            hint = f"to compare, write ==: {statement.name} == ..."
            raise self._report.fail(
                Code.MGS202, "'=' names a new thing, expect holds comparisons", statement.span, hint
            )
        for group in statement.phrase:
            reject_note(group, self._report)
        match statement.phrase:
            case (ast.Group(parts=(ast.Compare() as compare,)),) if statement.block is None:
                return Check(self._body(compare), statement.span.text, statement.span)
            case (ast.Group(parts=(ast.Compare(right=right), extra, *_)), *_):
                side_by_side(right, extra, self._report)
                raise self._report.stop()
            case _:
                hint = f"for instance {_EXAMPLE}"
                raise self._report.fail(Code.MGS116, "expect holds comparisons", statement.span, hint)

    def _body(self, compare: ast.Compare) -> Comparison | VerdictIs:
        if isinstance(compare.left, ast.Name) and compare.left.text == "verdict":
            return self._verdict(compare)
        if compare.operator == "in":
            return self._within(compare)
        right_side, spread = _without_tolerance(compare.right)
        left, right = self._side(compare.left, right_side), self._side(right_side, compare.left)
        relation = Relation(compare.operator)
        units = self._units_of(left, right, compare)
        if spread is None and relation in (Relation.EQ, Relation.NE) and units is not Dimension.BYTES:
            hint = f"{compare.operator} {right_side.span.text} +- 5 %"
            raise self._report.fail(Code.MGS323, "exact equality of measured-like values", compare.span, hint)
        if spread is None:
            return Comparison(left, relation, right)
        if relation not in (Relation.EQ, Relation.NE):
            raise self._report.fail(
                Code.MGS116, f"a tolerance belongs to == and !=, not to {compare.operator}", spread.span
            )
        tolerance, relative = self._tolerance(spread, units)
        return Comparison(left, relation, right, tolerance=tolerance, relative=relative)

    def _verdict(self, compare: ast.Compare) -> VerdictIs:
        words = [verdict.value for verdict in Verdict]
        match compare.operator, compare.right:
            case "==", ast.Name(text=word) if word in words:
                return VerdictIs(Verdict(word))
            case _:
                hint = f"verdict == serial, or verdict == overlap; verdicts are {listing(words)}"
                raise self._report.fail(Code.MGS116, "a verdict is compared with ==", compare.span, hint)

    def _within(self, compare: ast.Compare) -> Comparison:
        if not isinstance(compare.right, ast.Range):
            raise self._report.fail(Code.MGS116, "'in' takes a range", compare.right.span, "in 1.05..1.70")
        left = self._side(compare.left, compare.right.low)
        low = self._side(compare.right.low, compare.left)
        high = self._side(compare.right.high, compare.left)
        if not isinstance(low, Value) or not isinstance(high, Value):
            raise self._report.fail(Code.MGS116, "the ends of a range are numbers", compare.right.span, "in 1.05..1.70")
        self._units_of(left, low, compare)
        self._units_of(left, high, compare)
        if low.amount > high.amount:
            text = compare.right.span.text
            raise self._report.fail(
                Code.MGS306, f"the range {text} is empty", compare.right.span, "the smaller end stands first"
            )
        return Comparison(left, Relation.WITHIN, low, high=high)

    def _side(self, expression: ast.Expression, other: ast.Expression) -> Side:
        match expression:
            case ast.Member(base=ast.Name() as schedule, name=metric):
                return MetricOf(self._schedule(schedule), self._metric(metric, expression))
            case ast.Call(function=ast.Name(text="speedup")):
                return self._speedup(expression)
            case ast.Name(text=word) if word in [metric.value for metric in Metric]:
                message = f"{word} of which schedule?"
                hint = f"for instance best.{word}; schedules are {listing(self._schedules)}"
                raise self._report.fail(Code.MGS203, message, expression.span, hint)
            case ast.Range() | ast.Spread():
                raise self._report.fail(Code.MGS116, "a range follows 'in', a tolerance '=='", expression.span)
            case _:
                return self._value(expression, other)

    def _value(self, expression: ast.Expression, other: ast.Expression) -> Value:
        value = self._evaluator(expression, self._place)
        names = dotted(other)
        metric = None if names is None or len(names) != 2 else _metric_or_none(names[1])
        if metric is not None:
            check_dimension(metric.value, _UNITS[METRICS[metric]], value, expression, self._report)
        return self._amount(value, expression)

    def _amount(self, value: Quantity, expression: ast.Expression) -> Value:
        if value.dimension not in _DIMENSIONS:
            message = f"a time, a size or a plain number is expected here, got {value.dimension}"
            raise self._report.fail(Code.MGS303, message, expression.span)
        scale = TICKS_PER_SECOND if value.dimension == TIME else 1
        return Value(value.amount * scale, _DIMENSIONS[value.dimension])

    def _tolerance(self, spread: ast.Expression, units: Dimension) -> tuple[Value, bool]:
        value = self._evaluator(spread, self._place)
        if value.amount < 0:
            raise self._report.fail(Code.MGS307, "a tolerance is not negative", spread.span)
        percent = isinstance(spread, ast.Measure) and spread.unit == "%"
        if value.dimension == NUMBER and (percent or units is not Dimension.RATIO):
            return self._amount(value, spread), True
        wanted: Units = _UNITS[units]
        check_dimension("the tolerance", wanted, value, spread, self._report)
        return self._amount(value, spread), False

    def _units_of(self, left: Side, right: Side, compare: ast.Compare) -> Dimension:
        """Return what both sides are measured in; they must agree, and one must be about a schedule."""
        if isinstance(left, Value) and isinstance(right, Value):
            hint = f"for instance {_EXAMPLE}"
            raise self._report.fail(Code.MGS324, "this says nothing about a schedule", compare.span, hint)
        units = _units(left), _units(right)
        if units[0] is not units[1]:
            message = f"cannot compare {_UNITS[units[0]]} with {_UNITS[units[1]]}"
            raise self._report.fail(Code.MGS303, message, compare.span)
        return units[0]

    def _schedule(self, name: ast.Name) -> str:
        if name.text not in self._schedules:
            hint = did_you_mean(name.text, self._schedules) or f"schedules are {listing(self._schedules)}"
            raise self._report.fail(Code.MGS203, f"unknown schedule '{name.text[:64]}'", name.span, hint)
        return name.text

    def _metric(self, word: str, expression: ast.Expression) -> Metric:
        metric = _metric_or_none(word)
        if metric is None:
            known = [each.value for each in Metric]
            guess = did_you_mean(word, known)
            hint = (
                f"{guess or 'metrics are'} {listing(known)}" if not guess else f"{guess}; metrics are {listing(known)}"
            )
            raise self._report.fail(Code.MGS201, f"a schedule has no metric '{word[:64]}'", expression.span, hint)
        return metric

    def _speedup(self, call: ast.Call) -> Speedup:
        values = [single(argument.values, self._report, in_call=True) for argument in call.arguments]
        match values:
            case [ast.Name() as fast, ast.Name() as slow] if not any(argument.name for argument in call.arguments):
                return Speedup(self._schedule(fast), self._schedule(slow))
            case _:
                hint = "speedup(best, serial)"
                raise self._report.fail(Code.MGS116, "speedup takes two schedules", call.span, hint)


def _without_tolerance(side: ast.Expression) -> tuple[ast.Expression, ast.Expression | None]:
    return (side.value, side.tolerance) if isinstance(side, ast.Spread) else (side, None)


def _metric_or_none(word: str) -> Metric | None:
    return Metric(word) if word in [metric.value for metric in Metric] else None


def _units(side: Side) -> Dimension:
    match side:
        case MetricOf(metric=metric):
            return METRICS[metric]
        case Speedup():
            return Dimension.RATIO
        case Value(dimension=dimension):
            return dimension
