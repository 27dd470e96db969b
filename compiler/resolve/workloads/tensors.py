"""Tensor declarations: ``tensor bf16[M, 8192] shard rows``."""

from fractions import Fraction

from ...codes import Code
from ...ir import DType, Shard, Tensor
from ...ir.operations.checks import reject_share
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.source import Span
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, TENSOR_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words

_EXAMPLE = "x = tensor bf16[8192, 8192] shard rows"
_EXTENT = Property("a size", NUMBER, Fraction(1), Fraction(MAX_EXTENT), whole=True)


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
        dtype = self._dtype(base)
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

    def _dtype(self, name: ast.Name) -> DType:
        types = [dtype.value for dtype in DType]
        if name.text not in types:
            hint = did_you_mean(name.text, types) or f"types are {listing(types)}"
            raise self._report.fail(Code.MGS203, f"unknown type '{name.text[:64]}'", name.span, hint)
        return DType(name.text)

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
