"""The folded steps of a group of ranks as numbered lines, with the variables of their loops."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .folding import FoldedStep, Loop, Node
from .how import How, RankSteps
from .naming import EntryNames, Variable, start_of, variables_of
from .waits import LocalWait, LocalWaits


@dataclass(frozen=True, slots=True)
class ToldLine:
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
    ) -> Iterator[ToldLine]:
        for count, node in enumerate(nodes, first):
            number = f"{prefix}{count}"
            if isinstance(node, Loop):
                inside = [each.facts for each in node.body if isinstance(each, FoldedStep)]
                start = start_of(len(around), inside, parts=self._in_parts)
                variable = Variable("ijlm"[len(around)], start, node.count)
                yield ToldLine(number, around, variable)
                yield from self._numbered(node.body, f"{number}.", 1, (*around, variable), places)
            else:
                yield ToldLine(number, around, place=next(places))


def tellings_of(how: How) -> tuple[Telling, ...]:
    """Return the lines of all groups, numbered throughout."""
    found: list[Telling] = []
    first = 1
    for group in how.groups:
        found.append(Telling(how, group, first))
        first += len(group.nodes)
    return tuple(found)


def own_loops(telling: Telling, line: ToldLine) -> tuple[Variable, ...]:
    """Return the variables of the loops of a step that are its own, those in which only it stands."""
    assert line.place is not None, "a loop has one variable"
    return telling.variables[line.place][len(line.around) :]
