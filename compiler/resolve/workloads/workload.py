"""Workloads: tensors and calls of operations, followed one by one.

Beside them a workload has transposed operands, ``gemm(h.t, dy)``, and ``repeat 80 y as x``: layers of which each takes
the result of the one before.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...codes import Code
from ...ir import Batch, Pattern, Repeat, System, Tensor, Workload, operations
from ...ir.operations import CollectiveOperation, KernelOperation, Operation, OperationError
from ...ir.operations.routing import DISPATCH, TOKENS
from ...text import syntax as ast
from ...text.diagnostics import Span, did_you_mean, listing
from ...text.names import Entry, Kind
from ...text.vocabulary import BACKWARD_WORDS, MAX_LAYERS, WORKLOAD_WORDS
from ..devices.system import SystemResolver
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_of, head_word, single
from .batches import BatchSaid, batches_of, read_batch
from .call_arguments import ArgumentReader, TensorReader, is_tensor
from .calls import CallOperand, WorkloadCall, call_of, chain_of
from .ops import ops_of

MAX_CALLS = 256

_UNEVEN_PATTERNS = (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_BESIDE_A2A)
"""Patterns in which the rows that ranks send each other may differ from rank to rank."""


def resolve_workload(entry: Entry, systems: SystemResolver, reading: Reading) -> tuple[System, Workload]:
    """Return the workload of an entry with its system."""
    system = systems.of_workload(entry)
    if is_backward(entry.workload):
        from .backward import BackwardReader  # few files have one: the others do not wait for its import

        entry = BackwardReader(systems, reading).written_out(entry)
    return system, WorkloadReader(entry, system, systems.whole_system(entry), reading).read()


def is_backward(declaration: ast.WorkloadNode) -> bool:
    """Whether a workload says that it is derived."""
    return any(head_word(each) in BACKWARD_WORDS for each in declaration.block.statements)


def _routes(declaration: ast.WorkloadNode) -> bool:
    """Whether a workload sends rows to experts."""
    calls = (each.function for each in ast.nodes_in(declaration.block) if isinstance(each, ast.Call))
    return any(isinstance(each, ast.Name) and each.text == DISPATCH.name for each in calls)


class WorkloadReader:
    """Reads one workload on ``system``, which is ``whole`` or a group of it."""

    def __init__(self, entry: Entry, system: System, whole: System, reading: Reading) -> None:
        self._entry, self._system, self._report = entry, system, reading.report
        self._reading = reading.inside(entry.scope)
        # Sizes of groups are parameters: a group of one rank has no collectives, and is no mistake.
        self._one_rank = system.of > 0 and system.num_ranks == 1
        routes, ranks = _routes(entry.workload), system.num_ranks
        self._tensors = TensorReader(self._reading, ranks, routes=routes, one_rank=self._one_rank)
        self._arguments = ArgumentReader(self._reading, whole, ranks)
        self._known: dict[str, Tensor] = {}
        self._spans: dict[str, Span] = {}
        self._used: set[str] = set()
        self._calls: dict[str, WorkloadCall] = {}
        self._views: dict[str, CallOperand] = {}
        self.written: dict[str, ast.Call] = {}
        """Calls as the text has them, by their results."""
        self._taken: set[str] = set()
        self._about = ""
        self.repeat: Repeat | None = None
        self.batch: BatchSaid | None = None
        self._is_too_long = False

    @property
    def calls(self) -> tuple[WorkloadCall, ...]:
        """All calls that were read, in order."""
        return tuple(self._calls.values())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that were read, results included."""
        return tuple(self._known.values())

    def read(self) -> Workload:
        """Return the workload."""
        declaration = self._entry.workload
        self._taken = {each.name for each in declaration.block.statements if isinstance(each, ast.Define)}
        with self._report.whole():
            for statement in declaration.block.statements:
                with self._report.attempt():
                    if isinstance(statement, ast.Define):
                        self._define(statement)
                    else:
                        self._say(statement)
        self._check(declaration)
        if self.batch is None:
            workload = self._graph(self._calls, self._known)
            self._check_loads(workload)
            return workload
        one, cuts = batches_of(self._calls, self._known, self.batch, self.repeat, self._system, self._report)
        batch = Batch(self.batch.names, self.batch.rows, tuple((count, self._graph(*cut)) for count, cut in cuts))
        return replace(self._graph(*one), batch=batch)

    def _graph(self, calls: Mapping[str, WorkloadCall], tensors: Mapping[str, Tensor]) -> Workload:
        alone = self.repeat is None and self.batch is None
        ops, results = ops_of(list(calls.values()), tensors, alone=alone)
        viewed = {name: view.tensor.name for name, view in self._views.items()}
        made = {tensor: (op, what) for tensor, op, what in results}
        views = tuple((name, *made[tensor]) for name, tensor in viewed.items() if tensor in made)
        return Workload(self._entry.name, self._about, ops, tuple(tensors.values()), (*results, *views), self.repeat)

    def _check(self, declaration: ast.WorkloadNode) -> None:
        if not self._calls:
            raise self._report.fail(Code.MGS520, "no operation is there to simulate", declaration.system.span)
        for name, tensor in self._known.items():
            call = self._calls.get(name)
            if call is None and name not in self._used:
                self._report.warn(Code.MGS212, f"'{name}' is never used", self._spans[name])
            if call is not None and call.partial and name not in self._used:
                message = f"{tensor.name} is a part of a sum on each rank, which nothing adds up"
                self._report.error(Code.MGS310, message, call.span, "reduce_scatter(gemm(x, w))")
            collective = call is not None and call.made.moved is not None
            if collective and call is not None and self._system.num_ranks == 1:
                self._report.error(Code.MGS307, "a collective needs at least 2 gpus", call.span)

    def _check_loads(self, workload: Workload) -> None:
        """Reject loads that differ from rank to rank beside what takes as many rows on every rank.

        Row-wise kernels behind them may have as many rows as come to their rank.
        """
        uneven = [call for call in self.calls if call.made.exchange is not None and call.made.exchange.loads]
        first, *behind = [op.shape for op in sorted(workload.ops, key=lambda op: op.shape.moved is None)]
        kernels = [call.operation for call in self.calls if isinstance(call.operation, KernelOperation)]
        fits = all(shape.loads and shape.moved is None for shape in behind) and first.pattern in _UNEVEN_PATTERNS
        fits = fits and workload.repeat is None and workload.batch is None
        if uneven and not (fits and sum(not kernel.uneven for kernel in kernels) == len(behind)):
            takers = [each.name for each in operations.OPERATIONS if isinstance(each, KernelOperation) and each.uneven]
            message = f"loads that differ from rank to rank are simulated alone, or before a {' or '.join(takers)}"
            message = f"{message}; row-wise kernels may follow"
            hint = "rows=[...] of relative ranks, r + 0 first, goes everywhere"
            raise self._report.fail(Code.MGS520, message, uneven[0].span, hint)

    def _say(self, statement: ast.Say) -> None:
        word, parts = head_of(statement), statement.phrase[0].parts
        match parts:
            case (ast.Name(text="about"), ast.Text(value=text)) if len(statement.phrase) == 1:
                self._about = text
            case (ast.Name(text="about"), *_):
                raise self._report.fail(Code.MGS116, "about says a text", statement.span, 'about "MLP up-projection"')
            case (ast.Name(text="repeat"), *_):
                self._read_repeat(statement)
            case (ast.Name(text="batch"), *_):
                self._read_batch(statement)
            case (ast.Call(), *_):
                hint = f"y = {statement.span.text[:60]}"
                raise self._report.fail(Code.MGS116, "a result has a name", statement.span, hint)
            case _:
                span = word.span if word is not None else statement.span
                known = f"a workload has: {listing(WORKLOAD_WORDS)}, and definitions such as y = gemm(x, w)"
                hint = did_you_mean(span.text[:40], WORKLOAD_WORDS) or known
                raise self._report.fail(Code.MGS201, f"a workload has no property '{span.text[:40]}'", span, hint)

    def _read_repeat(self, statement: ast.Say) -> None:
        """Read ``repeat 80 y as x``."""
        layers, result, first = repeat_said(statement, self._reading)
        if self.repeat is not None:
            raise self._report.fail(Code.MGS206, "repeat is said twice", statement.span)
        made, taken = self._tensor(result), self._tensor(first)
        if result.text not in self._calls:
            raise self._report.fail(Code.MGS310, f"'{result.text}' is no result of a layer", result.span)
        if first.text in self._calls:
            raise self._report.fail(Code.MGS310, f"'{first.text}' is no input of a layer", first.span)
        if (made.dtype, made.rows, made.cols, made.shard) != (taken.dtype, taken.rows, taken.cols, taken.shard):
            message = f"{_text(made)} cannot be the next layer's {_text(taken)}"
            raise self._report.fail(Code.MGS310, message, statement.span, "what is repeated has the form of its input")
        self.repeat = Repeat(layers, result.text, first.text)

    def _read_batch(self, statement: ast.Say) -> None:
        said = read_batch(statement, self._reading)
        if self.batch is not None:
            raise self._report.fail(Code.MGS206, "batch is said twice", statement.span)
        for name in said.inputs:
            self._tensor(name)
            if name.text in self._calls:
                raise self._report.fail(Code.MGS310, f"'{name.text}' is no input of the workload", name.span)
        self.batch = said

    def _define(self, statement: ast.Define) -> None:
        name = statement.name
        if name in self._spans:
            hint = f"the first is on line {self._spans[name].location.line}"
            raise self._report.fail(Code.MGS206, f"'{name}' is defined twice", statement.span, hint)
        try:
            if name in self._entry.scope.names(Kind.LET, Kind.PARAM):
                message = f"'{name}' is a value of the file already"
                raise self._report.fail(Code.MGS206, message, statement.span, "choose another name")
            if is_tensor(statement):
                self._known[name] = self._tensors.tensor(statement)
                return
            words = Words(statement.phrase, self._report)
            value = words.take("a value")
            if isinstance(value, ast.Name) and isinstance(words.peek(), ast.Parens):
                single((value, words.take("a call")), self._report)
                raise self._report.stop()
            words.end()
            value = self._without_collectives(value)
            match value:
                case ast.Name():
                    self._views[name] = self._operand(value, name, None)
                case ast.Call():
                    self._call(value, name, name)
                case ast.Member():
                    self._views[name] = self._operand(value, name, None)
                case _:
                    raise self._report.fail(Code.MGS116, "an operation is expected here", value.span, "y = gemm(x, w)")
        finally:
            self._spans[name] = statement.span

    def _without_collectives(self, value: ast.Expression) -> ast.Expression:
        """What a group of one rank has of a collective: what it is of."""
        known = {each.name for each in operations.OPERATIONS if isinstance(each, CollectiveOperation)}
        while self._one_rank and isinstance(value, ast.Call) and value.function.span.text in known:
            value = single(value.arguments[0].values, self._report, in_call=True) if value.arguments else value
        return value

    def _tensor(self, name: ast.Name) -> Tensor:
        if name.text in self._views:
            message = f"'{name.text}' is {self._views[name.text].seen.name}, and no tensor of its own"
            raise self._report.fail(Code.MGS310, message, name.span)
        if name.text not in self._known or name.text not in self._spans:
            if name.text in self._spans:
                raise self._report.stop()
            hint = did_you_mean(name.text, self._spans) or "a tensor is defined above its use"
            raise self._report.fail(Code.MGS203, f"unknown tensor '{name.text[:64]}'", name.span, hint)
        return self._known[name.text]

    def _operand(
        self, expression: ast.Expression, definition: str, around: tuple[Operation, str] | None
    ) -> CallOperand:
        """An operand of a call ``around``, an operation with the name of its result, or of no call."""
        expression = self._without_collectives(expression)
        match expression:
            case ast.Name(text=text) if text in self._views:
                return self._views[text]
            case ast.Name():
                tensor = self._tensor(expression)
                self._used.add(tensor.name)
                return CallOperand(tensor)
            case ast.Call():
                tensor = self._call(expression, self._inner(expression, definition, around), definition)
                self._used.add(tensor.name)
                return CallOperand(tensor)
            case ast.Member(base=base, name="t"):
                operand = self._operand(base, definition, around)
                return replace(operand, transposed=not operand.transposed)
            case ast.Member(base=base, name=word):
                return self._part(self._operand(base, definition, around), word, expression.span)
            case _:
                message = "a tensor or an operation is expected here"
                raise self._report.fail(Code.MGS116, message, expression.span, "x, x.t or gemm(x, w)")

    def _part(self, whole: CallOperand, word: str, span: Span) -> CallOperand:
        """Columns of what a call makes, by their word."""
        maker = self._calls.get(whole.tensor.name)
        parts = maker.parts if maker is not None and whole.is_plain else {}
        if word not in parts:
            hint = did_you_mean(word, parts) or f"it has: {listing(parts)}" if parts else "x.t is x transposed"
            raise self._report.fail(Code.MGS203, f"{whole.seen.name} has no part '{word[:40]}'", span, hint)
        return replace(whole, part=parts[word])

    def _call(self, call: ast.Call, name: str, definition: str) -> Tensor:
        known = {operation.name: operation for operation in operations.OPERATIONS}
        word = call.function.text if isinstance(call.function, ast.Name) else call.function.span.text
        if word not in known:
            hint = did_you_mean(word, known) or f"operations are {listing(known)}"
            raise self._report.fail(Code.MGS204, f"unknown operation '{word[:64]}'", call.span, hint)
        if self._is_too_long:
            raise self._report.stop()
        if len(self._calls) >= MAX_CALLS:
            self._is_too_long = True
            hint = "layers that follow each other are said once: repeat 80 y as x"
            raise self._report.fail(Code.MGS305, f"a workload has at most {MAX_CALLS} operations", call.span, hint)
        operation = known[word]
        values = self._arguments.tensors(operation, call)
        operands = tuple([self._operand(value, definition, (operation, name)) for value in values])
        arguments = self._arguments.arguments(operation, call)
        self.written[name] = call
        rows = operands[0].tensor.rows
        if operation is DISPATCH and rows in self._tensors.said:
            arguments[TOKENS] = self._tensors.said[rows]
        try:
            *before, (last, said) = chain_of(operation, arguments, operands, self._calls, self._system)
        except OperationError as error:
            raise self._report.refuse(error.rejection, call.span) from None
        for one, own in before:
            made = self._make(one, f"{name}.{one.name}", operands, own, definition, call.span)
            self._used.add(made.name)
            operands = (CallOperand(made),)
        return self._make(last, name, operands, said, definition, call.span)

    def _make(
        self,
        operation: KernelOperation | CollectiveOperation,
        name: str,
        operands: tuple[CallOperand, ...],
        arguments: Mapping[str, Any],
        definition: str,
        span: Span,
    ) -> Tensor:
        """What a call makes, which is known by that name from here on."""
        try:
            made = call_of(operation, name, operands, arguments, self._calls, self._system, definition, span)
        except OperationError as error:
            raise self._report.refuse(error.rejection, span) from None
        self._calls[name] = made
        self._known[name] = made.result
        return made.result

    def _inner(self, call: ast.Call, definition: str, around: tuple[Operation, str] | None) -> str:
        """A name for what a call inside a definition makes: ``y_partial``, ``x_gathered`` or ``y_gemm``."""
        word = call.function.text if isinstance(call.function, ast.Name) else ""
        wanted, suffixes = f"{definition}_{word}", {each.name: each.result_suffix for each in operations.OPERATIONS}
        match call.arguments:
            case _ if around is not None and around[0].operand_suffix:
                wanted = f"{around[1]}_{around[0].operand_suffix}"
            case (ast.Argument(values=(ast.Name(text=tensor),)), *_) if suffixes.get(word):
                wanted = f"{tensor}_{suffixes[word]}"
        numbered = (f"{wanted}{number}" for number in range(2, MAX_CALLS + len(self._taken)))
        name = next(each for each in (wanted, *numbered) if each not in self._taken)
        self._taken.add(name)
        return name


def repeat_said(statement: ast.Say, reading: Reading) -> tuple[int, ast.Name, ast.Name]:
    """The number of layers of ``repeat 80 y as x``, what a layer makes, and the input of the next."""
    words = behind(statement, reading.report)
    layers = reading.count("a number of layers", 1, MAX_LAYERS, words.take("a number of layers"))
    result = words.take_name("a result")
    if words.take_word("as") is None:
        raise reading.report.fail(Code.MGS116, "'as' and an input are missing", statement.span, "repeat 80 y as x")
    first = words.take_name("an input")
    words.end()
    return layers, result, first


def _text(tensor: Tensor) -> str:
    return f"{tensor.name}, {tensor.dtype.value}[{tensor.rows}, {tensor.cols}] {tensor.layout},"
