"""Statements of an expectation: comparisons, ``mine.makespan < 900 us``, and those about all points of a sweep."""

from fractions import Fraction

from ...codes import Code
from ...ir import End, FigureKind, Metric, MetricOf, Speedup, Term, Value
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Kind, dotted
from ...text.units import NUMBER, Quantity, exact_text
from ...text.units import Dimension as Units
from ..values.evaluate import Reading, check_dimension
from ..values.params import Values, read_values
from ..values.words import Words, single
from .expectation import (
    ON_ALGORITHM,
    Comparison,
    Crossover,
    Inside,
    Linear,
    Relation,
    SweptValue,
    Trend,
    TrendDirection,
    Verdict,
    VerdictIs,
    WinnerChanges,
)
from .terms import UNITS, TermReader, dimension_of, figures_of, metric_or_none

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
            raise self._report.fail(Code.MGS323, "equality without a tolerance", compare.span, hint)
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
                raise self._report.fail(Code.MGS116, f"{word} is no verdict on {about}", compare.right.span, hint)
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
        if isinstance(spread, ast.NumberNode) and units is not FigureKind.RATIO:
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


MAX_POINTS = 64
MIN_SHAPE_POINTS = 3
TOLERANCE = Fraction(1, 100)
LEAST_R2 = Fraction(98, 100)
_EXAMPLE = "sweep M in 1024..65536 x2 { mine.makespan rising }"
_TREND, _EXTREME = "mine.makespan rising +- 1 %", "mine.makespan minimum inside"
_LINEAR = "mine.makespan linear r2 >= 0.98"
_ENDS = {"minimum": End.LEAST, "maximum": End.GREATEST}
SHAPES = (*(direction.value for direction in TrendDirection), "linear", *_ENDS, "changes")


def read_domain(statement: ast.Say, reading: Reading) -> tuple[ast.Name, str, Values, tuple[SweptValue, ...]]:
    """Return the parameter, the text of its domain, the values, and the points in rising order."""
    first, report = statement.phrase[0], reading.report
    match first.parts:
        case (_, ast.Compare(left=ast.Name() as name, operator="in", right=domain), *rest):
            pass
        case _:
            raise report.fail(Code.MGS116, "sweep says a parameter and its values", first.span, _EXAMPLE)
    if reading.place.scope.value(name, report).kind is not Kind.PARAM:
        hint = f"make it one: param {name.text} = ..."
        raise report.fail(Code.MGS210, f"'{name.text}' is a let, a sweep sets a parameter", name.span, hint)
    group = ast.GroupNode((domain, *rest), first.note, span=domain.span.to(first.span))
    values = read_values(Words((group, *statement.phrase[1:]), report), reading)
    points = _points(values, report)
    now = reading.value(name)
    if now.dimension != values.low.dimension:
        message = f"{name.text} is {now.dimension}, the values are {values.low.dimension}"
        raise report.fail(Code.MGS303, message, values.span)
    return name, domain.span.to(statement.phrase[-1].span).text, values, points


def _points(values: Values, report: Report) -> tuple[SweptValue, ...]:
    text = values.span.text
    if not values.listed:
        raise report.fail(Code.MGS325, f"which values of {text}?", values.span, f"for instance {text} x2")
    ordered = sorted({each.amount for each in values.listed})
    if len(ordered) > MAX_POINTS:
        message = f"{len(ordered)} points, a sweep has {MAX_POINTS} at most"
        raise report.fail(Code.MGS305, message, values.span, "take larger steps")
    return tuple(SweptValue(exact_text(Quantity(each, values.low.dimension)), each) for each in ordered)


class ShapeReader:
    """Reads statements about all points of a sweep together."""

    def __init__(self, terms: TermReader, unit: Units, num_points: int, reading: Reading) -> None:
        self._terms, self._unit, self._num_points = terms, unit, num_points
        self._reading, self._report = reading, reading.report

    def shape(self, parts: tuple[ast.Expression, ...]) -> Trend | Linear | Inside | WinnerChanges | None:
        """Return the shape that a statement describes, None if it is another kind of statement."""
        match parts:
            case (ast.Call(function=ast.Name(text="winner")) as call, ast.Name(text="changes")):
                return self._winner(call)
            case (subject, ast.Name(text=word), *rest) | (subject, ast.Spread(value=ast.Name(text=word)), *rest):
                pass
            case _:
                return None
        if word not in SHAPES:
            guess = did_you_mean(word, SHAPES) or f"shapes are {listing(SHAPES)}"
            raise self._report.fail(Code.MGS116, f"'{word[:64]}' is no shape", parts[1].span, guess)
        self._check_count(parts[1])
        if word in [direction.value for direction in TrendDirection]:
            self._end(rest, _TREND)
            tolerance = self._tolerance(without_tolerance(parts[1])[1])
            return Trend(self._terms.about_schedule(subject, _TREND), TrendDirection(word), tolerance)
        if isinstance(parts[1], ast.Spread):
            hint = f"for instance {_LINEAR if word == 'linear' else _EXTREME}"
            raise self._report.fail(Code.MGS116, f"{word} takes no tolerance", parts[1].span, hint)
        if word == "linear":
            return Linear(self._terms.about_schedule(subject, _LINEAR), self._least_r2(rest))
        if word in _ENDS and rest and isinstance(rest[0], ast.Name) and rest[0].text == "inside":
            self._end(rest[1:], _EXTREME)
            return Inside(self._terms.about_schedule(subject, _EXTREME), _ENDS[word])
        if word == "changes":
            raise self._report.fail(Code.MGS116, "only the winner can change", parts[1].span, "winner(a, b) changes")
        raise self._report.fail(Code.MGS116, f"{word} where?", parts[1].span, f"mine.makespan {word} inside")

    def crossover(self, compare: ast.Compare, call: ast.Call) -> Crossover:
        """Return ``crossover(a, b) in low..high``."""
        values = [single(argument.values, self._report, in_call=True) for argument in call.arguments]
        if len(values) != 2 or compare.operator != "in" or not isinstance(compare.right, ast.Range):
            hint = "crossover(a.makespan, b.makespan) in 4096..16384"
            raise self._report.fail(Code.MGS116, "a crossover of two figures lies in a range", compare.span, hint)
        example = "crossover(a.makespan, b.makespan)"
        left, right = (self._terms.about_schedule(value, example) for value in values)
        if dimension_of(left) is not dimension_of(right):
            message = f"cannot compare {UNITS[dimension_of(left)]} with {UNITS[dimension_of(right)]}"
            raise self._report.fail(Code.MGS303, message, call.span)
        low, high = (self._swept(end) for end in (compare.right.low, compare.right.high))
        if low > high:
            text = compare.right.span.text
            hint = "the smaller end stands first"
            raise self._report.fail(Code.MGS306, f"the range {text} is empty", compare.right.span, hint)
        return Crossover(left, right, low, high)

    def _swept(self, end: ast.Expression) -> Fraction:
        value = self._reading.value(end)
        if value.dimension != self._unit:
            message = f"the ends are values of the swept parameter, {self._unit}, got {value.dimension}"
            raise self._report.fail(Code.MGS303, message, end.span)
        return value.amount

    def _winner(self, call: ast.Call) -> WinnerChanges:
        if self._terms.under_seeds:
            hint = "compare percentiles: p50(a.makespan) < p50(b.makespan)"
            raise self._report.fail(Code.MGS331, "winner has no seeds to choose from", call.span, hint)
        values = [single(argument.values, self._report, in_call=True) for argument in call.arguments]
        names = [value for value in values if isinstance(value, ast.Name)]
        if len(names) < 2 or len(names) != len(values):
            hint = "winner(a, b, c) changes"
            raise self._report.fail(Code.MGS116, "winner takes two schedules or more", call.span, hint)
        return WinnerChanges(tuple(self._terms.schedule(name) for name in names))

    def _tolerance(self, spread: ast.Expression | None) -> Fraction:
        if spread is None:
            return TOLERANCE
        value = self._reading.value(spread)
        if value.dimension != NUMBER:
            hint = "for instance +- 1 %"
            raise self._report.fail(Code.MGS303, "the tolerance of a shape is relative", spread.span, hint)
        if value.amount < 0:
            raise self._report.fail(Code.MGS307, "a tolerance is not negative", spread.span)
        return value.amount

    def _least_r2(self, rest: list[ast.Expression]) -> Fraction:
        match rest:
            case []:
                return LEAST_R2
            case [ast.Compare(left=ast.Name(text="r2"), operator=">=", right=right)]:
                value = self._reading.value(right)
            case [wrong, *_]:
                raise self._report.fail(Code.MGS116, "linear says how straight the line is", wrong.span, _LINEAR)
        if value.dimension != NUMBER or not 0 <= value.amount <= 1:
            raise self._report.fail(Code.MGS307, "r2 is a number from 0 to 1", right.span)
        return value.amount

    def _check_count(self, word: ast.Expression) -> None:
        if self._num_points < MIN_SHAPE_POINTS:
            message = f"a shape needs {MIN_SHAPE_POINTS} points or more, the sweep has {self._num_points}"
            raise self._report.fail(Code.MGS326, message, word.span)

    def _end(self, rest: list[ast.Expression], example: str) -> None:
        if rest:
            raise self._report.fail(Code.MGS116, f"'{rest[0].span.text[:40]}' cannot stand here", rest[0].span, example)
