"""Comparisons of an expectation: ``mine.makespan == 800 us +- 5 %``, ``speedup(best, serial) in 1.05..1.70``."""

from ...codes import Code
from ...ir import FigureKind, Metric, MetricOf, Speedup, Term, Value
from ...text import syntax as ast
from ...text.diagnostics import listing
from ...text.names import dotted
from ...text.units import NUMBER
from ..values.device_numbers import check_dimension
from ..values.evaluate import Reading
from .expectation import ON_ALGORITHM, Comparison, Relation, Verdict, VerdictIs
from .terms import TermReader
from .units import UNITS, dimension_of, figures_of, metric_or_none

EXAMPLE = "mine.makespan < 900 us"


_TURNED = {Relation.LE: Relation.GE, Relation.LT: Relation.GT}


class ComparisonReader:
    """Reads comparisons between the terms that ``terms`` reads; ``verdicts`` are those on the workload."""

    def __init__(self, terms: TermReader, reading: Reading, verdicts: tuple[Verdict, ...]) -> None:
        self._terms, self._reading, self._report = terms, reading, reading.report
        self._verdicts = verdicts

    def read(self, compare: ast.Compare) -> Comparison:
        """Return a comparison; an error is reported and leaves the attempt."""
        if compare.operator == "in":
            return self._within(compare)
        right_side, spread = without_tolerance(compare.right)
        left, right = self._side(compare.left, right_side), self._side(right_side, compare.left)
        relation = Relation(compare.operator)
        units = self._units_of(left, right, compare)
        equality = relation in (Relation.EQ, Relation.NE)
        if spread is None and equality and not (_is_exact(left) and _is_exact(right)):
            hint = f"{compare.operator} {right_side.span.text} +- 5 %"
            raise self._report.fail(Code.MGS323, "exact equality of measured-like values", compare.span, hint)
        if spread is None:
            self._warn_of_zero(left, relation, right, compare)
            return Comparison(left, relation, right)
        if not equality:
            message = f"a tolerance belongs to == and !=, not to {compare.operator}"
            raise self._report.fail(Code.MGS116, message, spread.span)
        tolerance, relative = self._tolerance(spread, units)
        if relative and tolerance.amount >= 1:
            message = f"a tolerance of {spread.span.text} holds for nearly any value"
            self._report.warn(Code.MGS215, message, spread.span, "for instance +- 5 %")
        return Comparison(left, relation, right, tolerance=tolerance, relative=relative)

    def verdict(self, compare: ast.Compare) -> VerdictIs:
        """Return ``verdict == word``."""
        words = [verdict.value for verdict in self._verdicts]
        hint = f"for instance verdict == {words[-1]}; verdicts are {listing(words)}"
        match compare.operator, compare.right:
            case "==", ast.Name(text=word) if word in words:
                return VerdictIs(Verdict(word))
            case "==", ast.Name(text=word):
                about = "a collective alone" if self._verdicts is ON_ALGORITHM else "anything but a collective alone"
                message = f"{word} is no verdict on {about}"
                raise self._report.fail(Code.MGS116, message, compare.right.span, hint)
            case _:
                raise self._report.fail(Code.MGS116, "a verdict is compared with ==", compare.span, hint)

    def _warn_of_zero(self, left: Term, relation: Relation, right: Term, compare: ast.Compare) -> None:
        """Warn where a figure, which is never below zero, is said to be zero at least."""
        if relation in (Relation.LE, Relation.LT):
            left, relation, right = right, _TURNED[relation], left
        least = right.amount if isinstance(right, Value) else None
        below = least is not None and (least < 0 or (least == 0 and relation is Relation.GE))
        if isinstance(left, MetricOf | Speedup) and relation in (Relation.GE, Relation.GT) and below:
            message = f"{compare.span.text} holds for any value: no figure is below zero"
            self._report.warn(Code.MGS215, message, compare.span, "compare with what is expected")

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

    def _side(self, expression: ast.Expression, other: ast.Expression) -> Term:
        """Read one side; a number beside a bare figure must have the unit of that figure."""
        names = dotted(other)
        metric = None if names is None or len(names) != 2 else metric_or_none(names[1])
        term = self._terms.read(expression)
        if isinstance(term, Value) and metric is not None:
            value = self._reading.value(expression)
            check_dimension(metric.value, UNITS[metric.kind], value, expression, self._report)
        return term

    def _tolerance(self, spread: ast.Expression, units: FigureKind) -> tuple[Value, bool]:
        value = self._reading.value(spread)
        if value.amount < 0:
            raise self._report.fail(Code.MGS307, "a tolerance is not negative", spread.span)
        if isinstance(spread, ast.Number) and units is not FigureKind.RATIO:
            text = spread.span.text
            hint = f"{text} %, or for instance {text} {UNITS[units].example}"
            raise self._report.fail(Code.MGS301, f"a tolerance of {text} what?", spread.span, hint)
        percent = isinstance(spread, ast.Measure) and spread.unit == "%"
        if value.dimension == NUMBER and (percent or units is not FigureKind.RATIO):
            return self._terms.amount(value, spread), True
        check_dimension("the tolerance", UNITS[units], value, spread, self._report)
        return self._terms.amount(value, spread), False

    def _units_of(self, left: Term, right: Term, compare: ast.Compare) -> FigureKind:
        """Return the kind of both sides, which must agree; one side must be about a schedule."""
        if not any(True for side in (left, right) for _ in figures_of(side)):
            hint = f"for instance {EXAMPLE}"
            raise self._report.fail(Code.MGS324, "this says nothing about a schedule", compare.span, hint)
        units = dimension_of(left), dimension_of(right)
        if units[0] is not units[1]:
            message = f"cannot compare {UNITS[units[0]]} with {UNITS[units[1]]}"
            raise self._report.fail(Code.MGS303, message, compare.span)
        return units[0]


def without_tolerance(side: ast.Expression) -> tuple[ast.Expression, ast.Expression | None]:
    """Split ``value +- tolerance``."""
    return (side.value, side.tolerance) if isinstance(side, ast.Spread) else (side, None)


def _is_exact(side: Term) -> bool:
    """Whether a side holds only values and counts, which may be equal without a tolerance."""
    return all(isinstance(figure, MetricOf) and _is_count(figure.metric) for figure in figures_of(side))


def _is_count(metric: Metric) -> bool:
    return metric.kind is FigureKind.BYTES or metric in (Metric.FLAG_READS, Metric.LINE_HOPS)
