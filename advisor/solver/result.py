"""The result of an enumeration: plain data, without the solver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...compiler.ir import OpChoice
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.planning.knobs.execution import KERNEL, TRANSFER
from ...compiler.planning.knobs.structure import CHUNKS, TEMPLATE
from .domains import Choices, Codes, Knobs

# What tells schedules apart most: what moves, in how many pieces and by whom; then how it is carried out.
WEIGHTS = {TEMPLATE: 4, CHUNKS: 2, ENGINE: 2, TRANSFER: 2, KERNEL: 2}


def diverse(knobs: Knobs, codes: Codes, count: int, seed: int = 0) -> Codes:
    """At most ``count`` of ``codes``, in ascending order: the most usual choice of each template, then others.

    Each further one is the farthest from all before it (Gonzalez, 1985) by the weighted number of knobs in which two
    choices differ; ties go by lots, drawn from ``seed``.
    """
    if count >= len(codes):
        return codes
    columns = {knob: knobs.digits(codes, knob) for knob, values in knobs.values.items() if len(values) > 1}
    _, first = np.unique(knobs.digits(codes, TEMPLATE), return_index=True)
    lots = np.random.default_rng(seed).permutation(len(codes))
    nearest = np.full(len(codes), np.iinfo(np.int64).max)
    chosen: list[int] = []
    for place in first[:count].tolist():
        _take(place, chosen, nearest, columns)
    while len(chosen) < count:
        farthest = np.flatnonzero(nearest == nearest.max())
        _take(int(farthest[lots[farthest].argmin()]), chosen, nearest, columns)
    return np.sort(codes[chosen])


def _take(
    place: int,
    chosen: list[int],
    nearest: npt.NDArray[np.int64],
    columns: dict[Knob, npt.NDArray[np.uint16]],
) -> None:
    """Choose a place, and note how far all others are from it; ``nearest`` is the least so far."""
    chosen.append(place)
    distance = np.zeros(len(nearest), np.int64)
    for knob, digits in columns.items():
        distance += WEIGHTS.get(knob, 1) * (digits != digits[place])
    np.minimum(nearest, distance, out=nearest)


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

    choices: Sequence[OpChoice]
    complete: bool
    absent: tuple[Absence, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    size: int | None = None
    knobs: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def structures(self) -> Sequence[OpChoice]:
        """One choice for each structure: the one whose execution options are closest to the defaults."""
        if not isinstance(self.choices, Choices):
            return self.choices
        knobs, codes = self.choices.knobs, self.choices.codes
        _, first = np.unique(knobs.structures(codes), return_index=True)
        return Choices(knobs, codes[first])

    def shown(self, seed: int = 0) -> Sequence[OpChoice]:
        """All choices, or of more than ``LISTED`` the ``SAMPLE`` that differ most, with every template."""
        if not isinstance(self.choices, Choices) or len(self.choices) <= LISTED:
            return self.choices
        return Choices(self.choices.knobs, diverse(self.choices.knobs, self.choices.codes, SAMPLE, seed))
