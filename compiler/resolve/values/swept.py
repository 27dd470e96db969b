"""The values of a parameter that a command sweeps, ``--set M=16..65536``."""

from collections.abc import Sequence
from itertools import product

from ...codes import Code
from ...ir import Settings
from ...text import syntax as ast
from ...text.diagnostics import CompileError, Report
from ...text.names import Scope
from ...text.parsing.parse import parse_file
from ...text.quantities import exact_text
from ...text.source import Source, Span
from ...text.units import Quantity
from .domains import Values, read_values
from .evaluate import ExpressionEvaluator, Place
from .params import Param
from .sentences import Words

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
    report = Report()
    values: list[list[tuple[str, str]]] = []
    for name, text in settings:
        given: tuple[str, ...] = (text,)
        with report.trial():
            given = _values(name, text, choices.get(name, ()), report) if is_swept(text) else given
        values.append([(name, each) for each in given])
    count = 1
    for each in values:
        count *= len(each)
    if count > MAX_POINTS:
        span, message = Span(Source("--set", ""), 0, 0), f"{count:,} points, the limit is {MAX_POINTS:,}"
        with report.trial():
            report.error(Code.MGS305, message, span, "take larger steps")
    if report.has_errors:
        raise CompileError(report.diagnostics)
    return tuple(product(*values))


def _values(name: str, text: str, choices: Sequence[str], report: Report) -> tuple[str, ...]:
    found = _read(name, text, report)
    if not found.listed:
        own = [each for each in choices if found.holds(_quantity(name, each, report))]
        if own:
            return tuple(own)
        found = _read(name, text + _STEPS, report)
    return tuple(exact_text(each) for each in found.listed)


def _read(name: str, text: str, report: Report) -> Values:
    """Read values as they stand behind ``in`` of a parameter."""
    source = Source(f"--set {name}", f"param {_NAME} = 0 in {text}")
    match parse_file(source, report).declarations:
        case (ast.Param(domain=tuple(phrase)),) if phrase:
            words = Words(phrase, report)
            return read_values(words, Place(Scope()), ExpressionEvaluator(report, {}), report)
    if report.has_errors:
        raise report.stop()
    hint = f"for instance {name}=16..65536 x2, or {name}=16,64,256"
    raise report.fail(Code.MGS116, "these are no values", Span(source, 0, len(source.text)), hint)


def _quantity(name: str, text: str, report: Report) -> Quantity:
    return _read(name, text, report).low
