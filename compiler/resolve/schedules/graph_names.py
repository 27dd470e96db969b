"""How schedules of graphs name ops: ``qkv``, ``qkv[1]`` of a batch, ``qkv.all_gather`` for a lone collective."""

from dataclasses import replace
from fractions import Fraction

from ...codes import Code
from ...ir import Graph, GraphOp
from ...planning.graph_batches import is_summed_last, op_names
from ...planning.graph_order import collective_name
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.source import Span
from ...text.units import NUMBER
from ...text.vocabulary import Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import Place
from ..values.sentences import Words


class OpNames:
    """The ops of ``graph`` in so many batches, by name."""

    def __init__(self, graph: Graph, batches: int, numbers: FigureReader, place: Place, report: Report) -> None:
        self._graph, self._numbers, self._place, self._report = graph, numbers, place, report
        self._names = op_names(graph, batches)
        self._ops = {name: op for op in graph.ops for name in self._names[op.name]}

    def __getitem__(self, name: str) -> GraphOp:
        """The op of the file behind a name."""
        return self._ops[name]

    def distinct(self, words: Words, *, parts: bool = False, planned: bool = False) -> tuple[str, ...]:
        """Names of ops that ``words`` list, each once; with ``parts`` also of collectives of their own.

        If they are to be ``planned``, those that a name stands for there.
        """
        return tuple(self.spans(words, parts=parts, planned=planned))

    def spans(self, words: Words, *, parts: bool = False, planned: bool = False) -> dict[str, Span]:
        """The same, with the place of each."""
        names_of = self.planned if planned else self.of
        found: dict[str, Span] = {}
        for value in words.take_list("an op"):
            collective = parts and isinstance(value, ast.Member)
            for name in self._collectives_of(value) if collective else names_of(value):
                if name in found:
                    raise self._report.fail(Code.MGS206, f"{name} is listed twice", value.span)
                found[name] = value.span
        return found

    def of(self, value: ast.Expression) -> tuple[str, ...]:
        """The op that ``qkv[1]`` names, or that of each batch."""
        match value:
            case ast.Name():
                return self._names[self._op(value)]
            case ast.Index(base=ast.Name() as base, subscripts=(subscript,)):
                names = self._names[self._op(base)]
                if len(names) == 1:
                    message = f"{base.text} is not in batches"
                    raise self._report.fail(Code.MGS203, message, value.span, f"say {base.text}, or batches 2")
                last = Property("a batch", NUMBER, Fraction(0), Fraction(len(names) - 1), whole=True)
                return (names[int(self._numbers.value(last, (subscript,), self._place).amount)],)
            case _:
                message = "the name of an op is expected here"
                raise self._report.fail(Code.MGS116, message, value.span, "qkv, or qkv[0] of a batch")

    def planned(self, value: ast.Expression) -> tuple[str, ...]:
        """The ops that ``value`` says how to carry out: of sums over batches and ranks the last, if none is named."""
        names = self.of(value)
        return names[-1:] if isinstance(value, ast.Name) and is_summed_last(self._ops[names[0]]) else names

    def number_of(self, name: str) -> int:
        """The batch of an op; -1 where it is of none."""
        names = self._names[self._ops[name].name]
        return names.index(name) if len(names) > 1 else -1

    def _collectives_of(self, value: ast.Expression) -> tuple[str, ...]:
        """The collectives of an op that is apart, by their names."""
        assert isinstance(value, ast.Member), "a collective is a part of an op"
        names = self.planned(value.base)
        own = tuple(collective_name(replace(self._ops[name], name=name)) for name in names)
        word = own[0].rpartition(".")[2]
        if value.name != word or not self._ops[names[0]].is_pair:
            hint = f"{names[0]}.{word}" if self._ops[names[0]].is_pair else "a pair has one: dh.all_gather"
            message = f"{value.base.span.text} has no collective '{value.name[:40]}'"
            raise self._report.fail(Code.MGS203, message, value.span, hint)
        return own

    def _op(self, name: ast.Name) -> str:
        if name.text not in self._names:
            part_of = {tensor: op for tensor, op, _ in self._graph.results}
            inside = f"{name.text} is made inside {part_of[name.text]}" if name.text in part_of else ""
            hint = inside or did_you_mean(name.text, self._names) or f"ops are {listing(self._names)}"
            raise self._report.fail(Code.MGS203, f"unknown op '{name.text[:64]}'", name.span, hint)
        return name.text
