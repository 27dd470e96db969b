"""What is written in a call of a workload: its arguments, and the tensors that are given."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import TICKS_PER_SECOND, DType, Rejection, Shard, System, Tensor
from ...ir.operations import (
    CallArgumentKind,
    Operation,
)
from ...ir.operations.base import reject_blocks, reject_share
from ...ir.operations.routing_laws import DRAWN_LAWS, EVEN_LAWS, RoutingLaw
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.load import path_beside, read_source
from ...text.names import dotted
from ...text.units import NUMBER, TIME, round_half_up
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, TENSOR_WORDS, Property
from ..values.evaluate import Reading
from ..values.words import Words, behind, one_of, single, truth

_LAW = 'power_law(1.2, seed=0), sampled(1.9), uniform, stride, loads([512, 256]) or histogram("counts.csv")'


MAX_TIME = Fraction(10)
"""Seconds that a kernel may take."""


MAX_DRAWS = 4096


_EXPONENT = Property("an exponent", NUMBER, Fraction(1, 10), Fraction(10))


_EXAMPLE = "x = tensor bf16[8192, 8192] shard rows"


class ArgumentReader:
    """Reads the arguments of calls in one workload on ``num_ranks`` ranks, which are ``whole`` or a group of it."""

    def __init__(self, reading: Reading, whole: System, num_ranks: int) -> None:
        self._reading, self._report = reading, reading.report
        self._system, self._num_ranks = whole, num_ranks
        self._readers: Mapping[CallArgumentKind, Callable[[str, ast.Expression], Any]] = {
            CallArgumentKind.COUNT: lambda name, written: self._whole(name, written, low=1),
            CallArgumentKind.TIMES: self._times,
            CallArgumentKind.TRUTH: lambda _, written: truth(written, self._report),
            CallArgumentKind.COUNTS: self._counts,
            CallArgumentKind.TYPE: lambda _, written: dtype_named(written, self._report),
            CallArgumentKind.TABLE: self._table,
            CallArgumentKind.NAME: self._name,
            CallArgumentKind.AXIS: self._axis,
            CallArgumentKind.ROUTING: self._law,
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
            self._report.once(name, seen, argument.span)
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
        return self._reading.count(name, low, MAX_EXTENT, written)

    def _ticks(self, name: str, written: ast.Expression) -> int:
        wanted = Property(name, TIME, Fraction(0), MAX_TIME)
        return round_half_up(self._reading.number(wanted, written).amount * TICKS_PER_SECOND)

    def _times(self, name: str, written: ast.Expression) -> tuple[int, ...]:
        if not isinstance(written, ast.Listed):
            return (self._ticks(name, written),)
        if len(written.items) != self._num_ranks:
            message = f"{name} has {len(written.items)} times, and there are {self._num_ranks} ranks"
            raise self._report.fail(Code.MGS310, message, written.span, "one time for all, or a list of one for each")
        return tuple([self._ticks(name, item) for item in written.items])

    def _name(self, name: str, written: ast.Expression) -> str:
        if not isinstance(written, ast.Name):
            raise self._report.fail(Code.MGS116, f"{name} is a name", written.span, f"{name}=deepep")
        return written.text

    def _axis(self, name: str, written: ast.Expression) -> tuple[str, int]:
        """An axis of the mesh of the whole system, and its size."""
        names = dotted(written)
        if names is None or len(names) > 1:
            raise self._report.fail(Code.MGS116, f"{name} names an axis", written.span, f"{name}=cp")
        axes = self._system.axes(names)
        if isinstance(axes, Rejection):
            raise self._report.refuse(axes, written.span)
        return axes[0].name, axes[0].size

    def _law(self, name: str, written: ast.Expression) -> RoutingLaw:
        """What ``_LAW`` names."""
        match written:
            case ast.Name(text=word) if word in EVEN_LAWS:
                return RoutingLaw(word)
            case ast.Call(function=ast.Name(text=word)) if word in DRAWN_LAWS:
                return self._drawn(word, written)
            case ast.Call(function=ast.Name(text="loads"), arguments=(ast.Argument(name=None, values=(counts,)),)):
                return RoutingLaw("loads", counts=self._counts("loads", counts))
            case ast.Call(function=ast.Name(text="histogram"), arguments=(ast.Argument(values=(ast.Text() as path,)),)):
                return RoutingLaw("histogram", counts=self._histogram(path))
            case ast.Name() | ast.Call(function=ast.Name()):
                word = written.text if isinstance(written, ast.Name) else written.span.text
                raise self._report.fail(Code.MGS204, f"unknown routing '{word[:64]}'", written.span, f"routing={_LAW}")
            case _:
                raise self._report.fail(Code.MGS116, f"{name} is a law", written.span, f"routing={_LAW}")

    def _drawn(self, law: str, call: ast.Call) -> RoutingLaw:
        """``power_law(1.2)``, ``sampled(1.9, seed=3)`` or with several seeds, ``seed=0..9``."""
        match call.arguments:
            case (ast.Argument(name=None) as first,):
                seed, draws = 0, 1
            case (ast.Argument(name=None) as first, ast.Argument(name="seed") as said):
                seed, draws = self._seeds(single(said.values, self._report, in_call=True))
            case _:
                message = f"{law} takes an exponent and a seed"
                raise self._report.fail(Code.MGS116, message, call.span, f"routing={law}(1.2, seed=0)")
        exponent = self._reading.number(_EXPONENT, single(first.values, self._report)).amount
        if self._reading.evaluator.seed is not None:
            seed = self._reading.evaluator.seed
        return RoutingLaw(law, exponent, seed, draws=draws)

    def _seeds(self, written: ast.Expression) -> tuple[int, int]:
        """The first seed, and how many there are."""
        if not isinstance(written, ast.Range):
            return self._whole("seed", written), 1
        first, last = (self._whole("seed", each) for each in (written.low, written.high))
        if first > last:
            message = f"the range {written.span.text} is empty"
            raise self._report.fail(Code.MGS306, message, written.span, "the smaller end stands first")
        if last - first >= MAX_DRAWS:
            message = f"{last - first + 1:,} seeds, the limit is {MAX_DRAWS:,}"
            raise self._report.fail(Code.MGS305, message, written.span, "a range of fewer seeds, such as 0..9")
        return first, last - first + 1

    def _histogram(self, path: ast.Text) -> tuple[int, ...]:
        """Counts of a file, one a line or separated by commas, in the order of experts."""
        source = read_source(path_beside(path, "histogram", self._report), self._report, path.span)
        words = source.text.replace(",", " ").split()
        wrong = next((word for word in words if not (word.isascii() and word.isdecimal() and len(word) < 16)), None)
        if wrong is not None or not words:
            message = f"'{wrong[:40]}' is no count of rows" if wrong is not None else "the file has no counts"
            raise self._report.fail(Code.MGS136, message, path.span, "whole numbers, one for each expert")
        return tuple(map(int, words))

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
    """Reads the tensors of a workload on ``num_ranks`` ranks; where it ``routes``, rows are filled up.

    With ``one_rank`` its group has one, which has all of each tensor.
    """

    def __init__(self, reading: Reading, num_ranks: int, *, routes: bool, one_rank: bool) -> None:
        self._reading, self._report = reading, reading.report
        self._num_ranks, self._routes, self._one_rank = num_ranks, routes, one_rank
        self.said: dict[int, int] = {}
        """The rows that the text says, by those that fill up the ranks."""

    def tensor(self, statement: ast.Define) -> Tensor:
        """Read ``name = tensor dtype[rows, cols] shard rows``."""
        words = behind(statement, self._report)
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
        num_rows, num_cols = (self._reading.count("a size", 1, MAX_EXTENT, each) for each in (rows, cols))
        shard = self._shard(words)
        words.end(TENSOR_WORDS)
        if shard is Shard.ROWS and self._routes:
            num_rows = self._filled_up(num_rows, rows.span)
        elif shard is Shard.ROWS:
            self._report.require(reject_share(num_rows, "rows", self._num_ranks), rows.span)
        elif shard is Shard.FLAT:
            self._report.require(reject_share(num_rows * num_cols, "elements", self._num_ranks), written.span)
        elif shard is Shard.COLS:
            self._report.require(reject_share(num_cols, "columns", self._num_ranks), cols.span)
        shard = Shard.NONE if self._one_rank else shard
        tensor = Tensor(statement.name, dtype, num_rows, num_cols, shard)
        own_cols = num_cols // (self._num_ranks if shard is Shard.COLS else 1)
        self._report.require(reject_blocks(tensor.name, dtype, own_cols), cols.span)
        return tensor

    def _filled_up(self, num_rows: int, span: Span) -> int:
        """The rows if each rank has as many as the one with most: the others wait for it."""
        most = -(-num_rows // self._num_ranks)
        if num_rows % self._num_ranks:
            rows = f"{num_rows} row{'s' * (num_rows > 1)}"
            message = f"{rows} on {self._num_ranks} ranks: each is taken to have {most}"
            self._report.warn(Code.MGS304, message, span, "as many as the rank with most, for which the others wait")
            self.said[most * self._num_ranks] = num_rows
        return most * self._num_ranks

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


def is_tensor(statement: ast.Define) -> bool:
    """Whether a definition declares a tensor."""
    first = statement.phrase[0].parts[0]
    return isinstance(first, ast.Name) and first.text == "tensor"


def dtype_named(written: ast.Expression, report: Report) -> DType:
    """The element type that a word names."""
    types = [dtype.value for dtype in DType]
    return DType(one_of(types, written, "type", report, f"types are {listing(types)}", Code.MGS203))
