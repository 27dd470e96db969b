"""Terms of an expectation: arithmetic on figures of schedules and numbers."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class FigureKind(Enum):
    """Dimension of an expected value; times are in ticks, sizes in bytes, rates in bytes per tick."""

    TIME = "time"
    BYTES = "bytes"
    RATIO = "ratio"
    RATE = "rate"


class Metric(Enum):
    """A figure of a simulated schedule; the value is its name in the language."""

    kind: FigureKind

    def __new__(cls, word: str, kind: FigureKind) -> "Metric":
        """Make ``word`` the value, and ``kind`` an attribute."""
        metric = object.__new__(cls)
        metric._value_, metric.kind = word, kind
        return metric

    MAKESPAN = "makespan", FigureKind.TIME
    COMPUTE_TIME = "compute_time", FigureKind.TIME
    COMM_TIME = "comm_time", FigureKind.TIME
    EXPOSED_TIME = "exposed_time", FigureKind.TIME
    EXPOSED = "exposed", FigureKind.RATIO
    OVERLAP_EFFICIENCY = "overlap_efficiency", FigureKind.RATIO
    DIL = "dil", FigureKind.RATIO
    CIL = "cil", FigureKind.RATIO
    STAGING = "staging", FigureKind.BYTES
    HBM_BYTES = "hbm_bytes", FigureKind.BYTES
    HBM_READ_BYTES = "hbm_read_bytes", FigureKind.BYTES
    HBM_WRITE_BYTES = "hbm_write_bytes", FigureKind.BYTES
    L2_BYTES = "l2_bytes", FigureKind.BYTES
    LINK_BYTES = "link_bytes", FigureKind.BYTES
    FLAG_BYTES = "flag_bytes", FigureKind.BYTES
    FLAG_READS = "flag_reads", FigureKind.RATIO
    LINE_HOPS = "line_hops", FigureKind.RATIO
    MEMORY = "memory", FigureKind.BYTES
    BUBBLE = "bubble", FigureKind.RATIO
    TOKENS_PER_S = "tokens_per_s", FigureKind.RATIO


OP_METRICS = (Metric.MAKESPAN, Metric.COMPUTE_TIME, Metric.COMM_TIME, Metric.EXPOSED_TIME)
"""Figures that an op of a workload has by itself."""

OF_STEPS_ALONE = (Metric.MEMORY, Metric.BUBBLE, Metric.TOKENS_PER_S)
STEP_METRICS = (Metric.MAKESPAN, Metric.EXPOSED, *OF_STEPS_ALONE)
"""Figures of a training step. MEMORY is that of the stage that needs most, and TOKENS_PER_S are for each GPU."""


class Operator(Enum):
    """Arithmetic between two terms; the value is its spelling."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"


class End(Enum):
    """The least or the greatest of several; the value is the name of the function."""

    LEAST = "min"
    GREATEST = "max"


@dataclass(frozen=True, slots=True)
class MetricOf:
    """``schedule.metric``; ``schedule`` is a declared name, or ``best``, ``serial`` or ``bound``.

    With ``op`` it is ``schedule.op.metric``: a figure of one of several ops.
    """

    schedule: str
    metric: Metric
    op: str = ""


@dataclass(frozen=True, slots=True)
class Speedup:
    """``speedup(fast, slow)``: makespan of ``slow`` over makespan of ``fast``."""

    fast: str
    slow: str


@dataclass(frozen=True, slots=True)
class Value:
    """A number with its dimension."""

    amount: Fraction
    dimension: FigureKind


@dataclass(frozen=True, slots=True)
class Negation:
    """``-operand``."""

    operand: "Term"


@dataclass(frozen=True, slots=True)
class Chain:
    """``first (operator operand)*``, from left to right; ``dimension`` is that of the result."""

    first: "Term"
    rest: tuple[tuple[Operator, "Term"], ...]
    dimension: FigureKind


@dataclass(frozen=True, slots=True)
class Extreme:
    """``min(...)`` or ``max(...)`` of terms of one dimension."""

    end: End
    terms: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """A term reduced over all seeds: the nearest-rank percentile, or the mean where ``percent`` is None."""

    term: "Term"
    percent: Fraction | None


Term = MetricOf | Speedup | Value | Negation | Chain | Extreme | OverSeeds
