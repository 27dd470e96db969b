"""The backward pass of a workload as statements: gradients from those of its results, in reverse.

What the forward pass held is declared; what else a gradient needs is made or gathered again, right before it. The
gradient of a weight stands behind that of the activation of the same product, as frameworks issue them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...ir import DType, Repeat, Tensor
from ...ir.operations import CollectiveOperation
from ...text import syntax as ast
from .backward_rules import CAST, DISPATCH, RULES, TYPE, BackCall, GradientTerm, SyntaxWriter, narrowed
from .calls import ADD, EXPERTS, GATHER, GEMM, WorkloadCall

Sizes = tuple[ast.Expression, ast.Expression]


@dataclass(frozen=True, slots=True)
class Forward:
    """A workload as it was read: ``inputs`` are its declared tensors with their sizes as written, ``calls`` in order.

    ``arguments`` are the named ones of each call, by the name of its result, and ``dispatch_of`` is the dispatch of
    each combine. ``cut`` are tensors that may be cut into batches, of sequences of ``sequence`` rows.
    """

    inputs: Mapping[str, tuple[Tensor, Sizes]]
    calls: tuple[WorkloadCall, ...]
    arguments: Mapping[str, tuple[ast.Argument, ...]]
    repeat: Repeat | None
    dispatch_of: Mapping[str, WorkloadCall] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
    sequence: ast.Expression | None = None

    @property
    def results(self) -> list[str]:
        """Results that nothing else is made from, and what the next layer takes."""
        read = {operand.tensor.name for call in self.calls for operand in call.operands}
        taken = self.repeat.result if self.repeat is not None else ""
        return [call.name for call in self.calls if call.name not in read or call.name == taken]


class Names:
    """Names of a text, each of them once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with a number if that is taken."""
        numbered = (f"{wanted}{number}" for number in range(2, len(self._taken) + 3))
        name = next(each for each in (wanted, *numbered) if each not in self._taken)
        self._taken.add(name)
        return name


class ForwardTensors:
    """Tensors of the forward pass under their names in the derived text.

    ``kept`` are results that were held, each with the place that says so. ``state`` takes each statement that makes one
    again, with a note.
    """

    def __init__(
        self,
        forward: Forward,
        kept: Mapping[str, SyntaxWriter],
        names: Names,
        write: SyntaxWriter,
        state: Callable[[ast.Define, str], None],
    ) -> None:
        self._forward, self._kept, self._write, self._state = forward, kept, write, state
        self._calls = {call.name: call for call in forward.calls}
        self._readers = Counter(operand.tensor.name for call in forward.calls for operand in call.operands)
        self._sizes = {name: sizes for name, (_, sizes) in forward.inputs.items()}
        self._names = {name: name for name in forward.inputs}
        for call in forward.calls:
            self._sizes[call.name] = self._sizes_of(call)
            self._names[call.name] = self._named(call, names)
        self._there: set[str] = set()

    def name(self, tensor: str) -> str:
        """The name of a tensor in the derived text."""
        return self._names[tensor]

    def seen(self, call: WorkloadCall) -> BackCall:
        """A call with the names of the derived text."""
        names = tuple(self.name(operand.tensor.name) for operand in call.operands)
        arguments, dispatch = self._forward.arguments, self._forward.dispatch_of.get(call.name)
        routing = () if dispatch is None else arguments[dispatch.name]
        return BackCall(call, names, self.name(call.name), arguments[call.name], routing, self._write)

    def gradient(self, name: str, of: str) -> ast.Define:
        """The declaration of a gradient of the form of the tensor ``of``."""
        return self._write.tensor(name, self._tensor(of), self._sizes[of])

    def declared(self) -> list[ast.Define]:
        """Inputs that are needed, and what was kept."""
        inputs = [self.gradient(name, name) for name in self._forward.inputs if name in self._there]
        return [
            *inputs,
            *(write.tensor(name, self._tensor(name), self._sizes[name]) for name, write in self._kept.items()),
        ]

    def need(self, written: str) -> None:
        """State what makes a tensor again, unless it is there."""
        tensor = next(each for each, name in self._names.items() if name == written)
        if tensor in self._there or tensor in self._kept:
            return
        self._there.add(tensor)
        if tensor in self._calls:
            call = self._calls[tensor]
            note = "gathered again" if call.operation.name == GATHER else "made again"
            self._state(self._write.define(written, self._again(call)), note)

    def _again(self, call: WorkloadCall) -> ast.Expression:
        """The call as it was; a product whose terms it sums stays inside it.

        Raises
        ------
        NoGradientError
            If rows of experts are those of a tensor that was kept: a tensor says nothing of experts, a dispatch does.
        """
        self._check_rows(call)
        operands: list[ast.Expression] = []
        for operand in call.operands:
            name = operand.tensor.name
            inner = self._calls.get(name)
            nested = inner is not None and inner.partial and self._readers[name] == 1 and name not in self._kept
            if nested and inner is not None:
                expression = self._again(inner)
            else:
                self.need(self.name(name))
                expression = self._write.name(self.name(name))
            operands.append(self._write.turned(expression) if operand.transposed else expression)
        return self._write.call(call.operation.name, operands, self._forward.arguments[call.name])

    def _check_rows(self, call: WorkloadCall) -> None:
        """Check that the rows of experts are known where a product of them is made again."""
        if call.operation.name != EXPERTS or any(each.name == "rows" for each in self._forward.arguments[call.name]):
            return
        source = call.operands[0].tensor.name
        while source in self._calls and source not in self._kept and self._calls[source].operation.name != DISPATCH:
            source = self._calls[source].operands[0].tensor.name
        if source in self._kept:
            made, kept = self.name(call.name), self.name(source)
            message = f"{made} is made again from {kept}, which is kept without the rows of its experts"
            raise NoGradientError(f"{message}: name and keep both, or neither")

    def _tensor(self, name: str) -> Tensor:
        return self._calls[name].result if name in self._calls else self._forward.inputs[name][0]

    def _named(self, call: WorkloadCall, names: Names) -> str:
        """The name of a result; one inside a definition is named after it, or after what is gathered."""
        if call.name == call.definition:
            return call.name
        word = call.operation.name
        first = self._names[call.operands[0].tensor.name]
        return names.fresh(f"{first}_gathered" if word == GATHER else f"{call.definition}_{word}")

    def _sizes_of(self, call: WorkloadCall) -> Sizes:
        """Sizes of a result, as they follow from those of its operands."""
        first, last = call.operands[0], call.operands[-1]
        rows, cols = self._sizes[first.tensor.name][:: -1 if first.transposed else 1]
        if call.operation.name == GEMM:
            return rows, self._sizes[last.tensor.name][0 if last.transposed else 1]
        if call.operation.name == EXPERTS:
            return rows, self._sizes[last.tensor.name][1]
        dispatch = self._forward.dispatch_of.get(call.name)
        if dispatch is not None:  # as many rows as were sent
            return self._sizes[dispatch.operands[0].tensor.name][0], cols
        if call.operation.name == DISPATCH:
            return self._write.scaled(rows, Fraction(call.result.rows, first.tensor.rows)), cols
        if isinstance(call.operation, CollectiveOperation):
            return rows, cols
        return rows, self._write.scaled(cols, Fraction(call.result.cols, first.seen.cols))


class NoGradientError(ValueError):
    """A gradient that no statement can say; the message says why."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Statements of a workload: ``tensors``, what is made of them, layers and batches.

    ``notes`` say why some are there.
    """

    tensors: tuple[ast.Define, ...]
    ops: tuple[ast.Define, ...]
    layers: tuple[ast.Say, ...]
    notes: Mapping[str, str]

    @property
    def statements(self) -> tuple[ast.Define | ast.Say, ...]:
        """All in order."""
        return (*self.tensors, *self.ops, *self.layers)


class BackwardPass:
    """Derives the backward pass of ``forward``, of which each call has a rule; ``kept`` as in ForwardTensors.

    ``reserved`` are names that nothing may get.
    """

    def __init__(
        self, forward: Forward, kept: Mapping[str, SyntaxWriter], reserved: Iterable[str], write: SyntaxWriter
    ) -> None:
        self._forward, self._write = forward, write
        self._names = Names({*reserved, *forward.inputs, *(call.definition for call in forward.calls)})
        self._tensors = ForwardTensors(forward, kept, self._names, write, self._state)
        self._to_come = Counter(operand.tensor.name for call in forward.calls for operand in call.operands)
        self._terms: dict[str, list[GradientTerm]] = {}
        self._waiting: list[str] = []
        self._of_inputs: dict[str, str] = {}
        self._stated: list[ast.Define] = []
        self._notes: dict[str, str] = dict.fromkeys(kept, "held")

    def derive(self) -> Derived:
        """Return the statements.

        Raises
        ------
        NoGradientError
            If a gradient cannot be said.
        """
        given = {name: self._give(name) for name in self._forward.results}
        for call in reversed(self._forward.calls):
            self._go_back(call)
        self._state_waiting()
        held = self._tensors.declared()
        layers = (*self._repeat(given), *self._batch(given, held))
        return Derived((*given.values(), *held), tuple(self._stated), layers, self._notes)

    def _repeat(self, given: Mapping[str, ast.Define]) -> Iterator[ast.Say]:
        repeat = self._forward.repeat
        if repeat is not None:
            last = self._of_inputs[repeat.as_input]
            if any(each.name == last and isinstance(each.phrase[0].parts[0], ast.Member) for each in self._stated):
                message = f"the gradient of {repeat.as_input} is a part of what one kernel makes"
                raise NoGradientError(f"{message}, and the next layer takes a whole result")
            yield self._write.repeat(repeat.count, last, given[repeat.result].name)

    def _batch(self, given: Mapping[str, ast.Define], held: Sequence[ast.Define]) -> Iterator[ast.Say]:
        """Batches of the forward pass are those of the backward pass."""
        cut, sequence = self._forward.cut, self._forward.sequence
        names = [each.name for result, each in given.items() if result in cut]
        if sequence is not None and names:
            yield self._write.batch([*names, *(each.name for each in held if each.name in cut)], sequence)

    def _give(self, result: str) -> ast.Define:
        """Declare the gradient of a result."""
        name = self._names.fresh(f"d_{result}")
        self._terms[result] = [GradientTerm(self._write.name(name))]
        self._notes[name] = f"the gradient of {result}"
        return self._tensors.gradient(name, result)

    def _go_back(self, call: WorkloadCall) -> None:
        terms = self._terms.pop(call.name)
        gradient = (
            self._sum_of_gathered(call, terms) if call.operation.name == GATHER else self._total(call.name, terms)
        )
        narrow = narrowed(call)
        if narrow is not None:
            gradient = self._cast(gradient, narrow)
        rule = RULES[ADD if self._is_undone(call) else call.operation.name]
        for position, term in rule(self._tensors.seen(call), gradient):
            for place, part in self._parts(position, term):
                self._terms.setdefault(call.operands[place].tensor.name, []).append(part)
        for operand in call.operands:
            name = operand.tensor.name
            self._to_come[name] -= 1
            if name not in self._forward.inputs or self._to_come[name]:
                continue
            if call.operation.name in (GEMM, EXPERTS):
                self._waiting.append(name)
            else:
                self._state_input(name)
                self._state_waiting()

    def _cast(self, gradient: GradientTerm, dtype: DType) -> GradientTerm:
        """State a gradient in another type."""
        write, expression = self._write, gradient.expression
        assert isinstance(expression, ast.Name), "the gradient of a product has a name"
        cast = write.call(CAST, (expression,), (write.argument(TYPE, write.name(dtype.value)),))
        return GradientTerm(self._named(replace(gradient, expression=cast), f"{expression.text}_cast"))

    def _is_undone(self, call: WorkloadCall) -> bool:
        """Whether products alone take what was cast, whose gradients have the type from before."""

        def readers(name: str) -> Iterator[WorkloadCall]:
            for each in self._forward.calls:
                if any(operand.tensor.name == name for operand in each.operands):
                    yield from readers(each.name) if each.operation.name == GATHER else (each,)

        before = call.operands[0].tensor.dtype
        return call.operation.name == CAST and all(
            narrowed(each) is not None and each.result.dtype is before for each in readers(call.name)
        )

    def _parts(self, position: int, term: GradientTerm) -> Iterator[tuple[int, GradientTerm]]:
        """A term as it is, or those of several operands from ``position`` on, which are parts of it."""
        if not term.parts:
            yield position, term
            return
        whole = self._named(term, term.name)
        for place, word in enumerate(term.parts, position):
            yield place, replace(term, expression=self._write.part(whole, word), needs=(), name="", parts=())

    def _state_waiting(self) -> None:
        """State gradients of weights whose products have passed on theirs."""
        waiting, self._waiting = self._waiting, []
        for name in waiting:
            self._state_input(name)

    def _state_input(self, name: str) -> None:
        total = self._sum(name, self._terms.pop(name)).expression
        assert isinstance(total, ast.Name), "a sum has a name"
        self._of_inputs[name] = total.text

    def _total(self, name: str, terms: Sequence[GradientTerm]) -> GradientTerm:
        """The gradient of a result, and what waits for it."""
        stated = len(self._stated)
        total = self._sum(name, terms)
        if len(self._stated) > stated:
            self._state_waiting()
        return total

    def _sum(self, tensor: str, terms: Sequence[GradientTerm]) -> GradientTerm:
        """State the sum of ``terms``, unless it has a name; parts of a sum over ranks are added up on all of them."""
        whole, parts = [each for each in terms if not each.partial], [each for each in terms if each.partial]
        if parts:
            part = self._added(parts)
            whole.append(GradientTerm(self._write.call("all_reduce", (part.expression,)), part.needs))
        total = self._added(whole)
        if isinstance(total.expression, ast.Name):
            return total
        return GradientTerm(self._named(total, total.name or f"d_{self._tensors.name(tensor)}"))

    def _named(self, term: GradientTerm, wanted: str) -> ast.Name:
        """State a term, behind what it needs."""
        for need in term.needs:
            self._tensors.need(need)
        name = self._names.fresh(wanted)
        self._state(self._write.define(name, term.expression))
        return self._write.name(name)

    def _sum_of_gathered(self, call: WorkloadCall, terms: Sequence[GradientTerm]) -> GradientTerm:
        """The parts of the gradient of what was gathered, which are summed where they are scattered."""
        if not all(each.partial for each in terms):
            name = self._tensors.name(call.name)
            raise NoGradientError(f"the gradient of {name} is whole on every rank, and no operation takes its rows")
        return self._added(terms)

    def _added(self, terms: Sequence[GradientTerm]) -> GradientTerm:
        total = terms[0]
        for term in terms[1:]:
            added = self._write.call(ADD, (total.expression, term.expression))
            total = GradientTerm(added, (*total.needs, *term.needs), total.partial)
        return total

    def _state(self, statement: ast.Define, note: str = "") -> None:
        self._stated.append(statement)
        if note:
            self._notes[statement.name] = note
