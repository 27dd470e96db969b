"""Numbers of steps that repeat, as expressions in the variables of their loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod


@dataclass(frozen=True, slots=True)
class Affine:
    """``base`` and so much more for each round of each loop, modulo ``modulus`` if that is not 0."""

    base: int
    coefficients: tuple[int, ...] = ()
    modulus: int = 0

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops, each counted from 0."""
        value = self.base + sum(each * round_ for each, round_ in zip(self.coefficients, rounds, strict=True))
        return value % self.modulus if self.modulus else value


@dataclass(frozen=True, slots=True)
class Tabled:
    """One of ``values`` for each round of the loop number ``axis``."""

    axis: int
    values: tuple[int, ...]

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops."""
        return self.values[rounds[self.axis]]


@dataclass(frozen=True, slots=True)
class InTurn:
    """``first`` to ``first + count - 1`` in turn, step after step; ``counts`` are the rounds of the loops."""

    first: int
    count: int
    start: int
    counts: tuple[int, ...]

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops."""
        place = 0
        for round_, count in zip(rounds, self.counts, strict=True):
            place = place * count + round_
        return self.first + (self.start + place) % self.count


Expression = Affine | Tabled | InTurn


def expression_for(values: Sequence[int], counts: tuple[int, ...], modulus: int = 0) -> Affine | Tabled | None:
    """Return the expression of ``values``, one for each round in the order of nested loops; None if there is none.

    >>> expression_for((0, 1, 8, 9), (2, 2))
    Affine(base=0, coefficients=(8, 1), modulus=0)
    >>> expression_for((0, 5, 7), (3,))
    Tabled(axis=0, values=(0, 5, 7))
    """
    strides = strides_of(counts)
    steps = [values[stride] - values[0] if count > 1 else 0 for stride, count in zip(strides, counts, strict=True)]
    affine = Affine(values[0], tuple(_nearest(step, modulus) for step in steps), modulus)
    rounds = list(product(*map(range, counts)))
    if all(affine.at(each) == value for each, value in zip(rounds, values, strict=True)):
        return affine
    for axis, (stride, count) in enumerate(zip(strides, counts, strict=True)):
        table = Tabled(axis, tuple(values[place * stride] for place in range(count)))
        if all(table.at(each) == value for each, value in zip(rounds, values, strict=True)):
            return table
    return None


def queue_for(values: Sequence[int], counts: tuple[int, ...]) -> Expression | None:
    """Return the expression of lanes or streams, which may also be dealt in turn."""
    first, count = min(values), len(set(values))
    turn = InTurn(first, count, values[0] - first, counts)
    rounds = product(*map(range, counts))
    in_turn = 1 < count < len(values) and all(
        turn.at(each) == value for each, value in zip(rounds, values, strict=True)
    )
    return turn if in_turn else expression_for(values, counts)


def depends_on(number: Expression, axis: int) -> bool:
    """Whether ``number`` differs between the rounds of that loop."""
    match number:
        case Affine():
            return bool(number.coefficients) and number.coefficients[axis] != 0
        case Tabled():
            return number.axis == axis
        case InTurn():
            return True


def fixed(number: Expression, axis: int, round_: int) -> Expression:
    """Return ``number`` in one round of that loop; what depends on other loops too stays as it is."""
    match number:
        case Tabled():
            return Affine(number.values[round_]) if number.axis == axis else number
        case Affine() if number.coefficients:
            rest = tuple(0 if place == axis else each for place, each in enumerate(number.coefficients))
            return Affine(number.base + number.coefficients[axis] * round_, rest, number.modulus)
        case _:
            return number


def composed(number: Expression, rounds: Sequence[Expression], counts: tuple[int, ...]) -> Affine | Tabled | None:
    """Return ``number`` with the rounds of its loops as expressions in the rounds of others; None if there is none."""
    others = product(*map(range, counts))
    values = [number.at([each.at(other) for each in rounds]) for other in others]
    return expression_for(values, counts, number.modulus if isinstance(number, Affine) else 0)


def strides_of(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many steps a round of each loop takes."""
    return tuple(prod(counts[axis + 1 :]) for axis in range(len(counts)))


def _nearest(step: int, modulus: int) -> int:
    """The step modulo ``modulus`` that is nearest to 0."""
    if not modulus:
        return step
    step %= modulus
    return step - modulus if step > modulus // 2 else step
