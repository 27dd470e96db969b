"""The backward pass of a graph as statements: gradients from those of its results, in reverse.

What the forward pass held is declared; what else a gradient needs is made or gathered again, right before it. The
gradient of a weight stands behind that of the activation of the same product, as frameworks issue them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...text import syntax as ast
from .backward_forward import Forward, ForwardTensors, Names
from .backward_rules import RULES, GradientTerm
from .backward_syntax import SyntaxWriter
from .graph_calls import ADD, EXPERTS, GATHER, GEMM, GraphCall


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
        defined = {call.definition for call in forward.calls}
        self._names = Names({*reserved, *forward.inputs, *defined})
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

    def _go_back(self, call: GraphCall) -> None:
        terms = self._terms.pop(call.name)
        gradient = (
            self._sum_of_gathered(call, terms) if call.operation.name == GATHER else self._total(call.name, terms)
        )
        for position, term in RULES[call.operation.name](self._tensors.seen(call), gradient):
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

    def _sum_of_gathered(self, call: GraphCall, terms: Sequence[GradientTerm]) -> GradientTerm:
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
