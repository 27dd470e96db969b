"""Fold the steps of a rank: what repeats becomes a loop, in which every number is an expression of the rounds.

Nothing is left out: each entry holds the places of the steps that it tells, and its expressions give their numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from .facts import Affine, Expression, Frame, Number, StepFacts, expression_for, queue_for

Axis = tuple[int, int]
"""Of a loop: the number of rounds, and how many places further a step stands in the next one."""
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_PERIOD = 256
"""Most steps in a round of a loop."""
MIN_ROUNDS = 3
"""Fewest steps that are told as one where their sizes follow no rule."""
MIN_TABLED = 4
"""Fewest rounds of several steps that are told as a loop where their sizes follow no rule."""


@dataclass(frozen=True, slots=True)
class FoldedStep:
    """Steps told as one: ``places`` in the list of the rank, in the order of the rounds, of ``counts`` loops."""

    facts: StepFacts[Expression]
    places: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Rounds of several steps."""

    count: int
    body: tuple["Node", ...]


Node = FoldedStep | Loop


def entries_of(nodes: Sequence[Node]) -> Iterator[FoldedStep]:
    """Yield all entries, in order."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from entries_of(node.body)
        else:
            yield node


@dataclass(frozen=True, slots=True)
class Folder:
    """Folds the steps of one rank in ``frame``; at ``unfit`` places no loop begins."""

    steps: Sequence[StepFacts[int]]
    frame: Frame
    unfit: frozenset[int] = frozenset()

    def nodes(self) -> tuple[Node, ...]:
        """Return all steps, folded."""
        shapes = {shape: number for number, shape in enumerate(dict.fromkeys(step.shape() for step in self.steps))}
        keys = np.array([shapes[step.shape()] for step in self.steps], dtype=np.int64)
        return tuple(self._folded(_Columns.of(self.steps, self.frame, keys), 0, len(self.steps), ()))

    def _folded(self, columns: "_Columns", start: int, stop: int, axes: tuple[Axis, ...]) -> Iterator[Node]:
        """Yield the steps of the first round of the loops ``axes`` from ``start`` to ``stop``."""
        for first, period, rounds in columns.loops(start, stop):
            if first in self.unfit:
                continue
            inner = (*axes, (rounds, period))
            if all(self._entry(place, inner) is not None for place in range(first, first + period)):
                yield from self._folded(columns, start, first, axes)
                body = tuple(self._folded(columns, first, first + period, inner))
                alone = body[0] if len(body) == 1 and isinstance(body[0], FoldedStep) else None
                yield alone if alone is not None else Loop(rounds, body)
                yield from self._folded(columns, first + rounds * period, stop, axes)
                return
        for place in range(start, stop):
            entry = self._entry(place, axes)
            assert entry is not None, "a loop was accepted for all of its steps"
            yield entry

    def _entry(self, place: int, axes: tuple[Axis, ...]) -> FoldedStep | None:
        """Return the steps at ``place`` of all rounds as one, None if a number follows no expression."""
        places = [place]
        for count, stride in axes:
            places = [each + stride * round_ for each in places for round_ in range(count)]
        counts = tuple(count for count, _ in axes)
        expressions: list[Expression] = []
        for numbers in zip(*(self.steps[each].numbers() for each in places), strict=True):
            found = self._expression(numbers, counts)
            if found is None:
                return None
            expressions.append(found)
        return FoldedStep(self.steps[place].with_numbers(expressions), tuple(places), counts)

    def _expression(self, numbers: Sequence[tuple[Number, int, int]], counts: tuple[int, ...]) -> Expression | None:
        what, part, _ = numbers[0]
        values = [number for _, _, number in numbers]
        if what is Number.QUEUE:
            return queue_for(values, counts)
        modulus = self.frame.moduli[part] if what is Number.RANK else 0
        found = expression_for(values, counts, modulus)
        return found if what is not Number.STEP or isinstance(found, Affine) else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The numbers of all steps as an array [step, number], with their moduli; ``unsized`` has zeros for sizes.

    ``keys`` are equal for steps of one shape. ``is_rank`` and ``is_size`` say what each number counts.
    """

    keys: Numbers
    all: Numbers
    unsized: Numbers
    moduli: Numbers
    is_rank: Flags
    is_size: Flags

    @classmethod
    def of(cls, steps: Sequence[StepFacts[int]], frame: Frame, keys: Numbers) -> "_Columns":
        numbers = [list(step.numbers()) for step in steps]
        width = max(map(len, numbers), default=0)
        every, moduli = (np.zeros((len(steps), width), dtype=np.int64) for _ in range(2))
        ranks, sizes = (np.zeros((len(steps), width), dtype=np.bool_) for _ in range(2))
        for row, found in enumerate(numbers):
            for column, (what, part, number) in enumerate(found):
                every[row, column] = 0 if what is Number.QUEUE else number
                moduli[row, column] = frame.moduli[part] if what is Number.RANK else 0
                ranks[row, column], sizes[row, column] = what is Number.RANK, what is Number.SIZE
        return cls(keys, every, np.where(sizes, 0, every), moduli, ranks, sizes)

    def loops(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return loops that there may be, (first step, steps of a round, rounds), those that fold most first."""
        found: list[tuple[int, int, int, int]] = []
        for period in range(1, min(MAX_PERIOD, (stop - start) // 2) + 1):
            for tabled, numbers in ((False, self.all), (True, self.unsized)):
                fewest = (MIN_TABLED if period > 1 else MIN_ROUNDS) if tabled else 2
                for first, rounds in self._runs(numbers, start, stop, period):
                    if rounds >= fewest and (rounds > 2 or self._is_plain_pair(first, period)):
                        folded = 2 * (rounds - 1) * period - tabled
                        found.append((-folded, period, first, rounds))
        return [(first, period, rounds) for _, period, first, rounds in sorted(found)]

    def _runs(self, numbers: Numbers, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """Yield (first step, rounds) of the longest loop of this period, and of the first one."""
        keys, moduli = self.keys[start:stop], self.moduli[start : stop - period]
        alike = keys[period:] == keys[:-period]
        steps = numbers[start + period : stop] - numbers[start : stop - period]
        steps = np.where(moduli > 0, np.mod(steps, np.maximum(moduli, 1)), steps)
        same = np.zeros(len(steps), dtype=np.bool_)
        if len(steps) > period:
            same[:-period] = (steps[period:] == steps[:-period]).all(axis=1) & alike[:-period] & alike[period:]
        paired, going = _lengths(alike), _lengths(same)
        rounds = np.where(paired >= period, 2 + going // period, 1)
        best = int(np.argmax(rounds))
        yield start + best, int(rounds[best])

    def _is_plain_pair(self, first: int, period: int) -> bool:
        """Whether two rounds differ in rows by the same everywhere, or two steps in one rank or to the next ones."""
        here, there = slice(first, first + period), slice(first + period, first + 2 * period)
        step, moduli = self.all[there] - self.all[here], self.moduli[here]
        step = np.where(moduli > 0, np.mod(step, np.maximum(moduli, 1)), step)
        by_rank, by_size = (step[what[here] & (step != 0)].tolist() for what in (self.is_rank, self.is_size))
        if by_size:
            return len(set(by_size)) == 1 and by_size[0] > 0 and not by_rank
        return period == 1 and (len(by_rank) <= 1 or set(by_rank) == {1})


def _lengths(flags: Flags) -> Numbers:
    """Return for each place how many flags are set from there on without a gap."""
    places = np.arange(len(flags))
    ends = np.where(flags, len(flags), places)
    after = np.minimum.accumulate(ends[::-1])[::-1] if len(flags) else ends
    return np.asarray(after - places)


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
