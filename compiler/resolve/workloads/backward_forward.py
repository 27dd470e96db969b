"""The forward pass as its backward pass sees it: tensors that are held, and those that are made again."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ...ir import Repeat, Tensor
from ...ir.operations import CollectiveOperation
from ...text import syntax as ast
from .backward_rules import DISPATCH, BackCall
from .backward_syntax import SyntaxWriter
from .graph_calls import EXPERTS, GATHER, GEMM, GraphCall

Sizes = tuple[ast.Expression, ast.Expression]


@dataclass(frozen=True, slots=True)
class Forward:
    """A graph as it was read: ``inputs`` are its declared tensors with their sizes as written, ``calls`` in order.

    ``arguments`` are the named ones of each call, by the name of its result, and ``dispatch_of`` is the dispatch of
    each combine. ``cut`` are tensors that may be cut into batches, of sequences of ``sequence`` rows.
    """

    inputs: Mapping[str, tuple[Tensor, Sizes]]
    calls: tuple[GraphCall, ...]
    arguments: Mapping[str, tuple[ast.Argument, ...]]
    repeat: Repeat | None
    dispatch_of: Mapping[str, GraphCall] = field(default_factory=dict)
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

    def seen(self, call: GraphCall) -> BackCall:
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

    def _again(self, call: GraphCall) -> ast.Expression:
        """The call as it was; a product whose terms it sums stays inside it."""
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

    def _tensor(self, name: str) -> Tensor:
        return self._calls[name].result if name in self._calls else self._forward.inputs[name][0]

    def _named(self, call: GraphCall, names: Names) -> str:
        """The name of a result; one inside a definition is named after it, or after what is gathered."""
        if call.name == call.definition:
            return call.name
        word = call.operation.name
        first = self._names[call.operands[0].tensor.name]
        return names.fresh(f"{first}_gathered" if word == GATHER else f"{call.definition}_{word}")

    def _sizes_of(self, call: GraphCall) -> Sizes:
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
