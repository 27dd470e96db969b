"""Expectations of a file about its schedules, resolved to exact numbers; ``magus test`` checks them."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from ...ir import End, Term, Value
from ...text.diagnostics import Span
from ...text.units import Dimension as Units

Bindings = tuple[tuple[str, str], ...]


class Relation(Enum):
    """Relation of two sides; the value is its spelling. WITHIN is ``left in low..high``."""

    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="
    WITHIN = "in"


class Verdict(Enum):
    """The answer in a word, which is that of the language and of JSON.

    The first three say whether overlap pays. WORTH_TRYING: a gain is predicted, but not beyond the error of such
    predictions. The last two are about a collective alone. LIBRARY: no algorithm is clearly faster than the library's
    own choice. USE: use the recommended algorithm.
    """

    OVERLAP = "overlap"
    WORTH_TRYING = "worth_trying"
    SERIAL = "serial"
    LIBRARY = "library"
    USE = "use"


ON_OVERLAP = (Verdict.OVERLAP, Verdict.WORTH_TRYING, Verdict.SERIAL)
ON_ALGORITHM = (Verdict.LIBRARY, Verdict.USE)
"""The verdicts on a collective alone; those on anything else are ``ON_OVERLAP``."""


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

    left: Term
    relation: Relation
    right: Term
    high: Value | None = None
    tolerance: Value | None = None
    relative: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """``show term``: checks nothing."""

    term: Term


@dataclass(frozen=True, slots=True)
class Somewhere:
    """``somewhere left < right``: holds at one point of the sweep or more."""

    body: Comparison


class TrendDirection(Enum):
    """Direction of a trend; the value is the word in the language."""

    RISING = "rising"
    FALLING = "falling"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Trend:
    """``term rising +- 1 %``; the tolerance is relative."""

    term: Term
    direction: TrendDirection
    tolerance: Fraction


@dataclass(frozen=True, slots=True)
class Linear:
    """``term linear r2 >= 0.98``: the least squares line rises and explains that share of the variance."""

    term: Term
    least_r2: Fraction


@dataclass(frozen=True, slots=True)
class Inside:
    """``term minimum inside``: the extreme lies at neither end of the sweep."""

    term: Term
    end: End


@dataclass(frozen=True, slots=True)
class Crossover:
    """``crossover(left, right) in low..high``; the ends are in base units of the swept parameter."""

    left: Term
    right: Term
    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class WinnerChanges:
    """``winner(a, b) changes``: the schedule of the least makespan is not the same everywhere."""

    schedules: tuple[str, ...]


OfSweep = Somewhere | Trend | Linear | Inside | Crossover | WinnerChanges
Body = Comparison | VerdictIs | Shown | OfSweep


@dataclass(frozen=True, slots=True)
class Check:
    """One statement with its text and place, for reports; ``published`` is the published figure to compare with."""

    body: Body
    text: str
    span: Span
    published: str = ""


@dataclass(frozen=True, slots=True)
class SweptValue:
    """One value of a swept parameter: the text for ``--set``, and the amount in base units."""

    text: str
    amount: Fraction


@dataclass(frozen=True, slots=True)
class CheckedSweep:
    """``sweep M in 1024..65536 x2 { }``: ``checks`` over the values of ``param`` in rising order, in ``unit``."""

    param: str
    domain: str
    unit: Units
    points: tuple[SweptValue, ...]
    checks: tuple[Check, ...]
    seeds: int = 0


@dataclass(frozen=True, slots=True)
class Expectation:
    """An ``expect`` block: what must hold for ``workload`` once ``bindings`` (parameter, value text) are set.

    ``seeds`` is how many seeds schedules are simulated under, 0 for none: then nothing is drawn at random. ``packets``
    asks for packets in place of lines.
    """

    workload: str
    bindings: Bindings
    statements: tuple[Check | CheckedSweep, ...]
    seeds: int = 0
    packets: bool = False

    @property
    def checks(self) -> tuple[Check, ...]:
        """The statements outside of sweeps."""
        return tuple(each for each in self.statements if isinstance(each, Check))

    @property
    def settings(self) -> tuple[Bindings, ...]:
        """Every setting of parameters that the block asks about."""
        sweeps = [each for each in self.statements if isinstance(each, CheckedSweep)]
        points = [(*self.bindings, (each.param, point.text)) for each in sweeps for point in each.points]
        return (self.bindings, *points)
