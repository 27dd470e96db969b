"""Parameters: what a file leaves open, the values that they may take, and those that a command sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod

from ...codes import Code
from ...ir import Settings
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, Span, did_you_mean, raising_errors
from ...text.names import Entry, Kind, Scope
from ...text.parsing.parse import parse_file, parse_value
from ...text.units import NUMBER, Quantity, exact_text
from ...text.vocabulary import MAX_DOMAIN_VALUES
from .evaluate import ExpressionEvaluator, Place, Reading
from .words import Words, single


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


def read_values(words: Words, reading: Reading) -> Values:
    """Read the values from the next word of ``words`` to the end of the sentence."""
    expressions, report = words.take_list("a value"), reading.report
    span = expressions[0].span.to(expressions[-1].span)
    if not any(isinstance(each, ast.Range) for each in expressions):
        words.end()
        members = tuple([reading.value(each) for each in expressions])
        _check_same(members, span, report)
        ordered = sorted(members, key=lambda each: each.amount)
        return Values(ordered[0], ordered[-1], members, False, span)
    if len(expressions) > 1 or not isinstance(expressions[0], ast.Range):
        raise report.fail(Code.MGS116, "values are one range, or a list", span)
    return _range(expressions[0], words, reading)


def _range(written: ast.Range, words: Words, reading: Reading) -> Values:
    low, high = reading.value(written.low), reading.value(written.high)
    span, report = written.span, reading.report
    _check_same((low, high), span, report)
    if low.amount > high.amount:
        raise report.fail(Code.MGS306, f"the range {span.text} is empty", span, "the smaller end stands first")
    following = words.peek()
    if isinstance(following, ast.Name) and following.text[:1] == "x" and following.text[1:].isdigit():
        words.take("a ratio")
        words.end()
        return _geometric(low, high, Fraction(following.text[1:]), span, report)
    if words.take_word("step"):
        step_at = words.only("a step")
        step = reading.value(step_at)
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


_NOTHING = Quantity(Fraction(0))


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a file: its current value, and the values that its domain lists.

    ``value`` and ``choices`` are texts that ``--set`` takes. ``choices`` is empty without a domain, or if that is
    a range without steps; ``domain`` is the text of the domain, empty if there is none. ``default`` is the value that
    the file gives, as it is written, and ``quantity`` what ``value`` amounts to.
    """

    name: str
    value: str
    domain: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    quantity: Quantity = _NOTHING


PLAIN_DIGITS = 15
"""Digits of a whole number that is within all limits."""


def bind(scope: Scope, settings: Settings, report: Report) -> Mapping[str, Quantity]:
    """Evaluate the settings of parameters; the last setting of a name counts."""
    bound: dict[str, Quantity] = {}
    evaluator = ExpressionEvaluator(report, {})
    for name, text in settings:
        source = Source(f"--set {name}", text)
        span = Span(source, 0, len(text))
        with report.attempt():
            if name not in scope.names(Kind.PARAM):
                known = scope.names(Kind.PARAM)
                hint = did_you_mean(name, known) or f"parameters are: {', '.join(known) or 'none'}"
                raise report.fail(Code.MGS203, f"unknown parameter '{name[:64]}'", span, hint)
            if len(text) <= PLAIN_DIGITS and text.isascii() and text.isdigit():  # most are: not worth a parser
                bound[name] = Quantity(Fraction(int(text)))
                continue
            bound[name] = evaluator(single(parse_value(source, report), report), Place(scope))
    return bound


def check_params(settings: Mapping[str, Quantity], reading: Reading) -> tuple[Param, ...]:
    """Check every parameter of a file against its domain and describe it."""
    params: list[Param] = []
    for entry in reading.place.scope.of_kind(Kind.PARAM):
        with reading.report.attempt():
            params.append(_param(entry, settings, reading))
    return tuple(params)


def _param(entry: Entry, settings: Mapping[str, Quantity], reading: Reading) -> Param:
    param, report = entry.declaration, reading.report
    assert isinstance(param, ast.ParamNode)
    default = single(param.values, report)
    value = reading.value(ast.Name(param.name, span=default.span))
    text = default.span.text if entry.name not in settings else exact_text(value)
    if param.domain is None:
        return Param(param.name, text, default=default.span.text, quantity=value)
    # The domain does not depend on the settings of other parameters.
    domain = read_values(Words(param.domain, report), replace(reading, evaluator=ExpressionEvaluator(report, {})))
    written = param.domain[0].span.to(param.domain[-1].span).text
    if not domain.holds(value):
        verb = "is set to" if entry.name in settings else "is"
        message = f"{param.name} {verb} {exact_text(value)}, its domain is {written}"
        raise report.fail(Code.MGS311, message, default.span)
    choices = tuple(exact_text(each) for each in domain.listed)
    return Param(param.name, text, written, choices, default.span.text, value)


MAX_POINTS = 1024
_NAME, _STEPS = "swept", " x2"


def is_swept(text: str) -> bool:
    """Whether the text of a setting has several values: a range or a list."""
    return ".." in text or "," in text


def points_of(settings: Settings, params: Sequence[Param]) -> tuple[Settings, ...]:
    """Return the settings of each point: every combination of the values that ``settings`` give.

    A range without steps has the values of the parameter's own domain in ``params`` that lie in it; without such a
    domain its steps are x2.

    Raises
    ------
    CompileError
        If a text has no values, or there are too many points.
    """
    choices = {param.name: param.choices for param in params}
    values: list[list[tuple[str, str]]] = []
    with raising_errors() as report:
        for name, text in settings:
            with report.attempt():
                given = _values(name, text, choices.get(name, ()), report) if is_swept(text) else (text,)
                values.append([(name, each) for each in given])
        count = prod(map(len, values))
        if count > MAX_POINTS:
            span, message = Span(Source("--set", ""), 0, 0), f"{count:,} points, the limit is {MAX_POINTS:,}"
            report.error(Code.MGS305, message, span, "take larger steps")
    return tuple(product(*values))


def _values(name: str, text: str, choices: Sequence[str], report: Report) -> tuple[str, ...]:
    found = _read(name, text, report)
    if not found.listed:
        own = [each for each in choices if found.holds(_quantity(name, each, report))]
        if own:
            return tuple(own)
        found = _read(name, text, report, _STEPS)
    return tuple(exact_text(each) for each in found.listed)


def _read(name: str, text: str, report: Report, steps: str = "") -> Values:
    """Read values as they stand behind ``in`` of a parameter, with ``steps`` that nobody wrote."""
    head, found, own = f"param {_NAME} = 0 in ", None, report.beside()
    with own.trial():
        found = _domain(name, Source(f"--set {name}", f"{head}{text}{steps}"), own)
    written = Source(f"--set {name}", text)
    for each in own.errors:  # are told of what was written
        start, end = (min(max(0, at - len(head)), len(text)) for at in (each.span.start, each.span.end))
        report.error(each.code, each.message, Span(written, start, end), each.hint)
    if found is None:
        raise report.stop()
    return found


def _domain(name: str, source: Source, report: Report) -> Values:
    match parse_file(source, report).declarations:
        case (ast.ParamNode(domain=tuple(phrase)),) if phrase:
            return read_values(Words(phrase, report), Reading(Place(Scope()), ExpressionEvaluator(report, {}), report))
    if report.has_errors:
        raise report.stop()
    hint = f"for instance {name}=16..65536 x2, or {name}=16,64,256"
    raise report.fail(Code.MGS116, "these are no values", Span(source, 0, len(source.text)), hint)


def _quantity(name: str, text: str, report: Report) -> Quantity:
    return _read(name, text, report).low
