"""Ranges and lists of values: ``16..65536 x2``, ``8..64 step 8``, ``8, 16, 32``."""

from dataclasses import dataclass
from fractions import Fraction

from ...codes import Code
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.source import Span
from ...text.units import NUMBER, Quantity
from ...text.vocabulary import MAX_DOMAIN_VALUES
from .evaluate import ExpressionEvaluator, Place
from .sentences import Words


@dataclass(frozen=True, slots=True)
class Values:
    """A set of values; ``listed`` is empty for a range without steps, which holds all values between its ends."""

    low: Quantity
    high: Quantity
    listed: tuple[Quantity, ...]
    is_range: bool
    span: Span

    def holds(self, value: Quantity) -> bool:
        """Whether a value lies between the ends of a range, or is one of a list."""
        if value.dimension != self.low.dimension:
            return False
        return self.low.amount <= value.amount <= self.high.amount if self.is_range else value in self.listed


def read_values(words: Words, place: Place, evaluator: ExpressionEvaluator, report: Report) -> Values:
    """Read the values from the next word of ``words`` to the end of the sentence."""
    expressions = words.take_list("a value")
    span = expressions[0].span.to(expressions[-1].span)
    if not any(isinstance(each, ast.Range) for each in expressions):
        words.end()
        members = tuple([evaluator(each, place) for each in expressions])
        _check_same(members, span, report)
        ordered = sorted(members, key=lambda each: each.amount)
        return Values(ordered[0], ordered[-1], members, False, span)
    if len(expressions) > 1 or not isinstance(expressions[0], ast.Range):
        raise report.fail(Code.MGS116, "values are one range, or a list", span)
    return _range(expressions[0], words, place, evaluator, report)


def _range(written: ast.Range, words: Words, place: Place, evaluator: ExpressionEvaluator, report: Report) -> Values:
    low, high = evaluator(written.low, place), evaluator(written.high, place)
    span = written.span
    _check_same((low, high), span, report)
    if low.amount > high.amount:
        raise report.fail(Code.MGS306, f"the range {span.text} is empty", span, "the smaller end stands first")
    following = words.peek()
    if isinstance(following, ast.Name) and following.text[:1] == "x" and following.text[1:].isdigit():
        words.take("a ratio")
        words.end()
        return _geometric(low, high, Fraction(following.text[1:]), span, report)
    if words.take_word("step"):
        step_at = words.take("a step")
        step = evaluator(step_at, place)
        words.end()
        _check_same((low, step), step_at.span, report)
        return _arithmetic(low, high, step.amount, span, report)
    words.end(("x2", "step"))
    return Values(low, high, (), True, span)


def _geometric(low: Quantity, high: Quantity, ratio: Fraction, span: Span, report: Report) -> Values:
    if ratio < 2 or low.amount <= 0:
        raise report.fail(Code.MGS307, "a ratio is 2 or more, and starts from a positive value", span)
    amounts = [low.amount]
    while amounts[-1] * ratio <= high.amount:
        amounts.append(amounts[-1] * ratio)
        _check_count(len(amounts), span, report)
    return _reaching(amounts, low, high, span, report)


def _arithmetic(low: Quantity, high: Quantity, step: Fraction, span: Span, report: Report) -> Values:
    if step <= 0:
        raise report.fail(Code.MGS307, "a step is positive", span)
    count = int((high.amount - low.amount) / step) + 1
    _check_count(count, span, report)
    return _reaching([low.amount + step * idx for idx in range(count)], low, high, span, report)


def _reaching(amounts: list[Fraction], low: Quantity, high: Quantity, span: Span, report: Report) -> Values:
    if amounts[-1] != high.amount:
        report.warn(
            Code.MGS313, f"the steps of {span.text} do not reach its end", span, f"the last value is {amounts[-1]}"
        )
    listed = tuple(Quantity(amount, low.dimension) for amount in amounts)
    return Values(low, high, listed, True, span)


def _check_count(count: int, span: Span, report: Report) -> None:
    if count > MAX_DOMAIN_VALUES:
        message = f"{count:,} values, the limit is {MAX_DOMAIN_VALUES:,}"
        raise report.fail(Code.MGS305, message, span, f"did you mean {span.text} x2?")


def _check_same(values: tuple[Quantity, ...], span: Span, report: Report) -> None:
    kinds = sorted({str(value.dimension) for value in values})
    if len(kinds) > 1:
        raise report.fail(Code.MGS303, f"these values are {' and '.join(kinds)}", span)
    if len(values) > MAX_DOMAIN_VALUES:
        raise report.fail(Code.MGS305, f"{len(values):,} values, the limit is {MAX_DOMAIN_VALUES:,}", span)


def whole_numbers(values: Values, name: str, high: int, report: Report) -> tuple[int, ...]:
    """Return values that must be positive whole numbers without unit; a range without steps has step 1."""
    if values.low.dimension != NUMBER:
        raise report.fail(Code.MGS303, f"{name} is a plain number", values.span)
    if not 1 <= values.low.amount <= values.high.amount <= high:
        raise report.fail(Code.MGS307, f"{name} is from 1 to {high:,}", values.span)
    listed = values.listed or (values.low, values.high)
    if any(each.amount.denominator != 1 for each in listed):
        raise report.fail(Code.MGS309, f"{name} is a whole number", values.span)
    if values.listed:
        return tuple(int(each.amount) for each in listed)
    _check_count(int(values.high.amount - values.low.amount) + 1, values.span, report)
    return tuple(range(int(values.low.amount), int(values.high.amount) + 1))
