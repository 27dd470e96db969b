"""Causes of unequal times of equal GPUs, as distributions.

Shares are exact fractions, times are ticks. ``simcore/lower/variability.py`` draws from it.
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class Shape(Enum):
    """A family of distributions; the value is the word in the language."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    NORMAL = "normal"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One distribution; ``arguments`` are (value), (low, high), (standard deviation) or (mean)."""

    shape: Shape
    arguments: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    """Each rank is slow with probability ``share``; kernels of a slow rank take ``factor`` times as long."""

    share: Fraction
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Late:
    """``rank`` starts ``ticks`` late."""

    rank: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Variability:
    """Causes of unequal times; None where a cause is absent.

    ``skew`` is in ticks and delays the start of a rank; ``jitter`` is relative and stretches each kernel of each rank.
    Both, and the stragglers, are drawn with a seed; ``late`` needs none.
    """

    skew: Distribution | None = None
    jitter: Distribution | None = None
    straggler: Straggler | None = None
    late: tuple[Late, ...] = ()

    @property
    def random(self) -> bool:
        """Whether anything is drawn at random."""
        return self.skew is not None or self.jitter is not None or self.straggler is not None
