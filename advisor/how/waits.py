"""What a step waits for at its own rank, in terms of other entries and their rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from .expressions import Affine, Expression, expression_for
from .folding import FoldedStep, Node, entries_of

Rounds = tuple[int, ...]


class Unsayable(Exception):
    """A wait that follows no rule: the loop that begins with the step at ``place`` says too much at once."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


@dataclass(frozen=True, slots=True)
class LocalWait:
    """Steps of ``entry``; for each of its loops the round as an expression, None for all rounds.

    It holds in all rounds of the waiting entry, or in some of those of its loop ``axis``: those before ``stop``, from
    ``start`` on.
    """

    entry: int
    rounds: tuple[Expression | None, ...]
    axis: int = 0
    start: int = 0
    stop: int | None = None


class LocalWaits:
    """The waits between the entries of one rank."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.entries = tuple(entries_of(nodes))
        self._homes: dict[int, tuple[int, Rounds]] = {}  # of each place of the plan, its entry and its rounds
        for number, entry in enumerate(self.entries):
            rounds = _all_rounds(entry)
            all_in_one = rounds * (len(entry.places) // len(rounds))  # a call of the library has several places
            self._homes.update(zip(entry.places, ((number, each) for each in all_in_one), strict=True))

    def of(self, entry: FoldedStep) -> tuple[LocalWait, ...]:
        """Return the steps of the same rank that ``entry`` waits for.

        Raises
        ------
        Unsayable
            If no expressions say them for all rounds.
        """
        awaited = [self._awaited(entry, rounds) for rounds in _all_rounds(entry)]
        found: list[LocalWait] = []
        for number in sorted({number for each in awaited for number in each}):
            there = [each.get(number, set()) for each in awaited]
            found += _waits_for(number, self.entries[number], there, entry)
        return tuple(found)

    def _awaited(self, entry: FoldedStep, rounds: Rounds) -> dict[int, set[Rounds]]:
        found: dict[int, set[Rounds]] = {}
        for step in entry.facts.steps:
            number, there = self._homes[step.at(rounds)]
            found.setdefault(number, set()).add(there)
        return found


def _all_rounds(entry: FoldedStep) -> list[Rounds]:
    return list(product(*map(range, entry.counts)))


def _waits_for(number: int, target: FoldedStep, awaited: Sequence[set[Rounds]], entry: FoldedStep) -> list[LocalWait]:
    """Return the waits for one entry: in all rounds, or in those of the first loop after or before some."""
    there = [bool(each) for each in awaited]
    if all(there):
        return [LocalWait(number, rounds) for rounds in _said(target, awaited, entry, entry.counts)]
    for axis, count in enumerate(entry.counts):
        rounds_of_axis = [rounds[axis] for rounds in _all_rounds(entry)]
        inside = {round_ for round_, flag in zip(rounds_of_axis, there, strict=True) if flag}
        start, stop = min(inside), max(inside) + 1
        exact = all(flag == (start <= round_ < stop) for round_, flag in zip(rounds_of_axis, there, strict=True))
        if exact and (start == 0 or stop == count):
            counts = (*entry.counts[:axis], stop - start, *entry.counts[axis + 1 :])
            said = _said(target, [each for each in awaited if each], entry, counts)
            return [LocalWait(number, _shifted(rounds, axis, start, entry), axis, start, stop) for rounds in said]
    raise Unsayable(entry.places[0])


def _said(
    target: FoldedStep, awaited: Sequence[set[Rounds]], entry: FoldedStep, counts: Rounds
) -> list[tuple[Expression | None, ...]]:
    """Return the awaited rounds of ``target`` as expressions in the rounds of ``entry``; several for a lone step."""
    expressions: list[Expression | None] = []
    for axis, count in enumerate(target.counts):
        values = [{rounds[axis] for rounds in each} for each in awaited]
        if all(len(each) == 1 for each in values):
            expressions.append(expression_for([min(each) for each in values], counts))
            if expressions[-1] is None:
                raise Unsayable(entry.places[0])
        elif all(len(each) == count for each in values):
            expressions.append(None)
        elif len(awaited) == 1:
            break
        else:
            raise Unsayable(entry.places[0])
    else:
        sizes = [count if said is None else 1 for said, count in zip(expressions, target.counts, strict=True)]
        whole = all(len(each) == prod(sizes) for each in awaited)
        if whole:
            return [tuple(expressions)]
        if len(awaited) > 1:
            raise Unsayable(entry.places[0])
    nothing = (0,) * len(entry.counts)
    return [tuple(Affine(round_, nothing) for round_ in rounds) for rounds in sorted(awaited[0])]


def _shifted(
    rounds: tuple[Expression | None, ...], axis: int, start: int, entry: FoldedStep
) -> tuple[Expression | None, ...]:
    """Return expressions in rounds that count from 0 where they counted from ``start`` in one loop."""
    shifted: list[Expression | None] = []
    for each in rounds:
        if isinstance(each, Affine):
            each = Affine(each.base - each.coefficients[axis] * start, each.coefficients)
        elif each is not None and start:
            raise Unsayable(entry.places[0])
        shifted.append(each)
    return tuple(shifted)
