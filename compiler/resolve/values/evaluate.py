"""Exact evaluation of expressions: rational numbers with dimensions, never a float; what readers of them share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean
from ...text.names import Entry, Kind, Scope, dotted
from ...text.units import BYTES, FREQUENCY, NUMBER, RATE, TIME, UNITS, Dimension, Quantity, exact, exact_text, fits
from ...text.vocabulary import Property
from .words import single

MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Place:
    """The surroundings of an expression: its scope, and in a device the clock in Hz and the parent's numbers."""

    scope: Scope
    clock: Fraction | None = None
    base: Mapping[str, Quantity] | None = None


class ExpressionEvaluator:
    """Evaluates expressions under one setting of the parameters; each ``let`` is computed once.

    ``seed`` is that of drawn routings, None as the text says.
    """

    def __init__(self, report: Report, settings: Mapping[str, Quantity], seed: int | None = None) -> None:
        self.seed = seed
        self._report = report
        self._settings = settings
        self._values: dict[Entry, Quantity | None] = {}
        self._open: list[Entry] = []
        self._depth = 0

    def __call__(self, expression: ast.Expression, place: Place) -> Quantity:
        """Return the value of an expression; an error is reported and leaves the attempt."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise self._report.fail(Code.MGS132, "values that need each other, too deep", expression.span)
            value = self._evaluate(expression, place)
        finally:
            self._depth -= 1
        if not fits(value.amount):
            raise self._report.fail(Code.MGS135, "this number has more than a thousand digits", expression.span)
        return value

    def _evaluate(self, expression: ast.Expression, place: Place) -> Quantity:
        match expression:
            case ast.NumberNode(text=text):
                return Quantity(exact(text))
            case ast.Measure():
                return self._measure(expression, place)
            case ast.Name():
                return self._named(place.scope.value(expression, self._report), expression.span)
            case ast.Negate(operand=operand):
                value = self(operand, place)
                return Quantity(-value.amount, value.dimension)
            case ast.Parens(items=(item,)):
                return self(item, place)
            case ast.ChainNode():
                return self._chain(expression, place)
            case ast.Call(function=ast.Name(text=name)):
                return self._function(name, expression, place)
            case ast.Member():
                return self._base(expression, place)
            case _:
                raise self._report.fail(Code.MGS116, "a number is expected here", expression.span)

    def _measure(self, measure: ast.Measure, place: Place) -> Quantity:
        unit = UNITS[measure.unit]
        amount = exact(measure.number) * unit.factor
        if unit.cycles:
            if place.clock is None:
                hint = "cycles belong to the clock of the gpu in whose block they stand"
                raise self._report.fail(Code.MGS308, "cycles without a clock", measure.span, hint)
            amount = amount / place.clock if unit.cycles > 0 else amount * place.clock
        return Quantity(amount, unit.dimension)

    def _named(self, entry: Entry, span: Span) -> Quantity:
        if entry.kind is Kind.PARAM and entry.name in self._settings:
            return self._settings[entry.name]
        if entry in self._open:
            names = " -> ".join([each.name for each in self._open[self._open.index(entry) :]] + [entry.name])
            self._report.error(Code.MGS205, f"'{entry.name}' needs its own value: {names}", span)
            self._values[entry] = None
        elif entry not in self._values:
            self._define(entry)
        value = self._values[entry]
        if value is None:
            raise self._report.stop()
        return value

    def _define(self, entry: Entry) -> None:
        assert isinstance(entry.declaration, ast.Let | ast.ParamNode)
        self._values.setdefault(entry, None)
        self._open.append(entry)
        with self._report.attempt():
            self._values[entry] = self(single(entry.declaration.values, self._report), Place(entry.scope))
        self._open.pop()

    def _chain(self, chain: ast.ChainNode, place: Place) -> Quantity:
        total, so_far = self(chain.first, place), chain.first.span
        for operator, operand in chain.rest:
            total = self._apply(operator, total, self(operand, place), so_far.to(operand.span))
            so_far = so_far.to(operand.span)
        return total

    def _apply(self, operator: str, left: Quantity, right: Quantity, span: Span) -> Quantity:
        if operator in "+-":
            if left.dimension != right.dimension:
                verb, join = ("add", "and") if operator == "+" else ("subtract", "and")
                message = f"cannot {verb} {left.dimension} {join} {right.dimension}"
                raise self._report.fail(Code.MGS303, message, span, f"this '{operator}' joins different things")
            amount = left.amount + right.amount if operator == "+" else left.amount - right.amount
            value = Quantity(amount, left.dimension)
        elif operator == "*":
            value = Quantity(left.amount * right.amount, left.dimension + right.dimension)
        else:
            if not right.amount:
                raise self._report.fail(Code.MGS312, "division by zero", span)
            value = Quantity(left.amount / right.amount, left.dimension - right.dimension)
        if not fits(value.amount):
            raise self._report.fail(Code.MGS135, "this number has more than a thousand digits", span)
        return value

    def _function(self, name: str, call: ast.Call, place: Place) -> Quantity:
        function = _FUNCTIONS.get(name)
        if function is None:
            hint = did_you_mean(name, _FUNCTIONS) or "functions are " + ", ".join(_FUNCTIONS)
            raise self._report.fail(Code.MGS204, f"unknown function '{name[:64]}'", call.span, hint)
        arguments = [self(single(each.values, self._report, in_call=True), place) for each in call.arguments]
        if (
            not arguments
            or any(each.name for each in call.arguments)
            or (len(arguments) > 1) != (name in ("min", "max"))
        ):
            count = "two or more values" if name in ("min", "max") else "one value"
            raise self._report.fail(Code.MGS116, f"{name} takes {count}", call.span)
        if len({argument.dimension for argument in arguments}) > 1:
            kinds = " and ".join(sorted({str(argument.dimension) for argument in arguments}))
            raise self._report.fail(Code.MGS303, f"{name} cannot compare {kinds}", call.span)
        dimension = arguments[0].dimension
        if name in ("ceil", "floor", "log2") and dimension != NUMBER:
            raise self._report.fail(Code.MGS303, f"{name} takes a plain number, got {dimension}", call.span)
        amount = function([argument.amount for argument in arguments])
        if amount is None:
            raise self._report.fail(
                Code.MGS309, "log2 of this is not a whole number", call.span, "log2 takes powers of two"
            )
        return Quantity(amount, dimension)

    def _base(self, member: ast.Member, place: Place) -> Quantity:
        names = dotted(member)
        if names is None or names[0] != "base":
            raise self._report.fail(Code.MGS116, "a number is expected here", member.span)
        if place.base is None:
            raise self._report.fail(Code.MGS203, "'base' exists only in a device that extends another", member.span)
        path = ".".join(names[1:])
        if path not in place.base:
            raise self._report.fail(
                Code.MGS201, f"the parent has no '{path[:64]}'", member.span, did_you_mean(path, place.base)
            )
        return place.base[path]


def clock_of(figures: Mapping[str, Quantity]) -> Fraction | None:
    """Return the clock in Hz, if it is among the numbers."""
    clock = figures.get("clock")
    return clock.amount if clock is not None and clock.dimension == FREQUENCY else None


def _log2(values: list[Fraction]) -> Fraction | None:
    value = values[0]
    if value <= 0 or 1 not in (value.numerator, value.denominator):
        return None
    power, sign = (value.numerator, 1) if value.denominator == 1 else (value.denominator, -1)
    return Fraction(sign * (power.bit_length() - 1)) if power & (power - 1) == 0 else None


_FUNCTIONS: Mapping[str, Callable[[list[Fraction]], Fraction | None]] = {
    "min": min,
    "max": max,
    "ceil": lambda values: Fraction(-(-values[0].numerator // values[0].denominator)),
    "floor": lambda values: Fraction(values[0].numerator // values[0].denominator),
    "log2": _log2,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The shared context of readers of statements: place, evaluator and report."""

    place: Place
    evaluator: ExpressionEvaluator
    report: Report

    def inside(self, scope: Scope) -> "Reading":
        """The context of what stands in ``scope``."""
        return replace(self, place=Place(scope))

    def value(self, expression: ast.Expression) -> Quantity:
        """Return the value of an expression at the place."""
        return self.evaluator(expression, self.place)

    def number(self, wanted: Property, expression: ast.Expression) -> Quantity:
        """Evaluate a number and check its unit and its range."""
        value = self.value(expression)
        check_dimension(wanted.name, wanted.dimension, value, expression, self.report)
        if not wanted.low <= value.amount <= wanted.high:
            message = f"{wanted.name} is {_range_words(wanted)}, got {_text_and_value(expression, value)}"
            raise self.report.fail(Code.MGS307, message, expression.span)
        if wanted.whole and value.amount.denominator != 1:
            of = {BYTES: " of bytes", FREQUENCY: " of Hz"}.get(wanted.dimension, "")
            message = f"{wanted.name} is a whole number{of}, not {_text_and_value(expression, value)}"
            raise self.report.fail(Code.MGS309, message, expression.span)
        return value

    def count(self, what: str, low: int, high: int, expression: ast.Expression) -> int:
        """Evaluate a plain whole number between two ends."""
        return int(self.number(Property(what, NUMBER, Fraction(low), Fraction(high), whole=True), expression).amount)


def check_dimension(name: str, wanted: Dimension, value: Quantity, expression: ast.Expression, report: Report) -> None:
    """Check the dimension of the value of ``name``; a number without unit has a message of its own."""
    if value.dimension == wanted:
        return
    text = expression.span.text
    if value.dimension == NUMBER:
        if wanted == RATE:
            message, hint = (
                f"{name} needs a unit of bytes or bits per time",
                f"write {text} GB/s (bytes) or {text} Gb/s (bits)",
            )
        else:
            message, hint = f"{name} is {_article(wanted)}: {text} what?", f"for instance {text} {wanted.example}"
        raise report.fail(Code.MGS301, message, expression.span, hint)
    hint = "did you swap it with latency?" if value.dimension == TIME and wanted == RATE else ""
    hint = "did you swap it with bandwidth?" if value.dimension == RATE and wanted == TIME else hint
    raise report.fail(Code.MGS303, f"{name} is {_article(wanted)}, got {value.dimension}", expression.span, hint)


def _text_and_value(expression: ast.Expression, value: Quantity) -> str:
    """Return the text of an expression and, if that is no plain number, its value: ``M = 0``."""
    number = expression.operand if isinstance(expression, ast.Negate) else expression
    text = expression.span.text
    return text if isinstance(number, ast.NumberNode | ast.Measure) else f"{text} = {exact_text(value)}"


def _article(dimension: Dimension) -> str:
    return "a time" if dimension == TIME else "a number of bytes" if dimension == BYTES else str(dimension)


def _range_words(wanted: Property) -> str:
    def shown(end: Fraction) -> str:
        return f"{int(end):,}" if end.denominator == 1 and end < 10**10 else f"{float(end):g}"

    return f"from {shown(wanted.low)} to {shown(wanted.high)} {wanted.dimension.base_unit}".rstrip()
