"""Workloads: tensors and operations, their shapes per rank, and the pattern they form.

Operations are followed one by one; each says of itself what a call makes, and what it may stand beside.
"""

from collections.abc import Mapping

from ...codes import Code
from ...ir import Graph, Pattern, System, Workload, operations
from ...ir.operations import KernelOperation, NoPairError, Operand, Operation, OperationCall, OperationError
from ...text import syntax as ast
from ...text.diagnostics import Report, Stopped, did_you_mean, listing
from ...text.names import Entry, Kind
from ...text.source import Span
from ...text.vocabulary import WORKLOAD_WORDS
from ..devices.system import SystemResolver
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, head_of, single
from .arguments import ArgumentReader
from .backward_syntax import is_backward
from .combinations import either, hint_of_combinations, pattern_beside, pattern_in_turn
from .parts import WorkloadParts
from .tensors import TensorReader

# Patterns in which the rows that ranks send each other may differ from rank to rank.
_UNEVEN_PATTERNS = (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_BESIDE_A2A)


class WorkloadResolver:
    """Resolves one workload."""

    def __init__(self, entry: Entry, system: System, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._entry, self._report, self._system = entry, report, system
        self._place = Place(entry.scope)
        self._tensors = TensorReader(report, evaluator, system.num_ranks)
        self._arguments = ArgumentReader(report, evaluator, self._place)
        # By the names of the text: tensors, where each is defined, and those that another definition uses.
        self._operands: dict[str, Operand] = {}
        self._spans: dict[str, Span] = {}
        self._used: set[str] = set()
        self._about = ""
        self._parts = WorkloadParts()
        self.is_no_pair = False
        """Whether its operations form no pair, as far as they were followed: a graph may have them."""

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
        self._check_ranks(declaration, pattern)
        tensors = [operand.tensor for operand in self._operands.values()]
        results = [operand.tensor for operand in self._operands.values() if operand.made_by is not None]
        tensors, made = (*tensors, *self._parts.unnamed), [each.name for each in (*results, *self._parts.unnamed)]
        return self._parts.workload(declaration.name, pattern, tensors, tuple(made), self._about)

    def _check_ranks(self, declaration: ast.Workload, pattern: Pattern) -> None:
        kernels = [call for call in self._parts.calls if isinstance(call, KernelOperation)]
        uneven = pattern in _UNEVEN_PATTERNS and all(kernel.uneven for kernel in kernels)
        if self._parts.exchange.loads and not uneven:
            takers = [each.name for each in operations.OPERATIONS if isinstance(each, KernelOperation) and each.uneven]
            message = f"loads that differ from rank to rank are simulated alone, or before a {either(takers)}"
            hint = "rows=[...] of relative ranks, r + 0 first, goes everywhere"
            raise self._not_simulated(message, _head(declaration), hint)
        if self._system.num_ranks == 1 and pattern not in (Pattern.GEMM, Pattern.KERNEL):
            raise self._report.fail(Code.MGS307, "a collective needs at least 2 gpus", declaration.span)

    def _pattern(self, declaration: ast.Workload) -> Pattern:
        unused = [name for name in self._operands if name not in self._used]
        results = [name for name in unused if self._operands[name].made_by is not None]
        for name in unused:
            if name not in results:
                self._report.warn(Code.MGS212, f"'{name}' is never used", self._spans[name])
        pattern = None
        if len(results) == 1:
            pattern = pattern_in_turn(self._parts.calls)
        elif len(results) == 2:
            pattern = pattern_beside(self._parts.calls)
        if pattern is None:
            raise self._not_combined(_head(declaration))
        if pattern is Pattern.GEMM or pattern.beside:
            self._check_complete(results)
        return pattern

    def _check_complete(self, results: list[str]) -> None:
        for name in results:
            if self._operands[name].partial:
                hint = "add the sum: reduce_scatter(gemm(x, w))"
                raise self._not_simulated("each rank would hold a part of the sum only", self._spans[name], hint)

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
            return Operand(self._tensors.tensor(statement, self._place))
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

    def _call(self, word: str, call: ast.Call, name: str) -> Operand:
        known = {operation.name: operation for operation in operations.OPERATIONS}
        if word not in known:
            hint = did_you_mean(word, known) or f"operations are {listing(known)}"
            raise self._report.fail(Code.MGS204, f"unknown operation '{word[:64]}'", call.span, hint)
        operation = known[word]
        values = self._arguments.tensors(operation, call)
        operands = tuple([self._value(value, _inner_name(value, operation, name, known)) for value in values])
        self._parts.calls.append(operation)
        if len(self._parts.calls) > 2 and pattern_in_turn(self._parts.calls) is None:
            gathered_twice = [each.name for each in self._parts.calls[:2]] == ["all_gather"] * 2
            hint = "gather keys and values as one tensor: attention(q, all_gather(kv), heads=64)"
            raise self._not_combined(call.span, hint if gathered_twice else "")
        for value, operand in zip(values, operands, strict=True):
            if isinstance(value, ast.Call):
                self._parts.unnamed.append(operand.tensor)
        arguments = self._arguments.arguments(operation, call)
        system = self._system
        seen = OperationCall(operation, name, operands, arguments, system.num_ranks, system.gpu, self._parts.exchange)
        try:
            result = operation.infer(seen)
        except OperationError as error:
            raise self._rejected(error, call.span) from None
        self._parts.add(result)
        return Operand(result.tensor, operation, result.partial)

    def _not_combined(self, span: Span, hint: str = "") -> Stopped:
        what = " + ".join(operation.name for operation in self._parts.calls) or "no operation"
        self.is_no_pair |= not hint
        return self._not_simulated(f"{what} is not a combination that is simulated", span, hint)

    def _not_simulated(self, message: str, span: Span, hint: str = "") -> Stopped:
        """Report a combination that is not simulated; to be raised."""
        return self._report.fail(Code.MGS520, message, span, hint or hint_of_combinations())

    def _rejected(self, error: OperationError, span: Span) -> Stopped:
        """Report what an operation says of a call; to be raised."""
        rejection = error.rejection
        self.is_no_pair |= isinstance(error, NoPairError)
        if rejection.code is Code.MGS520:
            return self._not_simulated(rejection.message, span, rejection.hint)
        return self._report.fail(rejection.code, rejection.message, span, rejection.hint)


def _inner_name(value: ast.Expression, operation: Operation, name: str, known: Mapping[str, Operation]) -> str:
    """Name a result that has no name of its own, for instance ``x_gathered``."""
    if operation.operand_suffix:
        return f"{name}_{operation.operand_suffix}"
    match value:
        case ast.Call(function=ast.Name(text=inner), arguments=(ast.Argument(values=(ast.Name(text=tensor),)), *_)):
            suffix = known[inner].result_suffix if inner in known else ""
            return f"{tensor}_{suffix}" if suffix else f"{name}_{inner}"
        case ast.Call():
            return f"{name}_{value.function.span.text}"
        case _:
            return f"{name}_input"


def resolve_workload(
    entry: Entry, systems: SystemResolver, evaluator: ExpressionEvaluator, report: Report
) -> tuple[System, Workload | Graph]:
    """Return the workload of an entry with its system: a pair if its operations form one, else a graph."""
    declaration = entry.declaration
    assert isinstance(declaration, ast.Workload)
    system = systems.system(entry.scope.find(declaration.system, Kind.SYSTEM, report))
    if is_backward(declaration):
        from .backward import BackwardReader  # as ``GraphResolver`` below

        def resolve(other: Entry, beside: Report) -> object:
            return resolve_workload(other, systems, evaluator, beside)

        entry = BackwardReader(systems, evaluator, report, resolve).written_out(entry)
    as_pair, as_graph = report.beside(), report.beside()
    pair = WorkloadResolver(entry, system, evaluator, as_pair)
    with as_pair.trial():
        workload = pair.resolve()
        report.take(as_pair)
        return system, workload
    if not as_pair.has_errors:  # what is wrong is not the workload's
        raise report.stop()
    from .graph import GraphResolver  # pairs do not wait for its import

    resolver = GraphResolver(entry, system, evaluator, as_graph)
    with as_graph.trial():
        graph = resolver.resolve()
        no_pair = pair.is_no_pair or all(found.code is Code.MGS520 for found in as_pair.errors)
        if not as_graph.has_errors and (no_pair or resolver.is_meant):
            report.take(as_graph)
            return system, graph
    # Of what is no pair only the graph's reader knows what is wrong.
    is_graph = resolver.is_meant or pair.is_no_pair
    report.take(as_graph if is_graph and as_graph.has_errors else as_pair)
    raise report.stop()


def _head(declaration: ast.Workload) -> Span:
    span = declaration.span
    return Span(span.source, span.start, declaration.system.span.end)
