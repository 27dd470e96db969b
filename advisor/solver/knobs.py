"""Choices as numbers: every knob that is searched is a digit, so that a space is an array of integers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Choice, ExecutionOptions
from ...compiler.planning import knobs as known
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.structure import DEPTH, TEMPLATE

At = Mapping[Knob, Iterable[int]]
"""Digits of some knobs; those of the others are open."""
Codes = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint16]
Varied = dict[str, tuple[int | str, ...]]
"""Values of knobs by their words."""


def searched() -> tuple[Knob, ...]:
    """The knobs that a space varies, the most significant first."""
    return tuple(knob for knob in known.KNOBS if knob.explored)


@dataclass(frozen=True)
class Knobs:
    """The values that each knob may have, in the order in which choices are sorted.

    The code of a choice is a number with a digit a knob, which is the place of its value. Knobs before the first
    execution option say what moves and computes (its structure), the others how it is carried out.
    """

    values: Mapping[Knob, tuple[Any, ...]]

    @cached_property
    def weights(self) -> Mapping[Knob, int]:
        """The amount that one step of a knob adds to the code."""
        weights, weight = {}, 1
        for knob in reversed(list(self.values)):
            weights[knob] = weight
            weight *= len(self.values[knob])
        return weights

    @property
    def num_codes(self) -> int:
        """Combinations of all values, feasible or not."""
        return self.weights[TEMPLATE] * len(self.values[TEMPLATE])

    def digits(self, codes: Codes, knob: Knob) -> Digits:
        """The digit of ``knob`` in each code."""
        return (codes // self.weights[knob] % len(self.values[knob])).astype(np.uint16)

    def structures(self, codes: Codes) -> Codes:
        """Codes without how they are carried out."""
        options = next(knob for knob in self.values if knob.option)
        return codes // (self.weights[options] * len(self.values[options]))

    def choice_of(self, code: int) -> Choice:
        """The choice of a code."""
        value = {knob: values[code // self.weights[knob] % len(values)] for knob, values in self.values.items()}
        own = {knob.field: each for knob, each in value.items() if not knob.option}
        return Choice(**own, tactics=self._options(tuple((knob, each) for knob, each in value.items() if knob.option)))

    @cached_property
    def _made(self) -> dict[tuple[tuple[Knob, Any], ...], ExecutionOptions]:
        return {}

    def _options(self, values: tuple[tuple[Knob, Any], ...]) -> ExecutionOptions:
        """One object for all choices that are carried out alike."""
        if values not in self._made:
            self._made[values] = ExecutionOptions(**{knob.field: value for knob, value in values})
        return self._made[values]


class Choices(Sequence[Choice]):
    """Choices kept as codes, and made when they are looked at: a space may have a million."""

    def __init__(self, knobs: Knobs, codes: Codes) -> None:
        self.knobs, self.codes = knobs, codes

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Choice]:
        return map(self.knobs.choice_of, self.codes.tolist())

    @overload
    def __getitem__(self, index: int) -> Choice: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Choice, ...]: ...

    def __getitem__(self, index: int | slice) -> Choice | tuple[Choice, ...]:
        if isinstance(index, slice):
            return tuple(Choices(self.knobs, self.codes[index]))
        return self.knobs.choice_of(int(self.codes[index]))

    def varied(self) -> Varied:
        """The values of each knob that has several among these choices, by its word."""
        found = {knob: np.unique(self.knobs.digits(self.codes, knob)).tolist() for knob in self.knobs.values}
        return {
            knob.word: tuple(shown(knob, self.knobs.values[knob][digit]) for digit in digits)
            for knob, digits in found.items()
            if len(digits) > 1
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == yours for mine, yours in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


def shown(knob: Knob, value: object) -> int | str:
    """A value in the words of the language; ``usual`` for the empty name, ``all`` for no depth."""
    if isinstance(value, Enum):
        return str(value.value)
    if not isinstance(value, int):
        return str(value) or "usual"
    return "all" if knob is DEPTH and not value else value
