"""Fold the steps of a rank: what repeats becomes a loop, in which every number is an expression of the rounds.

Nothing is left out: each entry holds the places of the steps that it tells, and its expressions give their numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .expressions import Affine, Expression, expression_for, queue_for
from .facts import Number, StepFacts
from .frames import Frame

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
