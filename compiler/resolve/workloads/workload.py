"""Workloads: tensors and operations, their shapes per rank, and the pattern they form.

Operations are followed one by one; which combinations are simulated is a table of patterns in ``operands.py``.
"""

from ...codes import Code
from ...ir import Pattern, System, Tensor, Workload
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Entry, Kind
from ...text.source import Span
from ...text.vocabulary import OPERATIONS, WORKLOAD_WORDS
from ..devices.system import SystemResolver
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, head_of, single
from . import collectives as collectives
from . import kernels as kernels
from .attention import attention
from .operands import BESIDE, PATTERNS, Making, Operand
from .operations import Named, tensors_of
from .tensors import TensorReader


class WorkloadResolver:
    """Resolves one workload."""

    def __init__(self, entry: Entry, system: System, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._entry, self._report, self._evaluator = entry, report, evaluator
        self._reader = TensorReader(report, evaluator, system.num_ranks)
        self._making = Making(system, self._reader, report)
        self._operands: dict[str, Operand] = {}
        self._spans: dict[str, Span] = {}
        self._used: set[str] = set()
        self._extra: list[Tensor] = []
        self._about = ""

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
        made = self._making
        if made.loads and pattern not in (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_BESIDE_A2A):
            message = "loads that differ from rank to rank are simulated alone, or before a gemm or grouped_gemm"
            raise made.refused(
                message, _head(declaration), "rows=[...] of relative ranks, r + 0 first, goes everywhere"
            )
        if made.system.num_ranks == 1 and pattern not in (Pattern.GEMM, Pattern.KERNEL):
            raise self._report.fail(Code.MGS307, "a collective needs at least 2 gpus", declaration.span)
        tensors = [operand.tensor for operand in self._operands.values()] + self._extra
        results = [operand.tensor for operand in self._operands.values() if operand.made_by] + self._extra
        return Workload(
            declaration.name,
            self._about,
            pattern,
            tuple(tensors),
            made.moved,
            made.gemm,
            made.output,
            made.kernel,
            made.split,
            tuple(tensor.name for tensor in results),
            made.then,
            made.loads,
            made.experts,
            made.busiest,
        )

    def _pattern(self, declaration: ast.Workload) -> Pattern:
        names = [name for name, operand in self._operands.items() if name not in self._used and operand.made_by]
        unused = [name for name, operand in self._operands.items() if name not in self._used and not operand.made_by]
        for name in unused:
            self._report.warn(Code.MGS212, f"'{name}' is never used", self._spans[name])
        order = self._making.order
        pattern = PATTERNS.get(tuple(order)) if len(names) == 1 else None
        if len(names) == 2 and len(order) == 2:
            pattern = BESIDE.get(frozenset(order))
        if pattern is None:
            what = " + ".join(order) or "no operation"
            raise self._making.refused(f"{what} is not a combination that is simulated", _head(declaration))
        if pattern is Pattern.GEMM or pattern.beside:
            self._check_complete(names)
        return pattern

    def _check_complete(self, results: list[str]) -> None:
        for name in results:
            if self._operands[name].partial:
                hint = "add the sum: reduce_scatter(gemm(x, w))"
                raise self._making.refused("each rank would hold a part of the sum only", self._spans[name], hint)

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
        try:
            self._operands[statement.name] = self._defined(statement)
        finally:
            # Only now: a definition that names itself names a tensor that is unknown, not one that is wrong.
            self._spans[statement.name] = statement.span

    def _defined(self, statement: ast.Define) -> Operand:
        if statement.name in self._entry.scope.names(Kind.LET, Kind.PARAM):
            message = f"'{statement.name}' is a value of the file already"
            raise self._report.fail(Code.MGS206, message, statement.span, "choose another name")
        first = statement.phrase[0].parts[0]
        if isinstance(first, ast.Name) and first.text == "tensor":
            return Operand(self._reader.tensor(statement, Place(self._entry.scope)))
        words = Words(statement.phrase, self._report)
        value = words.take("a value")
        if isinstance(value, ast.Name) and isinstance(words.peek(), ast.Parens):
            single((value, words.take("a call")), self._report)
            raise self._report.stop()
        words.end()
        return self._value(value, statement.name)

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
        values = tensors_of(operation, call, self._report)
        operands = [self._value(value, self._inner_name(value, operation, name)) for value in values]
        order = self._making.order
        order.append(operation)
        if len(order) > 2 and tuple(order) not in PATTERNS:
            what, packed = " + ".join(order), order[:2] == ["all_gather"] * 2
            hint = "gather keys and values as one tensor: attention(q, all_gather(kv), heads=64)" if packed else ""
            raise self._making.refused(f"{what} is not a combination that is simulated", call.span, hint)
        for value, operand in zip(values, operands, strict=True):
            if isinstance(value, ast.Call):
                self._extra.append(operand.tensor)
        named = Named(call, Place(self._entry.scope), self._evaluator, self._report)
        return self._follow(operation, operands, call, name, named)

    def _follow(self, operation: str, operands: list[Operand], call: ast.Call, name: str, named: Named) -> Operand:
        making, first = self._making, operands[0]
        match operation:
            case "all_gather":
                return collectives.all_gather(making, first, call, name)
            case "reduce_scatter" | "all_reduce":
                return collectives.summed(making, first, call, name, operation)
            case "all_to_all":
                return collectives.all_to_all(making, first, call, name, named)
            case "broadcast" | "send_recv":
                return collectives.from_first(making, first, call, name, operation)
            case "gemv":
                return kernels.gemv(making, operands, call, name)
            case "grouped_gemm":
                return kernels.grouped_gemm(making, operands, call, name, named)
            case "attention":
                return attention(making, operands, call, name, named)
            case "add":
                return kernels.add(making, operands, call, name)
            case _:
                return kernels.gemm(making, first, operands[1], call, name)

    def _inner_name(self, value: ast.Expression, operation: str, name: str) -> str:
        """Name a result that has no name of its own, for instance ``x_gathered``."""
        if operation in ("reduce_scatter", "all_reduce"):
            return f"{name}_partial"
        match value:
            case ast.Call(
                function=ast.Name(text=inner), arguments=(ast.Argument(values=(ast.Name(text=tensor),)), *_)
            ) if inner in ("all_gather", "all_to_all"):
                return f"{tensor}_{'gathered' if inner == 'all_gather' else 'exchanged'}"
            case _:
                return f"{name}_input"


def resolve_workload(
    entry: Entry, systems: SystemResolver, evaluator: ExpressionEvaluator, report: Report
) -> tuple[System, Workload]:
    """Return the workload of an entry with its system."""
    declaration = entry.declaration
    assert isinstance(declaration, ast.Workload)
    system = systems.system(entry.scope.find(declaration.system, Kind.SYSTEM, report))
    return system, WorkloadResolver(entry, system, evaluator, report).resolve()


def _head(declaration: ast.Workload) -> Span:
    span = declaration.span
    return Span(span.source, span.start, declaration.system.span.end)
