"""Regions of a plan: ``xg.shard(2)[0:1024, 0:8192]``, rows and columns inside the row block of rank r+2."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ...codes import Code
from ...ir import IndexRange, Region
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place

_INDEX = Property("an index", NUMBER, Fraction(0), Fraction(MAX_EXTENT), whole=True)


@dataclass(frozen=True, slots=True)
class Extent:
    """A tensor as a plan sees it: one row block per rank, that of rank r + k of ``rows(k)`` by ``cols``."""

    name: str
    rows: Callable[[int], int]
    cols: int


class RegionReader:
    """Reads numbers, slices and regions on a system of ``num_ranks`` ranks."""

    def __init__(self, num_ranks: int, place: Place, evaluator: ExpressionEvaluator, report: Report) -> None:
        self.num_ranks, self._place, self._report = num_ranks, place, report
        self._evaluator = evaluator
        self._numbers = FigureReader(report, evaluator)

    def number(self, expression: ast.Expression, name: str, low: int, high: int) -> int:
        """Evaluate a whole number between two ends."""
        wanted = Property(name, NUMBER, Fraction(low), Fraction(high), whole=True)
        return int(self._numbers.value(wanted, (expression,), self._place).amount)

    def relative(self, expression: ast.Expression, what: str, itself: bool) -> int:
        """Evaluate a rank relative to this one, which ``itself`` allows to be 0; negative ones count backwards."""
        value = self._evaluator(expression, self._place).amount
        ranks = self.num_ranks
        if value.denominator != 1 or not -ranks < value < ranks:
            message = f"{what} is from 0 to {ranks - 1}, counted from this rank; got {expression.span.text}"
            raise self._report.fail(Code.MGS504, message, expression.span)
        if value == 0 and not itself:
            hint = "1 is the next rank, -1 the one before"
            raise self._report.fail(Code.MGS504, f"{what} 0 is this rank itself", expression.span, hint)
        return int(value) % ranks

    def slice(self, expression: ast.Expression, what: str, size: int) -> IndexRange:
        """Read ``start:stop`` inside ``size``."""
        if not isinstance(expression, ast.Slice):
            raise self._report.fail(Code.MGS116, f"{what} are a slice", expression.span, f"for instance 0:{size}")
        start, stop = (
            int(self._numbers.value(_INDEX, (end,), self._place).amount) for end in (expression.start, expression.stop)
        )
        if start >= stop:
            raise self._report.fail(Code.MGS306, f"the slice {start}:{stop} is empty", expression.span)
        if stop > size:
            raise self._report.fail(
                Code.MGS504, f"{what} {start}:{stop} do not exist, there are {size}", expression.span
            )
        return IndexRange(start, stop)

    @staticmethod
    def tensor_of(expression: ast.Expression) -> str:
        """The name of the tensor that a region is of, empty where it is none."""
        match expression.base if isinstance(expression, ast.Index) else expression:
            case ast.Call(function=ast.Member(base=ast.Name(text=name))):
                return name
            case _:
                return ""

    def region(self, expression: ast.Expression, extent: Extent) -> Region:
        """Read a region of ``extent``; what is not said is whole."""
        base, subscripts = expression, tuple[ast.Expression, ...]()
        if isinstance(expression, ast.Index):
            base, subscripts = expression.base, expression.subscripts
        match base:
            case ast.Call(
                function=ast.Member(base=ast.Name() as tensor, name="shard"),
                arguments=(ast.Argument(name=None, values=(owner,)),),
            ) if len(subscripts) <= 2:
                pass
            case _:
                hint = f"for instance {extent.name}.shard(1)[0:{extent.rows(1)}, 0:{extent.cols}]"
                raise self._report.fail(Code.MGS116, "a region of a tensor is expected here", expression.span, hint)
        if tensor.text != extent.name:
            message = f"this step works on {extent.name}, not on '{tensor.text[:64]}'"
            raise self._report.fail(Code.MGS504, message, tensor.span)
        block = self.relative(owner, "shard", itself=True)
        rows, cols = IndexRange(0, extent.rows(block)), IndexRange(0, extent.cols)
        if subscripts:
            rows = self.slice(subscripts[0], "rows", extent.rows(block))
        if len(subscripts) > 1:
            cols = self.slice(subscripts[1], "columns", extent.cols)
        return Region(block, rows, cols)
