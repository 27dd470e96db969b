"""What a file expects of its schedules: comparisons, resolved to exact numbers, checked by ``magus test``."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .source import Span


class Metric(Enum):
    """A figure of a simulated schedule; the value is its name in the language."""

    MAKESPAN = "makespan"
    COMPUTE_TIME = "compute_time"
    COMM_TIME = "comm_time"
    EXPOSED_TIME = "exposed_time"
    EXPOSED = "exposed"
    OVERLAP_EFFICIENCY = "overlap_efficiency"
    DIL = "dil"
    CIL = "cil"
    STAGING = "staging"


class Dimension(Enum):
    """Dimension of an expected value; times are in ticks, sizes in bytes."""

    TIME = "time"
    BYTES = "bytes"
    RATIO = "ratio"


class Relation(Enum):
    """How the two sides compare; the value is its spelling. WITHIN is ``left in low..high``."""

    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="
    WITHIN = "in"


@dataclass(frozen=True, slots=True)
class MetricOf:
    """``schedule.metric``; ``schedule`` is a declared name, or ``best``, ``serial`` or ``bound``."""

    schedule: str
    metric: Metric


@dataclass(frozen=True, slots=True)
class Speedup:
    """``speedup(fast, slow)``: makespan of ``slow`` over makespan of ``fast``."""

    fast: str
    slow: str


@dataclass(frozen=True, slots=True)
class Value:
    """A literal side of a comparison."""

    amount: Fraction
    dimension: Dimension


class Verdict(Enum):
    """The answer to "does overlap pay?"; the value is the word in the language and in JSON."""

    OVERLAP = "overlap"
    SERIAL = "serial"


@dataclass(frozen=True, slots=True)
class VerdictIs:
    """``verdict == serial``."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left relation right``; ``high`` is the upper end for WITHIN.

    ``tolerance`` belongs to EQ and NE: relative to the right side if its dimension is RATIO and ``right`` is not,
    else absolute; see ``relative``.
    """

    left: MetricOf | Speedup | Value
    relation: Relation
    right: MetricOf | Speedup | Value
    high: Value | None = None
    tolerance: Value | None = None
    relative: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """One expected statement with its text and place, for reports."""

    body: Comparison | VerdictIs
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Expectation:
    """An ``expect`` block: what must hold for ``workload`` once ``bindings`` (parameter, value text) are set."""

    workload: str
    bindings: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...]
