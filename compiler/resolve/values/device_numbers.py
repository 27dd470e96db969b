"""Numbers in device blocks, read by a table of properties, each with its origin and source."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...ir import TICKS_PER_SECOND, Origin, Provenance
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean
from ...text.units import BYTES, FREQUENCY, NUMBER, RATE, TIME, Dimension, Quantity, exact_text, round_half_up
from ...text.vocabulary import Property
from .evaluate import ExpressionEvaluator, Place, single


@dataclass(frozen=True, slots=True)
class NumberWithOrigin:
    """One number with its origin and source; ``owner`` is the device that states it, even if others inherit it."""

    value: Quantity
    origin: Origin
    source: str
    span: Span
    owner: str = ""


@dataclass(frozen=True, slots=True)
class StatedNumber:
    """One number of a device, by its path, such as ``MI300X.hbm.achieved``.

    ``inherited`` is the device that states it, empty if that is the device itself.
    """

    path: str
    value: Quantity
    origin: Origin
    source: str
    inherited: str = ""

    @property
    def device(self) -> str:
        """The device that it belongs to."""
        return self.path.partition(".")[0]


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """All numbers of a device by path, for instance ``hbm.achieved``."""

    by_path: Mapping[str, NumberWithOrigin]

    def whole(self, path: str) -> int:
        """Return a count, a size in bytes or a rate per second, rounded half up."""
        return round_half_up(self.by_path[path].value.amount)

    def ticks(self, path: str) -> int:
        """Return a time in ticks, rounded half up."""
        return round_half_up(self.by_path[path].value.amount * TICKS_PER_SECOND)

    def whole_if(self, path: str) -> int | None:
        """Return a count, a size or a rate, None if it is missing."""
        return self.whole(path) if path in self.by_path else None

    def ticks_if(self, path: str) -> int | None:
        """Return a time in ticks, None if it is missing."""
        return self.ticks(path) if path in self.by_path else None

    def stated(self, device: str) -> tuple[StatedNumber, ...]:
        """Return each number with its path."""
        return tuple(
            StatedNumber(
                f"{device}.{path}", each.value, each.origin, each.source, "" if each.owner == device else each.owner
            )
            for path, each in self.by_path.items()
        )

    def provenance(self, device: str) -> tuple[Provenance, ...]:
        """Return origin and source of each number."""
        return tuple(
            Provenance(f"{device}.{path}", each.origin, each.source, "" if each.owner == device else each.owner)
            for path, each in self.by_path.items()
        )


@dataclass(frozen=True, slots=True)
class Default:
    """Origin and source of a block's numbers without notes, as its ``source`` statement gives them."""

    origin: Origin = Origin.ASSUMED
    source: str = ""


class FigureReader:
    """Evaluates numbers and checks them against their property."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator) -> None:
        self._report, self._evaluator = report, evaluator

    def figure(
        self, wanted: Property, group: ast.GroupNode, skip: int, place: Place, default: Default
    ) -> NumberWithOrigin:
        """Read ``word value note``; ``skip`` words stand before the value."""
        if len(group.parts) <= skip:
            raise self._report.fail(Code.MGS116, f"{wanted.name} needs a value", group.span)
        value = self.value(wanted, group.parts[skip:], place)
        origin = self.origin(group.note, default)
        return NumberWithOrigin(value, origin.origin, origin.source, group.span)

    def value(self, wanted: Property, values: tuple[ast.Expression, ...], place: Place) -> Quantity:
        """Evaluate a number and check its unit and its range."""
        expression = single(values, self._report)
        value = self._evaluator(expression, place)
        check_dimension(wanted.name, wanted.dimension, value, expression, self._report)
        if not wanted.low <= value.amount <= wanted.high:
            message = f"{wanted.name} is {_range_words(wanted)}, got {_text_and_value(expression, value)}"
            raise self._report.fail(Code.MGS307, message, expression.span)
        if wanted.whole and value.amount.denominator != 1:
            of = {BYTES: " of bytes", FREQUENCY: " of Hz"}.get(wanted.dimension, "")
            message = f"{wanted.name} is a whole number{of}, not {_text_and_value(expression, value)}"
            raise self._report.fail(Code.MGS309, message, expression.span)
        return value

    def origin(self, note: ast.Note | None, default: Default) -> Default:
        """Read a note; its arguments become part of the source."""
        if note is None:
            return default
        known = [origin.value for origin in Origin]
        if note.origin not in known:
            hint = did_you_mean(note.origin, known) or "origins are " + ", ".join(known)
            raise self._report.fail(Code.MGS201, f"unknown origin '@{note.origin[:64]}'", note.span, hint)
        arguments = ", ".join(argument.span.text for argument in note.arguments)
        return Default(
            Origin(note.origin), " ".join(filter(None, (note.source, f"({arguments})" if arguments else "")))
        )

    def default(self, statement: ast.Say, before: Default) -> Default:
        """Read ``source nominal "..."``."""
        parts = statement.phrase[0].parts[1:]
        match parts:
            case (ast.Name(text=word), ast.Text(value=text)) if word in [origin.value for origin in Origin]:
                return replace(before, origin=Origin(word), source=text)
            case _:
                origins = ", ".join(origin.value for origin in Origin)
                hint = f'for instance: source nominal "data sheet"; origins are {origins}'
                raise self._report.fail(Code.MGS116, "source says an origin and a text", statement.span, hint)


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
