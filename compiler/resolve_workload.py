"""Workloads: tensors and operations, their shapes per rank, and the pattern they form.

Operations are followed one by one; which combinations are simulated is a table of patterns at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .names import Entry, Kind
from .phrases import Words, head_of, single
from .resolve_system import SystemResolver
from .scenario import GemmShape, Pattern, Shard, System, Tensor, Workload
from .source import Span
from .tables import OPERATIONS, WORKLOAD_WORDS
from .tensors import TensorReader, layout

_COMBINATIONS = (
    "gemm; all_gather; reduce_scatter; gemm of a gathered input; "
    "reduce_scatter of a gemm whose inner dimension is sharded"
)
_PATTERNS: Mapping[tuple[str, ...], Pattern] = {
    ("gemm",): Pattern.GEMM,
    ("all_gather",): Pattern.ALL_GATHER,
    ("reduce_scatter",): Pattern.REDUCE_SCATTER,
    ("all_gather", "gemm"): Pattern.AG_GEMM,
    ("gemm", "reduce_scatter"): Pattern.GEMM_RS,
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and how it came about: declared, or by an operation; ``partial`` if ranks hold terms of a sum."""

    tensor: Tensor
    made_by: str = ""
    partial: bool = False
    gathered: bool = False


class WorkloadResolver:
    """Resolves one workload."""

    def __init__(self, entry: Entry, system: System, tensors: TensorReader, report: Report) -> None:
        self._entry, self._system, self._reader, self._report = entry, system, tensors, report
        self._operands: dict[str, Operand] = {}
        self._spans: dict[str, Span] = {}
        self._used: set[str] = set()
        self._order: list[str] = []
        self._extra: list[Tensor] = []
        self._gemm: GemmShape | None = None
        self._moved: Tensor | None = None
        self._output = ""
        self._about = ""

    @property
    def _ranks(self) -> int:
        return self._system.num_ranks

    def resolve(self) -> Workload:
        """Return the resolved workload."""
        declaration = self._entry.declaration
        assert isinstance(declaration, ast.Workload)
        failures_before = self._report.num_failures
        for statement in declaration.block.statements:
            with self._report.attempt():
                if isinstance(statement, ast.Define):
                    self._define(statement)
                else:
                    self._say(statement)
        if self._report.num_failures > failures_before:
            raise self._report.stop()
        pattern = self._pattern(declaration)
        if self._ranks == 1 and pattern is not Pattern.GEMM:
            raise self._report.fail(Code.MGS307, "a collective needs at least 2 gpus", declaration.span)
        tensors = [operand.tensor for operand in self._operands.values()] + self._extra
        return Workload(declaration.name, self._about, pattern, tuple(tensors), self._moved, self._gemm, self._output)

    def _pattern(self, declaration: ast.Workload) -> Pattern:
        names = [name for name, operand in self._operands.items() if name not in self._used and operand.made_by]
        unused = [name for name, operand in self._operands.items() if name not in self._used and not operand.made_by]
        for name in unused:
            self._report.warn(Code.MGS212, f"'{name}' is never used", self._spans[name])
        pattern = _PATTERNS.get(tuple(self._order))
        if pattern is None or len(names) != 1:
            what = " + ".join(self._order) or "no operation"
            hint = f"Magus simulates: {_COMBINATIONS}"
            raise self._report.fail(
                Code.MGS520, f"{what} is not a combination that is simulated", _head(declaration), hint
            )
        if pattern is Pattern.GEMM and self._operands[names[0]].partial:
            hint = "add the sum: reduce_scatter(gemm(x, w))"
            raise self._report.fail(
                Code.MGS520, "each rank would hold a part of the sum only", self._spans[names[0]], hint
            )
        return pattern

    def _say(self, statement: ast.Say) -> None:
        word = head_of(statement)
        match statement.phrase[0].parts:
            case (ast.Name(text="about"), ast.Text(value=text)) if len(statement.phrase) == 1:
                self._about = text
            case (ast.Name(text="about"), *_):
                raise self._report.fail(Code.MGS116, "about says a text", statement.span, 'about "MLP up-projection"')
            case (ast.Call(), *_):
                raise self._report.fail(
                    Code.MGS116, "a result has a name", statement.span, f"y = {statement.span.text[:60]}"
                )
            case _:
                span = word.span if word is not None else statement.span
                text = span.text[:40]
                hint = (
                    did_you_mean(text, WORKLOAD_WORDS)
                    or "a workload has: about, and definitions such as y = gemm(x, w)"
                )
                raise self._report.fail(Code.MGS201, f"a workload has no property '{text}'", span, hint)

    def _define(self, statement: ast.Define) -> None:
        if statement.name in self._operands:
            line = self._spans[statement.name].location.line
            hint = f"the first is on line {line}"
            raise self._report.fail(Code.MGS206, f"'{statement.name}' is defined twice", statement.span, hint)
        self._spans[statement.name] = statement.span
        if statement.name in self._entry.scope.names(Kind.LET, Kind.PARAM):
            message = f"'{statement.name}' is a value of the file already"
            raise self._report.fail(Code.MGS206, message, statement.span, "choose another name")
        first = statement.phrase[0].parts[0]
        if isinstance(first, ast.Name) and first.text == "tensor":
            tensor = self._reader.tensor(statement, Place(self._entry.scope))
            self._operands[statement.name] = Operand(tensor)
            return
        words = Words(statement.phrase, self._report)
        value = words.take("a value")
        if isinstance(value, ast.Name) and isinstance(words.peek(), ast.Parens):
            single((value, words.take("a call")), self._report)
            raise self._report.stop()
        words.end()
        self._operands[statement.name] = self._value(value, statement.name)

    def _value(self, expression: ast.Expression, name: str) -> Operand:
        """Follow a name or a call; ``name`` is what the result of the call is called."""
        match expression:
            case ast.Name(text=text):
                return self._named(text, expression.span)
            case ast.Call(function=ast.Name(text=text)):
                return self._call(text, expression, name)
            case _:
                raise self._report.fail(Code.MGS116, "a tensor or an operation is expected here", expression.span)

    def _named(self, text: str, span: Span) -> Operand:
        operand = self._operands.get(text)
        if operand is None:
            if text in self._spans:
                raise self._report.stop()
            hint = did_you_mean(text, self._operands) or "a tensor is defined above its use"
            raise self._report.fail(Code.MGS203, f"unknown tensor '{text[:64]}'", span, hint)
        self._used.add(text)
        return operand

    def _call(self, operation: str, call: ast.Call, name: str) -> Operand:
        if operation not in OPERATIONS:
            hint = did_you_mean(operation, OPERATIONS) or f"operations are {listing(OPERATIONS)}"
            raise self._report.fail(Code.MGS204, f"unknown operation '{operation[:64]}'", call.span, hint)
        if any(argument.name for argument in call.arguments):
            raise self._report.fail(Code.MGS201, f"{operation} has no named arguments", call.span)
        count = 2 if operation == "gemm" else 1
        values = [single(argument.values, self._report, in_call=True) for argument in call.arguments]
        if len(values) != count:
            example = "gemm(x, w)" if operation == "gemm" else f"{operation}(x)"
            raise self._report.fail(
                Code.MGS116, f"{operation} takes {count} tensor{'s' * (count > 1)}", call.span, example
            )
        operands = [self._value(value, self._inner_name(value, operation, name)) for value in values]
        self._order.append(operation)
        if len(self._order) > 2:
            message = " + ".join(self._order) + " is not a combination that is simulated"
            raise self._report.fail(Code.MGS520, message, call.span, f"Magus simulates: {_COMBINATIONS}")
        for value, operand in zip(values, operands, strict=True):
            if isinstance(value, ast.Call):
                self._extra.append(operand.tensor)
        match operation:
            case "all_gather":
                return self._all_gather(operands[0], call, name)
            case "reduce_scatter":
                return self._reduce_scatter(operands[0], call, name)
            case _:
                return self._multiply(operands[0], operands[1], call, name)

    def _inner_name(self, value: ast.Expression, operation: str, name: str) -> str:
        """Name a result that has no name of its own, for instance ``x_gathered``."""
        if operation == "reduce_scatter":
            return f"{name}_partial"
        match value:
            case ast.Call(arguments=(ast.Argument(values=(ast.Name(text=inner),)),)):
                return f"{inner}_gathered"
            case _:
                return f"{name}_input"

    def _all_gather(self, operand: Operand, call: ast.Call, name: str) -> Operand:
        if operand.made_by:
            message = f"all_gather of the result of {operand.made_by} is not simulated"
            raise self._report.fail(Code.MGS520, message, call.span, f"Magus simulates: {_COMBINATIONS}")
        if operand.tensor.shard is not Shard.ROWS:
            hint = f"declare it with 'shard rows': {operand.tensor.name} = tensor ... shard rows"
            message = f"all_gather joins rows, but {operand.tensor.name} is {layout(operand.tensor)}"
            raise self._report.fail(Code.MGS310, message, call.span, hint)
        self._moved = replace(operand.tensor, name=name)
        self._output = name
        return Operand(self._moved, "all_gather", gathered=True)

    def _reduce_scatter(self, operand: Operand, call: ast.Call, name: str) -> Operand:
        tensor = operand.tensor
        if operand.made_by and not operand.partial:
            hint = "shard the inner dimension: x by cols and w by rows"
            raise self._report.fail(Code.MGS520, "reduce_scatter needs partial sums to add", call.span, hint)
        if not operand.made_by and tensor.shard is not Shard.NONE:
            message = f"reduce_scatter adds what every rank holds in full, but {tensor.name} is {layout(tensor)}"
            raise self._report.fail(Code.MGS310, message, call.span, f"drop the shard of {tensor.name}")
        self._reader.check_divides(tensor.rows, "rows", call.span)
        self._moved = replace(tensor, shard=Shard.ROWS)
        result = replace(tensor, name=name, shard=Shard.ROWS)
        if not operand.made_by:
            self._output = name
        return Operand(result, "reduce_scatter")

    def _multiply(self, left: Operand, right: Operand, call: ast.Call, name: str) -> Operand:
        a, b = left.tensor, right.tensor
        self._check_gemm(left, right, call)
        ranks = self._ranks
        shards = Shard.NONE if left.gathered else a.shard, b.shard
        rows, cols, inner, shard, partial = a.rows, b.cols, a.cols, Shard.NONE, False
        match shards:
            case (Shard.NONE, Shard.NONE):
                pass
            case (Shard.NONE, Shard.COLS):
                cols, shard = b.cols // ranks, Shard.COLS
            case (Shard.ROWS, Shard.NONE):
                rows, shard = a.rows // ranks, Shard.ROWS
            case (Shard.COLS, Shard.ROWS):
                inner, partial = a.cols // ranks, True
            case (Shard.ROWS, _):
                hint = f"gather it first: gemm(all_gather({a.name}), {b.name})"
                message = f"{a.name} is {layout(a)} and {b.name} is {layout(b)}: no rank holds what it multiplies"
                raise self._report.fail(Code.MGS310, message, call.span, hint)
            case _:
                message = f"{a.name} is {layout(a)} and {b.name} is {layout(b)}: the inner dimension does not meet"
                hint = "shard the inner dimension of both, x by cols and w by rows, or of neither"
                raise self._report.fail(Code.MGS310, message, call.span, hint)
        self._gemm = GemmShape(rows, cols, inner, a.dtype)
        self._output = name
        return Operand(Tensor(name, a.dtype, a.rows, b.cols, shard), "gemm", partial)

    def _check_gemm(self, left: Operand, right: Operand, call: ast.Call) -> None:
        a, b = left.tensor, right.tensor
        for operand in (left, right):
            if operand.made_by not in ("", "all_gather") or (operand is right and operand.made_by):
                message = f"a gemm of the result of {operand.made_by} is not simulated"
                hint = f"the first input may be gathered; Magus simulates: {_COMBINATIONS}"
                raise self._report.fail(Code.MGS520, message, call.span, hint)
        if a.cols != b.rows:
            message = f"inner dimensions differ: {a.name} has {a.cols} columns, {b.name} has {b.rows} rows"
            raise self._report.fail(Code.MGS310, message, call.span)
        if a.dtype is not b.dtype:
            message = f"types differ: {a.name} is {a.dtype.value}, {b.name} is {b.dtype.value}"
            raise self._report.fail(Code.MGS310, message, call.span)
        gpu = self._system.gpu
        if not gpu.peak(a.dtype):
            known = ", ".join(dtype.value for dtype, _ in gpu.peak_flops)
            message = f"{gpu.name} has no peak rate for {a.dtype.value}"
            raise self._report.fail(Code.MGS405, message, call.span, f"it has: {known}")


def resolve_workload(
    entry: Entry, systems: SystemResolver, evaluator: Evaluator, report: Report
) -> tuple[System, Workload]:
    """Return the workload of an entry with its system."""
    declaration = entry.declaration
    assert isinstance(declaration, ast.Workload)
    system = systems.system(entry.scope.find(declaration.system, Kind.SYSTEM, report))
    reader = TensorReader(report, evaluator, system.num_ranks)
    return system, WorkloadResolver(entry, system, reader, report).resolve()


def _head(declaration: ast.Workload) -> Span:
    span = declaration.span
    return Span(span.source, span.start, declaration.system.span.end)
