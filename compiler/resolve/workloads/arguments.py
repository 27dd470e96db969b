"""What a text says of tensors, ``tensor bf16[M, 8192] shard rows``, and of the arguments of calls, as values."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import DType, Shard, Tensor
from ...ir.operations import CallArgumentKind, Operation
from ...ir.operations.checks import reject_share
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.source import Span
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, TENSOR_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, single

_EXAMPLE = "x = tensor bf16[8192, 8192] shard rows"
_EXTENT = Property("a size", NUMBER, Fraction(1), Fraction(MAX_EXTENT), whole=True)


class ArgumentReader:
    """Reads the arguments of calls in one workload."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, place: Place) -> None:
        self._report, self._place = report, place
        self._numbers = FigureReader(report, evaluator)
        self._readers: Mapping[CallArgumentKind, Callable[[str, ast.Expression], Any]] = {
            CallArgumentKind.COUNT: lambda name, written: self._whole(name, written, low=1),
            CallArgumentKind.TRUTH: lambda _, written: self._truth(written),
            CallArgumentKind.COUNTS: self._counts,
            CallArgumentKind.TYPE: lambda _, written: dtype_named(written, self._report),
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


class TensorReader:
    """Reads the tensors of a workload on ``num_ranks`` ranks."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, num_ranks: int) -> None:
        self._report, self._num_ranks = report, num_ranks
        self._numbers = FigureReader(report, evaluator)

    def tensor(self, statement: ast.Define, place: Place) -> Tensor:
        """Read ``name = tensor dtype[rows, cols] shard rows``."""
        words = Words(statement.phrase, self._report)
        words.take("tensor")
        written = words.take("a type with a shape")
        match written:
            case ast.Index(base=ast.Name() as base, subscripts=(rows, cols)):
                pass
            case ast.Index(base=ast.Name(), subscripts=subscripts):
                message = f"a tensor has 2 dimensions, this one {len(subscripts)}"
                raise self._report.fail(Code.MGS116, message, written.span, _EXAMPLE)
            case _:
                raise self._report.fail(Code.MGS116, "a type with a shape is expected here", written.span, _EXAMPLE)
        dtype = dtype_named(base, self._report)
        num_rows = int(self._numbers.value(_EXTENT, (rows,), place).amount)
        num_cols = int(self._numbers.value(_EXTENT, (cols,), place).amount)
        shard = self._shard(words)
        words.end(TENSOR_WORDS)
        if shard is Shard.ROWS:
            self._check_share(num_rows, "rows", rows.span)
        elif shard is Shard.FLAT:
            self._check_share(num_rows * num_cols, "elements", written.span)
        elif shard is Shard.COLS:
            self._check_share(num_cols, "columns", cols.span)
        return Tensor(statement.name, dtype, num_rows, num_cols, shard)

    def _check_share(self, size: int, what: str, span: Span) -> None:
        """Check that every rank gets the same share."""
        rejection = reject_share(size, what, self._num_ranks)
        if rejection is not None:
            raise self._report.fail(rejection.code, rejection.message, span, rejection.hint)

    def _shard(self, words: Words) -> Shard:
        if not words.take_word("shard"):
            return Shard.NONE
        dimension = words.take_name("rows, cols or flat")
        by_word = {shard.value: shard for shard in (Shard.ROWS, Shard.COLS, Shard.FLAT)}
        if dimension.text not in by_word:
            hint = did_you_mean(dimension.text, by_word) or "shard rows, shard cols or shard flat"
            raise self._report.fail(
                Code.MGS201, f"a tensor has no dimension '{dimension.text[:64]}'", dimension.span, hint
            )
        return by_word[dimension.text]


def dtype_named(written: ast.Expression, report: Report) -> DType:
    """The element type that a word names."""
    types = [dtype.value for dtype in DType]
    text = written.text if isinstance(written, ast.Name) else written.span.text
    if text not in types:
        hint = did_you_mean(text, types) or f"types are {listing(types)}"
        raise report.fail(Code.MGS203, f"unknown type '{text[:64]}'", written.span, hint)
    return DType(text)
