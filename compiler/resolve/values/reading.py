"""What readers of statements share: where names are looked up, what expressions are worth, and the report."""

from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Scope
from ...text.units import BYTES, FREQUENCY, NUMBER, RATE, TIME, Dimension, Quantity, exact_text
from ...text.vocabulary import Property
from .evaluate import ExpressionEvaluator, Place


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
        wanted = Property(what, NUMBER, Fraction(low), Fraction(high), whole=True)
        return int(self.number(wanted, expression).amount)


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
