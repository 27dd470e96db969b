"""The knobs of a schedule, and choices as numbers: every knob is a digit, so that a space is an array of integers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Choice, ExecutionOptions
from ...compiler.templates import ALL_TEMPLATES

Codes = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint16]
Varied = dict[str, tuple[int | str, ...]]
"""Values of knobs by their words."""


class Knob(Enum):
    """What a choice consists of, the first the most significant; the value is the word of ``explore``."""

    TEMPLATE = "schedules"
    CHUNKS = "chunks"
    ENGINE = "engine"
    STREAMS = "streams"
    ALGORITHM = "algorithm"
    TRANSFER = "transfer"
    PROTOCOL = "protocol"
    KERNEL = "kernel"
    WAIT = "wait"
    PER = "per"
    LAUNCH = "launch"
    ORDER = "order"
    DEPTH = "depth"


STRUCTURE = (Knob.TEMPLATE, Knob.CHUNKS, Knob.ENGINE, Knob.STREAMS, Knob.ALGORITHM)
"""What moves and computes; the other knobs say how it is carried out."""


@dataclass(frozen=True)
class Knobs:
    """The values that each knob may have, in the order in which choices are sorted; templates as indices.

    The code of a choice is a number with a digit a knob, which is the place of its value.
    """

    values: Mapping[Knob, tuple[Any, ...]]

    @cached_property
    def weights(self) -> Mapping[Knob, int]:
        """What one step of a knob adds to the code."""
        weights, weight = {}, 1
        for knob in reversed(Knob):
            weights[knob] = weight
            weight *= len(self.values[knob])
        return weights

    @property
    def num_codes(self) -> int:
        """Combinations of all values, feasible or not."""
        return self.weights[Knob.TEMPLATE] * len(self.values[Knob.TEMPLATE])

    def code_of(self, digits: Mapping[Knob, int]) -> int:
        """The code of these digits."""
        return sum(self.weights[knob] * digit for knob, digit in digits.items())

    def digits(self, codes: Codes, knob: Knob) -> Digits:
        """The digit of ``knob`` in each code."""
        return (codes // self.weights[knob] % len(self.values[knob])).astype(np.uint16)

    def structures(self, codes: Codes) -> Codes:
        """Codes without how they are carried out."""
        return codes // self.weights[STRUCTURE[-1]]

    def choice_of(self, code: int) -> Choice:
        """The choice of a code."""
        at = {knob: code // self.weights[knob] % len(self.values[knob]) for knob in Knob}
        value = {knob: self.values[knob][digit] for knob, digit in at.items()}
        return Choice(
            ALL_TEMPLATES[value[Knob.TEMPLATE]].name,
            value[Knob.CHUNKS],
            value[Knob.ENGINE],
            value[Knob.STREAMS],
            self._tactics(tuple(value[knob] for knob in TACTICS)),
            value[Knob.ALGORITHM],
            value[Knob.ORDER],
            value[Knob.DEPTH],
        )

    @cached_property
    def _made(self) -> dict[tuple[Any, ...], ExecutionOptions]:
        return {}

    def _tactics(self, values: tuple[Any, ...]) -> ExecutionOptions:
        """One object for all choices that are carried out alike."""
        if values not in self._made:
            self._made[values] = ExecutionOptions(*values)
        return self._made[values]


# In the order of the fields of ExecutionOptions.
TACTICS = (Knob.TRANSFER, Knob.PROTOCOL, Knob.KERNEL, Knob.WAIT, Knob.PER, Knob.LAUNCH)


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
        found = {knob: np.unique(self.knobs.digits(self.codes, knob)).tolist() for knob in Knob}
        return {
            knob.value: tuple(_shown(knob, self.knobs.values[knob][digit]) for digit in digits)
            for knob, digits in found.items()
            if len(digits) > 1
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == yours for mine, yours in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


def _shown(knob: Knob, value: object) -> int | str:
    """A value in the words of the language; what is usual where no word is said is called so."""
    if isinstance(value, Enum):
        return str(value.value)
    if not isinstance(value, int):
        return str(value) or "usual"
    if knob is Knob.TEMPLATE:
        return ALL_TEMPLATES[value].name
    return "all" if knob is Knob.DEPTH and not value else value
