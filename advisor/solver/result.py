"""The result of an enumeration: plain data, without the solver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...compiler.ir import Choice
from .diverse import diverse
from .knobs import Choices

# Longer lists are of no use to a reader, nor is a long sample.
LISTED, SAMPLE = 512, 64


class NoFeasibleSchedule(ValueError):
    """No schedule satisfies every constraint; ``reasons`` is a minimal set of those that cannot hold together."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("no feasible schedule: " + "; ".join(reasons))
        self.reasons = reasons

    def __reduce__(self) -> tuple[type["NoFeasibleSchedule"], tuple[tuple[str, ...]]]:
        return NoFeasibleSchedule, (self.reasons,)  # as it crosses processes


@dataclass(frozen=True, slots=True)
class Absence:
    """A template that was asked for and has no feasible schedule, and why."""

    template: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A dominance rule in force: what it assumes, and how many feasible schedules it leaves out."""

    name: str
    sentence: str
    removed: int


@dataclass(frozen=True, slots=True)
class Space:
    """The feasible choices by template, chunks, engine, streams and the other knobs, in the order of ALL_TEMPLATES.

    ``complete`` is False if the enumeration was limited or stopped. ``absent`` tells of templates that the file names
    in its ``explore`` block and that cannot run, ``assumed`` of the dominance rules that left something out. ``size``
    counts all feasible choices, None where that is not known. ``knobs`` are the values in them of each knob that has
    several, by its word in ``explore``.
    """

    choices: Sequence[Choice]
    complete: bool
    absent: tuple[Absence, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    size: int | None = None
    knobs: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def structures(self) -> Sequence[Choice]:
        """One choice for each structure: the one whose execution options are closest to the defaults."""
        if not isinstance(self.choices, Choices):
            return self.choices
        knobs, codes = self.choices.knobs, self.choices.codes
        _, first = np.unique(knobs.structures(codes), return_index=True)
        return Choices(knobs, codes[first])

    def shown(self, seed: int = 0) -> Sequence[Choice]:
        """All choices, or of more than ``LISTED`` the ``SAMPLE`` that differ most, with every template."""
        if not isinstance(self.choices, Choices) or len(self.choices) <= LISTED:
            return self.choices
        return Choices(self.choices.knobs, diverse(self.choices.knobs, self.choices.codes, SAMPLE, seed))
