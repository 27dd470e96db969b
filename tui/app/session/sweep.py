"""Time against one value: points of a sweep as they become known, who wins where, and where the answer flips.

No Textual.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from ....advisor.candidates.advice import SERIAL, Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.changed import Changes
from ....compiler.ir import Cancelled, Scenario
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.text.units import NUMBER, Quantity, read_text
from .values import ValueRow, with_value

CHUNKS = "chunks"
"""The axis that needs no sweep: the chunks of the candidates of one answer."""

MAX_POINTS = 17
# Values of a number around the one it has.
FACTORS = tuple(map(Fraction, ("1/4", "1/3", "1/2", "2/3", "4/5", "9/10", "1", "10/9", "5/4", "3/2", "2", "3", "4")))
# The steps of the widest range of a param without steps.
DOUBLINGS = range(-4, 5)


@dataclass(frozen=True, slots=True)
class Point:
    """The answer at one value: ``x`` is the value as a number, ``text`` as it is written.

    ``us`` are the best times by kind of schedule; ``simulated`` are the kinds whose time was simulated.
    """

    x: float
    text: str
    verdict: Verdict
    winner: str
    us: dict[str, float]
    simulated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Crossing:
    """Between two values next to each other the winner changes, or the verdict."""

    low: Point
    high: Point


@dataclass(frozen=True, slots=True)
class SweepFigure:
    """Everything that a plot of a sweep shows: ``points`` by their values, with times in the unit ``measure``.

    Of the ``planned`` values ``unanswered`` ones have no point and get none.
    """

    axis: str
    points: tuple[Point, ...]
    planned: int
    now: float | None = None
    measure: str = "us"
    unanswered: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether points are still to come, so that nothing is known of all values."""
        return len(self.points) + self.unanswered < self.planned

    @property
    def num_simulated(self) -> int:
        """How many points hold simulated times."""
        return sum(bool(point.simulated) for point in self.points)

    def relative(self) -> "SweepFigure":
        """Return the figure with times in percent of the fastest serial one; points without that are left out."""
        points = []
        for point in self.points:
            serial = min((us for kind, us in point.us.items() if kind.startswith(SERIAL)), default=None)
            if serial is not None:
                points.append(replace(point, us={kind: 100 * us / serial for kind, us in point.us.items()}))
        left_out = len(self.points) - len(points)
        return replace(self, points=tuple(points), measure="%", unanswered=self.unanswered + left_out)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of schedules, those that win first, then the fastest at the last point they have."""
        wins = {kind: sum(point.winner == kind for point in self.points) for point in self.points for kind in point.us}
        best = {
            kind: min(point.us[kind] / min(point.us.values()) for point in self.points if kind in point.us)
            for kind in wins
        }
        return tuple(sorted(wins, key=lambda kind: (-wins[kind], best[kind], kind)))

    @property
    def crossovers(self) -> tuple[Crossing, ...]:
        """Where the winner changes."""
        pairs = pairwise(self.points)
        return tuple(Crossing(low, high) for low, high in pairs if low.winner != high.winner)

    @property
    def thresholds(self) -> tuple[Crossing, ...]:
        """Where the verdict changes."""
        pairs = pairwise(self.points)
        return tuple(Crossing(low, high) for low, high in pairs if low.verdict is not high.verdict)

    def with_point(self, point: Point) -> "SweepFigure":
        """Return the figure with one more point, or with a better one in place of what is known there."""
        others = [each for each in self.points if each.x != point.x]
        return replace(self, points=tuple(sorted((*others, point), key=lambda each: each.x)))


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The values to visit of ``row``, in an order in which the figure soon shows its form."""

    row: ValueRow
    values: tuple[tuple[float, str], ...] = field(default=())

    @classmethod
    def of(cls, row: ValueRow) -> "SweepPlan":
        """Return the plan for the values of a domain, or for values around the one there is."""
        listed = _listed(row)
        if len(listed) > MAX_POINTS:
            last = len(listed) - 1
            listed = [listed[round(idx * last / (MAX_POINTS - 1))] for idx in range(MAX_POINTS)]
        return cls(row, tuple(listed[idx] for idx in _coarse_first(len(listed))))

    def changes(self, changes: Changes, text: str) -> Changes:
        """Return ``changes`` with the value of the axis."""
        return with_value(changes, self.row, text)

    def figure(self) -> SweepFigure:
        """Return the figure without points."""
        now = float(self.row.quantity.amount)
        return SweepFigure(self.row.name, (), len(self.values), now if now > 0 else None)


def _listed(row: ValueRow) -> list[tuple[float, str]]:
    """Return values with their texts, in order."""
    numbers = [(float(each), each) for each in row.choices if each.replace(".", "", 1).isdigit()]
    if row.choices and len(numbers) == len(row.choices):
        return sorted(numbers)
    amount, dimension = row.quantity.amount, row.quantity.dimension
    if amount <= 0:
        return []
    factors = [Fraction(2) ** power for power in DOUBLINGS] if row.is_param else FACTORS
    amounts = [amount * factor for factor in factors]
    if dimension == NUMBER and amount.denominator == 1:
        amounts = [Fraction(max(1, round(each))) for each in amounts]
    texts = {float(each): read_text(Quantity(each, dimension)) for each in sorted(set(amounts))}
    return list(texts.items())


def _coarse_first(count: int) -> list[int]:
    """Return the indices below ``count``, the ends and the middle first, then the middles between."""
    order = list(dict.fromkeys([0, count - 1])) if count else []
    gaps = [(0, count - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if low < middle < high:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order


def kind_of(candidate: Candidate) -> str:
    """Return what a candidate has in common with others of its curve: template and engine, or that it is bespoke.

    Schedules of several ops have a curve each.
    """
    if candidate.several is not None:
        return candidate.expression
    if candidate.provenance is not None or (candidate.choice is not None and candidate.choice.parts):
        return "bespoke"
    name = candidate.expression.partition("(")[0]
    if candidate.is_library:
        return f"{name} library"
    return f"{name} {candidate.schedule.engine.kind.value}"


def point_of(x: float, text: str, advice: Advice) -> Point:
    """Return the point of an answer: the best time of each kind of schedule."""
    us: dict[str, float] = {}
    simulated: set[str] = set()
    for candidate in advice.candidates:
        kind, time_us = kind_of(candidate), candidate.best_us
        if math.isfinite(time_us) and time_us < us.get(kind, math.inf):
            us[kind] = time_us
            (simulated.add if candidate.simulated_us is not None else simulated.discard)(kind)
    return Point(x, text, advice.verdict, kind_of(advice.recommended), us, frozenset(simulated))


def over_chunks(advice: Advice) -> SweepFigure:
    """Return time against the number of chunks, from the candidates of one answer; kinds are compared at each."""
    by_chunks: dict[int, list[Candidate]] = {}
    for candidate in advice.candidates:
        if candidate.choice is not None and not candidate.choice.parts and math.isfinite(candidate.best_us):
            by_chunks.setdefault(candidate.choice.chunks, []).append(candidate)
    points = []
    for chunks, there in sorted(by_chunks.items()):
        at = replace(advice, candidates=tuple(there), recommended=min(there, key=lambda each: each.best_us))
        points.append(point_of(float(chunks), str(chunks), at))
    return SweepFigure(CHUNKS, tuple(points), len(points))


def run(
    plan: SweepPlan,
    scenario_at: Callable[[str], Scenario],
    advise: Callable[[Scenario], Advice],
    reported: Callable[[Point], None],
    failed: Callable[[str, Exception], None],
) -> None:
    """Visit the values of a plan and tell each point; values that cannot be are told with the reason.

    Raises
    ------
    Cancelled
        If ``advise`` was stopped; what was told until then holds.
    """
    for x, text in plan.values:
        try:
            reported(point_of(x, text, advise(scenario_at(text))))
        except Cancelled:
            raise
        except Exception as error:  # a value that does not compile, or leaves nothing feasible
            failed(text, error)


def words_of(figure: SweepFigure) -> Sequence[str]:
    """Say where the verdict changes; as long as points are to come, between which of those that are known."""
    if figure.is_partial:
        return [f"{len(figure.points)} of {figure.planned} values so far{_known(figure)}"]
    said = [
        f"{_verdict(crossing.high.verdict)} from {_at(figure, crossing.high)} on"
        if crossing.high.verdict is not Verdict.SERIAL
        else f"overlap ceases to pay between {_at(figure, crossing.low)} and {_at(figure, crossing.high)}"
        for crossing in figure.thresholds
    ]
    if not said and figure.points:
        which = "every value that has an answer" if figure.unanswered else "every value"
        said = [f"{_verdict(figure.points[0].verdict)} at {which}"]
    return said


def _known(figure: SweepFigure) -> str:
    """Say what the points show, and nothing of the values between them."""
    said = [
        f"{_verdict(low.verdict)} at {_at(figure, low)}, {_verdict(high.verdict)} at {_at(figure, high)}"
        for low, high in ((crossing.low, crossing.high) for crossing in figure.thresholds)
    ]
    if not said and figure.points:
        first, *others = figure.points
        said = [f"{_verdict(first.verdict)} at {'each' if others else _at(figure, first)}"]
    return f": {'; '.join(said)}" if said else ""


def _at(figure: SweepFigure, point: Point) -> str:
    return f"{figure.axis} = {point.text}"


def _verdict(verdict: Verdict) -> str:
    return {
        Verdict.OVERLAP: "overlap pays",
        Verdict.WORTH_TRYING: "overlap is worth trying",
        Verdict.SERIAL: "serial",
        Verdict.LIBRARY: "the library's choice is as good",
        Verdict.USE: "use the winner",
    }[verdict]
