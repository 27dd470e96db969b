"""Parameters: what a file leaves open, with the values they may take."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...codes import Code
from ...ir import Settings
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean
from ...text.names import Entry, Kind, Scope
from ...text.parsing.parse import parse_value
from ...text.quantities import exact_text
from ...text.source import Source, Span
from ...text.units import Quantity
from .domains import read_values
from .evaluate import ExpressionEvaluator, Place
from .sentences import Words, single

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
            expression = single(parse_value(source, report), report)
            bound[name] = evaluator(expression, Place(scope))
    return bound


def check_params(
    scope: Scope, settings: Mapping[str, Quantity], evaluator: ExpressionEvaluator, report: Report
) -> tuple[Param, ...]:
    """Check every parameter against its domain and describe it."""
    params: list[Param] = []
    for entry in scope.of_kind(Kind.PARAM):
        with report.attempt():
            params.append(_param(entry, settings, evaluator, report))
    return tuple(params)


def _param(entry: Entry, settings: Mapping[str, Quantity], evaluator: ExpressionEvaluator, report: Report) -> Param:
    param = entry.declaration
    assert isinstance(param, ast.Param)
    default = single(param.values, report)
    value = evaluator(ast.Name(param.name, span=default.span), Place(entry.scope))
    text = default.span.text if entry.name not in settings else exact_text(value)
    if param.domain is None:
        return Param(param.name, text, default=default.span.text, quantity=value)
    # The domain does not depend on the settings of other parameters.
    domain = read_values(Words(param.domain, report), Place(entry.scope), ExpressionEvaluator(report, {}), report)
    written = param.domain[0].span.to(param.domain[-1].span).text
    if not domain.holds(value):
        verb = "is set to" if entry.name in settings else "is"
        message = f"{param.name} {verb} {exact_text(value)}, its domain is {written}"
        raise report.fail(Code.MGS311, message, default.span)
    choices = tuple(exact_text(each) for each in domain.listed)
    return Param(param.name, text, written, choices, default.span.text, value)
