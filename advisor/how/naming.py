"""Expressions as text: ranks, rows and rounds in the variables of loops."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from .facts import Affine, Expression, Frame, InTurn, Naming, Number, StepFacts, Tabled, depends_on, fixed
from .folding import FoldedStep, LocalWait, LocalWaits, Loop, Node
from .how import How, RankSteps

Range = tuple[Expression, ...]
"""Start and stop, or nothing for all there is."""

SHOWN = 16
"""Most values of a list that are written out."""


@dataclass(frozen=True, slots=True)
class Variable:
    """The variable of a loop, and its first value and the number of its values."""

    name: str
    start: int
    count: int

    @property
    def values(self) -> str:
        """Its values, for instance ``1, ..., 7``."""
        return listed([str(self.start + round_) for round_ in range(self.count)])


def listed(texts: Sequence[str]) -> str:
    """Return a list with its middle left out: only for values that go on as they begin."""
    return ", ".join(texts) if len(texts) <= 3 else f"{texts[0]}, ..., {texts[-1]}"


def shortened(texts: Sequence[str]) -> str:
    """Return all values of a list in which no rule holds, or the first ones and how many more there are."""
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN + 1 else ""
    return ", ".join(texts[:SHOWN] if more else texts) + more


def start_of(axis: int, facts: Iterable[StepFacts[Expression]], *, parts: bool) -> int:
    """Return the first value of the variable of loop ``axis`` that makes the numbers of its steps plainest.

    Ranks become r+k or r-k, else sizes multiples of the variable. ``parts`` of a block are counted from 1.
    """
    starts: list[int] = []
    for what in (Number.RANK, Number.SIZE):
        for step in facts:
            for kind, _, number in step.numbers():
                if kind is what and isinstance(number, Affine):
                    starts += _starts(number, axis, what is Number.SIZE and parts)
        if starts:
            return starts[0]
    return 0


def _starts(number: Affine, axis: int, counted: bool) -> list[int]:
    step = number.coefficients[axis]
    others = [each for place, each in enumerate(number.coefficients) if place != axis]
    if not step or any(others):
        return []
    if number.modulus:
        return [number.base * step % number.modulus] if abs(step) == 1 else []
    if counted:
        return [number.base + 1] if step == 1 else []
    return [number.base // step] if number.base % step == 0 and number.base // step >= 0 else []


@dataclass(frozen=True, slots=True)
class EntryNames:
    """Texts of the numbers of an entry, whose loops have ``variables``, in a frame."""

    times: ClassVar[str] = ""
    frame: Frame
    variables: tuple[Variable, ...]
    parts: int = 0

    def number(self, each: Expression) -> str:
        """Return a number, for instance ``128i+128``."""
        match each:
            case Affine():
                return self._sum("", each)
            case Tabled(axis, values):
                return f"{shortened([str(value) for value in values])} (by {self.variables[axis].name})"
            case InTurn(first, count):
                return f"{listed([str(first + place) for place in range(count)])} in turn"

    def rank(self, code: Range) -> str:
        """Return a rank, for instance ``r+k``."""
        tables = [each.axis for each in code if isinstance(each, Tabled)]
        if tables:
            variable = self.variables[tables[0]]
            rounds = [[0] * tables[0] + [place] for place in range(variable.count)]
            texts = [self._rank([fixed(each, tables[0], row[-1]) for each in code]) for row in rounds]
            return f"{shortened(texts)} (by {variable.name})"
        return self._rank(code)

    def _rank(self, code: Sequence[Expression]) -> str:
        affine = [each for each in code if isinstance(each, Affine)]
        match self.frame.naming:
            case Naming.SHIFT:
                return self._sum("r", affine[0])
            case Naming.ABSOLUTE:
                return self._sum("", affine[0])
            case Naming.XOR:
                text = self._sum("", affine[0])
                return "r" if text == "0" else f"r^{text}" if text.isalnum() else f"r^({text})"
            case Naming.NODES:
                node, place = (self._sum(name, each) for name, each in zip("qp", affine, strict=True))
                return "r" if (node, place) == ("q", "p") else f"({node}, {place})"

    def ranks(self, codes: Sequence[Range]) -> str:
        """Return several ranks; those that follow each other as ``r+1, ..., r+7``."""
        step = _step(codes)
        if step is None:
            return shortened([self.rank(code) for code in codes])
        place, by = step
        texts: list[str] = []
        for number in range(len(codes)):
            moved = [
                Affine(each.base + by * number * (part == place), each.coefficients)
                for part, each in enumerate(_near_code(codes[0], place, by))
            ]
            texts.append(self._rank(moved))
        return listed(texts)

    def span(self, limits: Range) -> str:
        """Return a range such as ``128i:128i+128``."""
        axis = next((each.axis for each in limits if isinstance(each, Tabled)), None)
        if axis is None:
            return ":".join(self.number(each) for each in limits)
        variable = self.variables[axis]
        texts = [":".join(self.number(fixed(each, axis, place)) for each in limits) for place in range(variable.count)]
        return f"{shortened(texts)} (by {variable.name})"

    def rows(self, limits: Range) -> str:
        """Return ``rows 0:384``, or which of equal parts of a block."""
        if not self.parts:
            return f"rows {self.span(limits)}"
        start, stop = limits
        if isinstance(start, Affine) and isinstance(stop, Affine):
            first = Affine(start.base + 1, start.coefficients)
            one = first == stop
            which = f"part {self.number(first)}" if one else f"parts {self.number(first)} to {self.number(stop)}"
            return f"{which} of {self.parts} of the rows"
        return f"parts {self.span(limits)} of {self.parts} of the rows, counted from 0,"

    def _sum(self, first: str, number: Affine) -> str:
        """Return ``first`` with the multiples of variables and the constant behind it."""
        terms = (
            [
                (each, variable)
                for each, variable in zip(number.coefficients, self.variables, strict=True)
                if each and variable.count > 1
            ]
            if number.coefficients
            else []
        )
        constant = number.base - sum(each * variable.start for each, variable in terms)
        if number.modulus:
            constant = _near(constant, number.modulus)
        text = first
        for each, variable in terms:
            size = "" if abs(each) == 1 else f"{abs(each)}{self.times}"
            text += f"{'-' if each < 0 else '+' if text else ''}{size}{variable.name}"
        if constant or not text:
            text += f"{constant:+d}" if text else str(constant)
        return text


def _near(number: int, modulus: int) -> int:
    number %= modulus
    return number - modulus if 2 * number > modulus else number


def _step(codes: Sequence[Range]) -> tuple[int, int] | None:
    """Return which number of the codes goes up or down by 1 from one to the next, and by what; None if none does."""
    numbers = [[each for each in code if isinstance(each, Affine)] for code in codes]
    first = numbers[0]
    plain = all(len(each) == len(codes[0]) for each in numbers)
    if (
        len(codes) < 2
        or not plain
        or any(a.coefficients != b.coefficients for each in numbers for a, b in zip(each, first, strict=True))
    ):
        return None
    steps = {tuple(_difference(a, b) for a, b in zip(one, other, strict=True)) for one, other in pairwise(numbers)}
    moved = [(place, step) for place, step in enumerate(steps.pop()) if step]
    return moved[0] if not steps and len(moved) == 1 and abs(moved[0][1]) == 1 else None


def _difference(one: Affine, other: Affine) -> int:
    return _near(other.base - one.base, one.modulus) if one.modulus else other.base - one.base


def _near_code(code: Range, place: int, by: int) -> list[Affine]:
    """Return the numbers of a code from which others are counted up, or down, without a modulus."""
    numbers = [each for each in code if isinstance(each, Affine)]
    return [
        replace(each, base=each.base if by > 0 or part != place or not each.base else each.base - each.modulus)
        if part == place
        else replace(each, base=_near(each.base, each.modulus) if each.modulus else each.base)
        for part, each in enumerate(numbers)
    ]


def variables_of(names: Sequence[Variable], entry: FoldedStep, *, parts: bool) -> tuple[Variable, ...]:
    """Return the variables of all loops of ``entry``: ``names`` of those around it, and its own."""
    taken = {variable.name for variable in names}
    found = list(names)
    for axis in range(len(names), len(entry.counts)):
        ranks = any(kind is Number.RANK and depends_on(number, axis) for kind, _, number in entry.facts.numbers())
        free = [name for name in ("k" * ranks, "i", "j", "l", "m") if name and name not in taken]
        taken.add(free[0])
        found.append(Variable(free[0], start_of(axis, [entry.facts], parts=parts), entry.counts[axis]))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ReportedLine:
    """One line: the step ``place`` among the entries, or the head of a loop over ``variable``; loops ``around`` it."""

    number: str
    around: tuple[Variable, ...]
    variable: Variable | None = None
    place: int | None = None


class Telling:
    """The lines of one group, the first of which has the number ``first``."""

    def __init__(self, how: How, group: RankSteps, first: int) -> None:
        self.how, self.group = how, group
        self._waits = LocalWaits(group.nodes)
        self.entries = self._waits.entries
        self.lines = tuple(self._numbered(group.nodes, "", first, (), iter(range(len(self.entries)))))
        steps = [line for line in self.lines if line.place is not None]
        self.numbers = tuple(line.number for line in steps)
        pairs = zip(steps, self.entries, strict=True)
        self.variables = tuple(variables_of(line.around, entry, parts=self._in_parts) for line, entry in pairs)

    @property
    def _in_parts(self) -> bool:
        return bool(self.how.parts_of_block)

    def names(self, place: int) -> EntryNames:
        """Return the texts of the numbers of an entry."""
        return EntryNames(self.group.frame, self.variables[place], self.how.parts_of_block)

    def waits(self, place: int) -> tuple[LocalWait, ...]:
        """Return the steps of the same rank that an entry waits for."""
        return self._waits.of(self.entries[place])

    def _numbered(
        self, nodes: Sequence[Node], prefix: str, first: int, around: tuple[Variable, ...], places: Iterator[int]
    ) -> Iterator[ReportedLine]:
        for count, node in enumerate(nodes, first):
            number = f"{prefix}{count}"
            if isinstance(node, Loop):
                inside = [each.facts for each in node.body if isinstance(each, FoldedStep)]
                start = start_of(len(around), inside, parts=self._in_parts)
                variable = Variable("ijlm"[len(around)], start, node.count)
                yield ReportedLine(number, around, variable)
                yield from self._numbered(node.body, f"{number}.", 1, (*around, variable), places)
            else:
                yield ReportedLine(number, around, place=next(places))


def tellings_of(how: How) -> tuple[Telling, ...]:
    """Return the lines of all groups, numbered throughout."""
    found: list[Telling] = []
    first = 1
    for group in how.groups:
        found.append(Telling(how, group, first))
        first += len(group.nodes)
    return tuple(found)


def own_loops(telling: Telling, line: ReportedLine) -> tuple[Variable, ...]:
    """Return the variables of the loops of a step that are its own, those in which only it stands."""
    assert line.place is not None, "a loop has one variable"
    return telling.variables[line.place][len(line.around) :]
