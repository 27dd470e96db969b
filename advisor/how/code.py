"""How to carry out a schedule as pseudo-code with streams, flags and events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from ...compiler.templates.collective import collective_in
from .facts import Affine, Block, Expression, InTurn, Naming, Role, StepFacts, StepKind, Tabled, strides_of
from .folding import FoldedStep, LocalWait
from .how import How, RankSteps
from .naming import EntryNames, ReportedLine, Telling, Variable, own_loops, tellings_of
from .words import come_together, peer_axis, peer_codes, queue_of, round_text

_INDENT = "    "


def code_lines(how: How, *, only_first: bool = False) -> tuple[str, ...]:
    """Return the pseudo-code of all groups, or of the first one: commands queued at once, which then wait."""
    lines: list[str] = []
    for telling in tellings_of(how)[: 1 if only_first else None]:
        head = _condition(telling.group) if len(how.groups) > 1 else ""
        if head:
            lines.append(head)
        lines += [f"{_INDENT if head else ''}{line}" for line in _Coder(telling).lines()]
    return tuple(lines)


def _condition(group: RankSteps) -> str:
    ranks = ", ".join(map(str, group.ranks))
    return f"if r == {ranks}:" if len(group.ranks) == 1 else f"if r in ({ranks}):"


@dataclass(frozen=True, slots=True)
class CodeNames(EntryNames):
    """Texts of numbers in code."""

    times: ClassVar[str] = "*"

    @classmethod
    def of(cls, names: EntryNames) -> "CodeNames":
        """Return the same for code."""
        return cls(names.frame, names.variables, names.parts)

    def number(self, each: Expression) -> str:
        """Return a number; one of a table by its index."""
        match each:
            case Affine():
                return self._sum("", each)
            case Tabled(axis, values):
                return f"{list(values)}[{self._sum('', Affine(0, _unit(axis, len(self.variables))))}]"
            case InTurn(first, count, start, counts):
                place = self._sum("", Affine(start, strides_of(counts)))
                text = f"{place if place.isalnum() else f'({place})'} % {count}"
                return f"{text} + {first}" if first else text

    def rank(self, code: Sequence[Expression]) -> str:
        """Return a rank; what a table says is added."""
        if all(isinstance(each, Affine) for each in code):
            return self._rank(code)
        numbers = [self.number(each) for each in code]
        match self.frame.naming:
            case Naming.SHIFT:
                return f"r+{numbers[0]}"
            case Naming.XOR:
                return f"r^{numbers[0]}"
            case Naming.NODES:
                return f"(q+{numbers[0]}, p+{numbers[1]})"
            case Naming.ABSOLUTE:
                return numbers[0]

    def span(self, limits: Sequence[Expression]) -> str:
        """Return a range of indices."""
        return ":".join(self.number(each) for each in limits)

    def part(self, limits: Sequence[Expression]) -> str:
        """Return a range of rows, or of equal parts of a block."""
        return f"{self.span(limits)} of {self.parts}" if self.parts else self.span(limits)


class _Coder:
    """Writes the lines of one group."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._awaited = {wait.entry for place in range(len(telling.entries)) for wait in telling.waits(place)}

    def lines(self) -> Iterator[str]:
        for line in self._telling.lines:
            indent = _INDENT * len(line.around)
            if line.variable is not None:
                yield indent + _head(line.variable)
            elif line.place is not None:
                yield from (indent + each for each in self._step(line, line.place))

    def _step(self, line: ReportedLine, place: int) -> Iterator[str]:
        telling = self._telling
        names = CodeNames.of(telling.names(place))
        hidden = peer_axis(telling.entries[place], len(line.around))
        own = [each for axis, each in enumerate(own_loops(telling, line), len(line.around)) if axis != hidden]
        for depth, variable in enumerate(own):
            yield _INDENT * depth + _head(variable)
        indent = _INDENT * len(own)
        for each in _Command(telling, place, names, hidden, place in self._awaited).lines():
            yield indent + each


def _head(variable: Variable) -> str:
    return f"for {variable.name} in range({variable.start}, {variable.start + variable.count}):"


@dataclass(frozen=True, slots=True)
class _Command:
    """The commands of one step: waits, the step, and the event of its end if another step waits for that."""

    telling: Telling
    place: int
    names: CodeNames
    hidden: int | None
    awaited: bool

    @property
    def _entry(self) -> FoldedStep:
        return self.telling.entries[self.place]

    @property
    def _facts(self) -> StepFacts[Expression]:
        return self._entry.facts

    def lines(self) -> Iterator[str]:
        kind, number = queue_of(self.telling.how.schedule, self._facts)
        queue = kind if number is None else f"{kind}[{self.names.number(number)}]"
        flags = [f"flagged(by={self._peers()})"] if self._facts.action.flagged else []
        waits = [*self._arrived(), *flags, *(self._local(wait) for wait in self.telling.waits(self.place))]
        done = _event(self.telling, self.place)
        call = self._call()
        if queue in ("copies", "tiles"):
            word = "during" if queue == "tiles" and not self._facts.arrived else "after"
            after = f", {word}={_one_or_list(waits)}" if waits else ""
            kept = f"{done} = " if self.awaited else ""
            yield f"{kept}{queue}.{call}{after})"
            return
        yield from (f"{queue}.wait({each})" for each in waits)
        yield f"{queue}.{call})"
        if self.awaited:
            yield f"{done} = {queue}.record()"

    def _call(self) -> str:
        """Return the call without what it waits for and its last bracket."""
        facts, shape = self._facts, self.telling.how.scenario.shape
        action = facts.action
        moved = shape.moved.name if shape.moved is not None else ""
        match action.kind:
            case StepKind.PUT | StepKind.GET:
                word = "to" if action.kind is StepKind.PUT else "of"
                call = "add" if action.adds else "sum" if action.to_all and word == "of" else action.kind.value
                whom = "all" if action.to_all else self._peers()
                return f"{call}({blocks_code(moved, facts.blocks, self.names)}, {word}={whom}"
            case StepKind.KERNEL:
                stage = shape.stage(action.kernel)
                name = "gemm" if stage.kernel is None else stage.kernel.operation
                cut = f", k={' + '.join(map(self.names.span, facts.slices))}" if facts.inner else ""
                adds = ", accumulate=True" if action.adds else ""
                return f"{name}({blocks_code(stage.output, facts.blocks, self.names)}{cut}{adds}"
            case StepKind.SUM:
                return f"sum({blocks_code(moved, facts.blocks, self.names)}, parts={action.parts}"
            case StepKind.LIBRARY:
                collective = collective_in(shape.pattern)
                return f"{'' if collective is None else collective.value}({moved}"

    def _peers(self) -> str:
        if self.hidden is None:
            return self.names.rank(self._facts.peer)
        return f"[{self.names.ranks(peer_codes(self._facts, self.names, self.hidden))}]"

    def _arrived(self) -> Iterator[str]:
        shape = self.telling.how.scenario.shape
        moved = shape.moved.name if shape.moved is not None else ""
        for come in come_together(self._facts.arrived):
            ranks = self.names.ranks(come.sources)
            whose = "" if come.is_own else f", of={ranks}" if len(come.sources) == 1 else f", of=[{ranks}]"
            apart = len(come.sources) > 1 and not come.one_by_one
            for blocks in ([each] for each in come.blocks) if apart else (come.blocks,):
                yield f"arrived({blocks_code(moved, blocks, self.names)}{whose})"

    def _local(self, wait: LocalWait) -> str:
        """Return the event of the steps that must be done before."""
        there = self.telling.variables[wait.entry]
        values = [
            ":" if said is None else round_text(variable, said, self.names)
            for variable, said in zip(there, wait.rounds, strict=True)
        ]
        text = f"done[{', '.join([_label(self.telling, wait.entry), *values])}]"
        if wait.stop is None:
            return text
        variable = self.names.variables[wait.axis]
        low, high = variable.start + wait.start, variable.start + wait.stop
        return f"{text} if {variable.name} in range({low}, {high}) else None"


def _event(telling: Telling, place: int) -> str:
    names = [variable.name for variable in telling.variables[place]]
    return f"done[{', '.join([_label(telling, place), *names])}]"


def _label(telling: Telling, place: int) -> str:
    """Return the number of a step, in quotes where it is no number."""
    number = telling.numbers[place]
    return f'"{number}"' if "." in number else number


_KEYS = {Role.OF: "", Role.ALL: "", Role.TO: ".to", Role.FROM: ".by"}


def blocks_code(tensor: str, blocks: Sequence[Block[Expression]], names: CodeNames) -> str:
    """Return blocks as indices of a tensor; those of which the same rows are meant together."""
    texts: list[str] = []
    for (role, rows, cols, other), same in groupby(blocks, lambda each: (each.role, each.rows, each.cols, each.other)):
        owners = [block.owner for block in same]
        everyone = len(owners) > 1 and len(set(owners)) == names.frame.num_ranks
        ends = {role: "" if role is Role.ALL else f"[{':' if everyone else names.ranks(owners)}]"}
        if other:
            ends[Role.FROM if role is Role.TO else Role.TO] = f"[{names.rank(other)}]"
        cut = [names.part(rows) if rows else ":", *([names.span(cols)] if cols else [])]
        index = f"[{', '.join(cut)}]" if rows or cols else ""
        key = "".join(f"{_KEYS[each]}{ends[each]}" for each in sorted(ends, key=lambda each: each.value))
        texts.append(f"{tensor}{key}{index}")
    return _one_or_list(texts)


def _one_or_list(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _unit(axis: int, width: int) -> tuple[int, ...]:
    return tuple(int(place == axis) for place in range(width))
