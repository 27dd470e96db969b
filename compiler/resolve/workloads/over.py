"""Workloads on several groups: ``all_gather(x, over=tp)`` and ``dispatch(r, ..., over=ep)`` in one.

Statements that follow one another over the same axes are a part, a workload of its own on that group: ``moe_tp`` and
``moe_ep`` of ``moe``. A part takes whole tensors of those before it, of which each rank has rows of its own: these are
the same rows in either group, and a group that has more ranks has more of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...codes import Code
from ...ir import Partition, Rejection, Shard, System, Tensor, Workload
from ...ir.operations.attention import OVER
from ...text import syntax as ast
from ...text.diagnostics import Span, Stopped
from ...text.names import Entry, Scope, dotted
from ..devices.system import SystemResolver
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, single
from .backward_rules import SyntaxWriter
from .call_arguments import is_tensor
from .calls import ATTENTION
from .workload import repeat_said

Axes = tuple[str, ...]
"""Names of axes that make one group."""

Resolve = Callable[[Entry], tuple[System, Workload]]

_EXAMPLE = "all_gather(x, over=tp)"
_OF_ENDS = ("about", "repeat", "batch")


@dataclass(slots=True)
class _Part:
    """Definitions that follow one another over the same axes; ``reads`` are names that they take, with their places."""

    axes: Axes
    definitions: list[ast.Define] = field(default_factory=list)
    reads: dict[str, Span] = field(default_factory=dict)

    @property
    def made(self) -> set[str]:
        """The names that it defines."""
        return {each.name for each in self.definitions}


@dataclass(frozen=True, slots=True)
class _Made:
    """What an earlier part over ``axes`` defines: its tensor, None where the name stands for columns of another."""

    tensor: Tensor | None
    axes: Axes


def is_partitioned(declaration: ast.Declaration) -> bool:
    """Whether a workload says over which axes of its system something is."""
    if not isinstance(declaration, ast.WorkloadNode) or OVER not in declaration.span.text:
        return False
    defined = (each for each in declaration.block.statements if isinstance(each, ast.Define))
    return any(_says_over(part) for each in defined for group in each.phrase for part in group.parts)


def _says_over(value: ast.Expression) -> bool:
    match value:
        case ast.Name(text=text):
            return text == OVER
        case ast.Call(arguments=arguments):
            said = any(each.name == OVER for each in arguments) and not _is_in_context(value)
            return said or any(any(map(_says_over, each.values)) for each in arguments)
        case ast.Member(base=base):
            return _says_over(base)
    return False


def _is_in_context(call: ast.Call) -> bool:
    """Whether ``over`` of a call is where the rest of a sequence lies, and no group that tensors are shared by."""
    return isinstance(call.function, ast.Name) and call.function.text in ATTENTION


class PartsReader:
    """Reads one workload that is on several groups of a system.

    Parameters
    ----------
    resolve
        Resolves the workload of an entry, which no text has.
    """

    def __init__(
        self,
        entry: Entry,
        systems: SystemResolver,
        resolve: Resolve,
        reading: Reading,
    ) -> None:
        self._entry, self._systems, self._resolve, self._report = entry, systems, resolve, reading.report
        self._declaration, self._reading = entry.workload, reading.inside(entry.scope)
        self._declared: dict[str, ast.Define] = {}
        self._homes: dict[str, Axes] = {}
        self._inputs: dict[str, Tensor] = {}
        self._made: dict[str, _Made] = {}
        said = [each for each in self._declaration.block.statements if isinstance(each, ast.Say)]
        self._said = {head_word(each): each for each in reversed(said)}
        self._others = [each for each in said if head_word(each) not in _OF_ENDS]

    def read(self, scope: Scope) -> tuple[Partition, dict[Entry, tuple[System, Workload]]]:
        """Return the parts with their workloads, of one layer each; ``scope`` knows them from here on.

        There they say how often they repeat, where a layer hands on one tensor from part to part.
        """
        found: dict[Entry, tuple[System, Workload]] = {}
        handed: list[tuple[str, ...]] = []
        for part in self._parts():
            name = self._name(part.axes, [each.name for each in found])
            handed.append(tuple(each for each in part.reads if self._is_elsewhere(each, part)))
            declaration = self._part(name, part, handed[-1], *(() if found else self._others))
            entry = replace(self._entry, name=name, declaration=declaration)
            found[entry] = self._resolve(entry)
            known = {each.name: each for each in found[entry][1].tensors}
            self._inputs |= {
                name: known[name] for name in self._declared if self._homes[name] == part.axes and name in known
            }
            self._made |= {each: _Made(known.get(each), part.axes) for each in part.made}
        ends, layers = self._ends(handed)
        known_as: dict[Entry, tuple[System, Workload]] = {}
        for entry, (first, last) in zip(found, ends or [("", "")] * len(found), strict=True):
            whole = entry.workload
            if first:
                repeat = SyntaxWriter(self._said["repeat"].span).repeat(layers, last, first)
                whole = replace(whole, block=replace(whole.block, statements=(*whole.block.statements, repeat)))
            known_as[scope.derive(whole)] = found[entry]
        return Partition(self._entry.name, tuple(each.name for each in found), layers, bool(ends)), known_as

    def _parts(self) -> list[_Part]:
        """The parts in their order; definitions without axes are of the part before, the first ones of the first."""
        parts: list[_Part] = []
        waiting: list[tuple[ast.Define, dict[str, Span]]] = []
        for statement in self._declaration.block.statements:
            if not isinstance(statement, ast.Define):
                continue
            if is_tensor(statement):
                self._declared[statement.name] = self._tensor(statement)
                continue
            stripped, axes, reads = self._definition(statement)
            waiting.append((stripped, reads))
            if axes is None and not parts:
                continue
            if axes is not None and (not parts or parts[-1].axes != axes):
                parts.append(_Part(axes))
            for each, names in waiting:
                parts[-1].definitions.append(each)
                parts[-1].reads |= names
            waiting = []
        if not parts:
            message = f"tensors of {self._entry.name} are over axes, and nothing takes them"
            raise self._report.fail(Code.MGS520, message, self._declaration.system.span, f"y = {_EXAMPLE}")
        read = {name for part in parts for name in part.reads}
        parts[0].reads |= {name: each.span for name, each in self._declared.items() if name not in read}
        for part in parts:
            for name in part.reads:
                self._homes.setdefault(name, part.axes)
        return parts

    def _tensor(self, statement: ast.Define) -> ast.Define:
        """Read ``x = tensor bf16[8192, 8192] shard rows over tp`` up to its axes."""
        *before, last = statement.phrase
        places = (at for at, each in enumerate(last.parts) if isinstance(each, ast.Name) and each.text == OVER)
        place = next(places, len(last.parts))
        if place == len(last.parts):
            return statement
        words = Words((replace(last, parts=last.parts[place:]),), self._report)
        words.take(OVER)
        self._homes[statement.name] = self._axes(words.only("an axis"))
        return replace(statement, phrase=(*before, replace(last, parts=last.parts[:place])))

    def _definition(self, statement: ast.Define) -> tuple[ast.Define, Axes | None, dict[str, Span]]:
        """A definition without axes, those that it is over, None where nothing says them, and the names it takes."""
        said: dict[Axes, Span] = {}
        reads: dict[str, Span] = {}
        phrase = tuple(
            replace(group, parts=tuple(self._stripped(part, said, reads) for part in group.parts))
            for group in statement.phrase
        )
        if len(said) > 1:
            one, other = (".".join(axes) for axes in list(said)[:2])
            message = f"{statement.name} is over {one} and over {other}"
            hint = "name what one hands over: r = reduce_scatter(s, over=tp), and then what takes r"
            raise self._report.fail(Code.MGS520, message, list(said.values())[1], hint)
        of_tensors = {self._homes[name] for name in reads if name in self._declared and name in self._homes}
        axes = next(iter(said), next(iter(of_tensors)) if len(of_tensors) == 1 else None)
        return replace(statement, phrase=phrase), axes, reads

    def _stripped(self, value: ast.Expression, said: dict[Axes, Span], reads: dict[str, Span]) -> ast.Expression:
        """A value without ``over=``; ``said`` and ``reads`` take the axes and the tensors that it names."""
        match value:
            case ast.Name(text=text):
                reads.setdefault(text, value.span)
            case ast.Member(base=base):
                return replace(value, base=self._stripped(base, said, reads))
            case ast.Call(arguments=arguments):
                stays = _is_in_context(value)
                for each in arguments:
                    if each.name == OVER and not stays:
                        said.setdefault(self._axes(single(each.values, self._report, in_call=True)), each.span)
                kept = (each for each in arguments if each.name != OVER or stays)
                return replace(value, arguments=tuple(self._argument(each, said, reads) for each in kept))
        return value

    def _argument(self, argument: ast.Argument, said: dict[Axes, Span], reads: dict[str, Span]) -> ast.Argument:
        if argument.name is not None:
            return argument
        return replace(argument, values=tuple(self._stripped(each, said, reads) for each in argument.values))

    def _axes(self, value: ast.Expression) -> Axes:
        names = dotted(value)
        if names is None:
            raise self._report.fail(Code.MGS116, "over names an axis", value.span, _EXAMPLE)
        whole, outer = self._systems.whole_of(self._entry)
        if outer:
            message = f"{self._entry.name} is on {self._declaration.system}, and not over other axes"
            hint = f"a workload on several groups is on all ranks: workload {self._entry.name} on {whole.name}"
            raise self._report.fail(Code.MGS520, message, value.span, hint)
        axes = self._systems.system(whole).axes(names)
        if isinstance(axes, Rejection):
            raise self._report.refuse(axes, value.span)
        return tuple(axis.name for axis in axes)

    def _name(self, axes: Axes, taken: Sequence[str]) -> str:
        """``moe_tp``, and ``moe_tp2`` where a later part is over the same axes."""
        wanted = "_".join((self._entry.name, *axes))
        numbered = (wanted, *(f"{wanted}{number}" for number in range(2, len(taken) + 3)))
        name = next(each for each in numbered if each not in taken)
        if any(each.name == name for each in self._entry.scope.own()):
            message = f"'{name}' is a part of {self._entry.name} and a name of the file"
            raise self._report.fail(Code.MGS206, message, self._declaration.system.span, "choose another name")
        return name

    def _is_elsewhere(self, name: str, part: _Part) -> bool:
        """Whether a part takes a tensor that another one makes or that lies on other ranks."""
        if name in part.made:
            return False
        declared = self._declared.get(name)
        return name in self._made if declared is None else _is_dealt(declared) and self._homes[name] != part.axes

    def _part(self, name: str, part: _Part, handed: Sequence[str], *others: ast.Say) -> ast.WorkloadNode:
        """The declaration of a part, of one layer."""
        tensors = []
        for each, span in part.reads.items():
            if each in handed:
                tensors.append(self._taken(each, part.axes, span))
            elif each in self._declared:
                tensors.append(self._declared[each])
        abouts = (self._said["about"],) if "about" in self._said else ()
        statements = (*abouts, *others, *tensors, *part.definitions, *self._batched(part, handed))
        block = replace(self._declaration.block, statements=statements)
        return replace(self._on(part.axes).workload, name=name, block=block)

    def _on(self, axes: Axes) -> Entry:
        """The workload, on the group along some axes."""
        path = replace(self._declaration.system, names=(*self._declaration.system.names, *axes))
        return replace(self._entry, declaration=replace(self._declaration, system=path))

    def _ranks(self, axes: Axes) -> int:
        return self._systems.of_workload(self._on(axes)).num_ranks

    def _taken(self, name: str, axes: Axes, span: Span) -> ast.Define:
        """The declaration of a tensor of other ranks, as the group along ``axes`` has it."""
        write, made = SyntaxWriter(span), self._made.get(name)
        if made is None:
            return self._moved(self._declared[name], write, axes)
        tensor, there, here = made.tensor, self._ranks(made.axes), self._ranks(axes)
        if tensor is None:
            message = f"{name} is no tensor of its own, and is not handed over"
            raise self._report.fail(Code.MGS520, message, span, "hand over the whole tensor, and take its part behind")
        if made.axes != axes:
            if there > 1 and tensor.shard is not Shard.ROWS:
                raise self._not_by_rows(name, tensor.shard, made.axes, span)
            tensor = replace(tensor, rows=tensor.rows // there * here, shard=Shard.ROWS)
        sizes = (ast.NumberNode(str(each), span=span) for each in (tensor.rows, tensor.cols))
        return write.tensor(name, tensor, (next(sizes), next(sizes)))

    def _moved(self, declared: ast.Define, write: SyntaxWriter, axes: Axes) -> ast.Define:
        """A tensor of the text that lies on other ranks."""
        home, parts = self._homes[declared.name], declared.phrase[-1].parts
        match parts:
            case (first, ast.Index(subscripts=(rows, cols)) as index, shard, ast.Name(text="rows")):
                sizes = write.scaled(rows, Fraction(self._ranks(axes), self._ranks(home))), cols
                group = replace(declared.phrase[-1], parts=(first, replace(index, subscripts=sizes), shard, parts[3]))
                return replace(declared, phrase=(*declared.phrase[:-1], group))
        words = {each.value: each for each in Shard}
        said = next((words[each.text] for each in parts if isinstance(each, ast.Name) and each.text in words), None)
        raise self._not_by_rows(declared.name, said or Shard.NONE, home, write.span)

    def _not_by_rows(self, name: str, shard: Shard, axes: Axes, span: Span) -> Stopped:
        lies = "whole on each rank" if shard is Shard.NONE else f"shard {shard.value}"
        message = f"{name} is {lies} over {'.'.join(axes)}, and is taken over other axes"
        hint = "what is handed over is shard rows: each rank has rows of its own, as behind a reduce_scatter"
        return self._report.fail(Code.MGS520, message, span, hint)

    def _batched(self, part: _Part, handed: Sequence[str]) -> tuple[ast.Say, ...]:
        """The statement ``batch`` of a part, for the inputs named in the text and the tensors of earlier parts."""
        said = self._said.get("batch")
        if said is None:
            return ()
        words = behind(said, self._report)
        named = {each.span.text for each in words.take_list("an input")}
        own = [each for each in part.reads if each in named or each in handed]
        if not own or not words.take_word("by"):
            return (said,)
        return (SyntaxWriter(said.span).batch(own, words.take("a number of rows")),)

    def _ends(self, handed: Sequence[tuple[str, ...]]) -> tuple[list[tuple[str, str]], int]:
        """For each part what it takes of the layer before and what it hands on, none where that is not one tensor.

        And how many layers there are.
        """
        said = self._said.get("repeat")
        if said is None:
            return [], 1
        layers, result, first = repeat_said(said, self._reading)
        for name, known in ((result, self._made), (first, self._declared)):
            if name.text not in known:
                what = "result" if name is result else "input"
                raise self._report.fail(Code.MGS310, f"'{name.text}' is no {what} of a layer", name.span)
        made, taken = self._made[result.text], self._inputs.get(first.text)
        if made.tensor is None or taken is None:
            raise self._report.fail(Code.MGS310, f"'{result.text}' cannot be the next layer's {first.text}", said.span)
        if self._form(made.tensor, made.axes) != self._form(taken, self._homes[first.text]):
            message = (
                f"{result.text} cannot be the next layer's {first.text}, of which ranks hold other rows or columns"
            )
            raise self._report.fail(Code.MGS310, message, said.span, "what is repeated has the form of its input")
        if any(len(each) != 1 for each in handed[1:]):
            return [], layers
        inputs = (first.text, *(name for (name,) in handed[1:]))
        return list(zip(inputs, (*inputs[1:], result.text), strict=True)), layers

    def _form(self, tensor: Tensor, axes: Axes) -> tuple[object, ...]:
        """What a rank holds of a tensor: the same rows in any group, else a part of it over some axes."""
        ranks = self._ranks(axes)
        by_rows = tensor.shard is Shard.ROWS or ranks == 1
        lies = (tensor.rows // ranks,) if by_rows else (tensor.rows, tensor.shard, axes)
        return tensor.dtype, tensor.cols, *lies


def _is_dealt(statement: ast.Define) -> bool:
    """Whether each rank has a part of a tensor of the text."""
    return any(isinstance(each, ast.Name) and each.text == "shard" for each in statement.phrase[-1].parts)
