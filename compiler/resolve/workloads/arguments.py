"""Calls of operations: the tensors that a call takes, and its named arguments as values."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import DType
from ...ir.operations import CallArgumentKind, Operation
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import single


class ArgumentReader:
    """Reads the arguments of calls in one workload."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, place: Place) -> None:
        self._report, self._place = report, place
        self._numbers = FigureReader(report, evaluator)
        self._readers: Mapping[CallArgumentKind, Callable[[str, ast.Expression], Any]] = {
            CallArgumentKind.COUNT: lambda name, written: self._whole(name, written, low=1),
            CallArgumentKind.TRUTH: lambda _, written: self._truth(written),
            CallArgumentKind.COUNTS: self._counts,
            CallArgumentKind.TYPE: lambda _, written: self._type(written),
            CallArgumentKind.TABLE: self._table,
        }

    def tensors(self, operation: Operation, call: ast.Call) -> list[ast.Expression]:
        """The tensors of a call whose named arguments are checked for being known."""
        names = [argument.name for argument in operation.arguments]
        seen: set[str] = set()
        for argument in call.arguments:
            name = argument.name
            if name is None:
                continue
            if name not in names:
                known = f"it has: {listing(names)}" if names else ""
                what = f"no argument '{name[:64]}'" if names else "no named arguments"
                hint = did_you_mean(name, names) or known
                raise self._report.fail(Code.MGS201, f"{operation.name} has {what}", call.span, hint)
            if name in seen:
                raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
            seen.add(name)
        values = [single(each.values, self._report, in_call=True) for each in call.arguments if each.name is None]
        fewest, most = operation.num_tensors
        if not fewest <= len(values) <= most:
            many = f"{fewest} to {most}" if fewest < most else most
            message = f"{operation.name} takes {many} tensor{'s' * (most > 1)}"
            raise self._report.fail(Code.MGS116, message, call.span, operation.example)
        return values

    def arguments(self, operation: Operation, call: ast.Call) -> dict[str, Any]:
        """The named arguments that the call says, as values of their kinds."""
        written = {
            argument.name: single(argument.values, self._report, in_call=True)
            for argument in call.arguments
            if argument.name is not None
        }
        for argument in operation.arguments:
            if argument.required and argument.name not in written:
                message = f"{operation.name} does not say its {argument.name}"
                raise self._report.fail(Code.MGS209, message, call.span, operation.example)
        kinds = {argument.name: argument.kind for argument in operation.arguments}
        return {name: self._readers[kinds[name]](name, expression) for name, expression in written.items()}

    def _whole(self, name: str, written: ast.Expression, low: int = 0) -> int:
        wanted = Property(name, NUMBER, Fraction(low), Fraction(MAX_EXTENT), whole=True)
        return int(self._numbers.value(wanted, (written,), self._place).amount)

    def _truth(self, written: ast.Expression) -> bool:
        if isinstance(written, ast.Name) and written.text in ("true", "false"):
            return written.text == "true"
        raise self._report.fail(Code.MGS116, "true or false is expected here", written.span)

    def _type(self, written: ast.Expression) -> DType:
        types = [dtype.value for dtype in DType]
        text = written.text if isinstance(written, ast.Name) else written.span.text
        if text not in types:
            hint = did_you_mean(text, types) or f"types are {listing(types)}"
            raise self._report.fail(Code.MGS203, f"unknown type '{text[:64]}'", written.span, hint)
        return DType(text)

    def _counts(self, name: str, written: ast.Expression) -> tuple[int, ...]:
        if not isinstance(written, ast.Listed) or not written.items:
            raise self._report.fail(Code.MGS116, f"{name} are a list", written.span, f"{name}=[512, 256]")
        if len(written.items) > MAX_RANKS:
            raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} counts of {name}", written.span)
        return tuple([self._whole(name, item) for item in written.items])

    def _table(self, name: str, written: ast.Expression) -> tuple[Any, ...]:
        match written:
            case ast.Listed(items=(ast.Listed(), *_) as items):
                if len(items) > MAX_RANKS:
                    raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} lists of {name}", written.span)
                return tuple([self._counts(name, item) for item in items])
            case _:
                return self._counts(name, written)
