"""What makes the GPUs of a system differ: drawn, typed, replayed, or by traffic of others. Times are ticks of 10 fs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)


def percentile(values: Sequence[Number], percent: int | Fraction) -> Number:
    """Return the value at the nearest rank: the least such that ``percent`` % of all are not above it.

    Raises
    ------
    ValueError
        If there is no value, or ``percent`` is not from 0 to 100.
    """
    if not values or not 0 <= percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(values)} values")
    rank = -(-percent * len(values) // 100)
    return sorted(values)[max(1, int(rank)) - 1]


@dataclass(frozen=True, slots=True)
class Write:
    """``num_bytes`` that ``rank`` begins to send to rank 0 at ``ticks``.

    ``signal`` is set at rank 0 when all writes that name it have arrived. With 0 bytes it is a flag alone: one that a
    tile sets when what it has stored has arrived.
    """

    ticks: int
    rank: int
    signal: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Writes in the order of time, and the file they were read from."""

    path: str
    writes: tuple[Write, ...]


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


@dataclass(frozen=True, slots=True)
class WriteStream:
    """Writes that no plan waits for: at each interval each of ``ranks`` sends ``count`` times ``num_bytes``.

    They go to the memory of ``target``. ``interval``, in ticks, is the time from one begin to the next, and before the
    first; each rank draws its own.
    """

    ranks: tuple[int, ...]
    target: int
    count: int
    num_bytes: int
    interval: Distribution

    @property
    def mean_ticks(self) -> Fraction:
        """The mean of the interval."""
        return sum(self.interval.arguments, Fraction(0)) / len(self.interval.arguments)


@dataclass(frozen=True, slots=True)
class BackgroundWrite:
    """``num_bytes`` that ``rank`` begins to send to the memory of ``target`` at ``ticks``."""

    ticks: int
    rank: int
    target: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class BackgroundTraffic:
    """Traffic of other programs beside a plan: ``streams`` that go on until it ends, and ``writes`` from a file."""

    streams: tuple[WriteStream, ...] = ()
    writes: tuple[BackgroundWrite, ...] = ()

    @property
    def random(self) -> bool:
        """Whether any interval is drawn."""
        return any(stream.interval.shape is not Shape.CONSTANT for stream in self.streams)
