"""Judges statements of an expectation: alone, or over the points of a sweep."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from ...compiler.ir import Metric, MetricOf, Value
from ...compiler.resolve.expect.expectation import (
    Body,
    Check,
    Comparison,
    Crossover,
    Inside,
    Linear,
    Relation,
    Shown,
    Somewhere,
    Sweep,
    Trend,
    VerdictIs,
    WinnerChanges,
)
from .simulations import ExpectationError
from .sweeps import Judgement, judge_crossover, judge_inside, judge_linear, judge_trend, judge_winner
from .values import FigureValue, RunFigures, found


@dataclass(frozen=True, slots=True)
class Scene:
    """A statement at one point of a sweep: the value of the parameter, and what the statement says there."""

    setting: str
    check: Check
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class PointFound:
    """What was found at one point of a sweep; ``setting`` is the value of the parameter."""

    setting: str
    values: tuple[FigureValue, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """One point: whether the statement holds there and what was found, with the exact values behind it."""

    judgement: Judgement
    values: tuple[Value, ...] = ()
    winner: str = ""


def judge(check: Check, figures: RunFigures) -> Judgement:
    """A statement that stands alone.

    Raises
    ------
    ExpectationError
        If it asks for a figure there is not, or divides by zero.
    """
    with _division_told(check):
        return _judge(check.body, figures)


def judge_sweep(check: Check, sweep: Sweep, scenes: Iterable[Scene]) -> tuple[Judgement, tuple[PointFound, ...]]:
    """A statement over all points of a sweep, with what was found at each.

    Raises
    ------
    ExpectationError
        If it asks for a figure there is not, or divides by zero; the message names the point.
    """
    points: list[_Point] = []
    for scene in scenes:
        try:
            with _division_told(scene.check):
                points.append(_point(scene.check.body, scene.figures))
        except ExpectationError as error:
            raise ExpectationError(f"at {sweep.param} = {scene.setting}: {error}") from error
    shown = [PointFound(point.text, each.judgement.values) for point, each in zip(sweep.points, points, strict=True)]
    return _joined(check.body, sweep, points), tuple(shown)


@contextmanager
def _division_told(check: Check) -> Iterator[None]:
    try:
        yield
    except ZeroDivisionError as error:
        raise ExpectationError(f"'{check.text}' divides by zero") from error


def _judge(body: Body, figures: RunFigures) -> Judgement:
    match body:
        case VerdictIs(verdict=wanted):
            verdict = figures.runs.advice().verdict
            return Judgement(verdict is wanted, f"verdict is {verdict.value}")
        case Comparison():
            return _compare(body, figures)
        case Shown(term=term):
            value = found("value", figures.value(term))
            return Judgement(True, value.text, (value,))
        case _:
            raise AssertionError("the compiler lets no other statement stand outside of a sweep")


def _compare(body: Comparison, figures: RunFigures) -> Judgement:
    left, right = figures.value(body.left), figures.value(body.right)
    high = body.high.amount if body.high is not None else right.amount
    passed = _holds(left.amount, body.relation, right.amount, high, _slack(body, right))
    values = [found("left", left)]
    if not isinstance(body.right, Value):
        values.append(found("right", right))
    return Judgement(passed, ", ".join(f"{each.name} is {each.text}" for each in values), tuple(values))


def _point(body: Body, figures: RunFigures) -> _Point:
    match body:
        case Somewhere(body=inner):
            return _Point(_judge(inner, figures))
        case Trend(term=term) | Linear(term=term) | Inside(term=term):
            value = figures.value(term)
            return _Point(Judgement(True, "", (found("value", value),)), (value,))
        case Crossover(left=left, right=right):
            values = figures.value(left), figures.value(right)
            return _Point(Judgement(True, "", (found("left", values[0]), found("right", values[1]))), values)
        case WinnerChanges(schedules=schedules):
            makespans = {name: figures.value(MetricOf(name, Metric.MAKESPAN)).amount for name in schedules}
            winner = min(schedules, key=lambda name: makespans[name])
            return _Point(Judgement(True, "", (FigureValue("winner", winner, winner),)), winner=winner)
        case _:
            return _Point(_judge(body, figures))


def _joined(body: Body, sweep: Sweep, points: Sequence[_Point]) -> Judgement:
    """What the points say together."""
    first = [value for point in points for value in point.values[:1]]
    match body:
        case Trend():
            return judge_trend(body, sweep, first)
        case Linear():
            return judge_linear(body, sweep, first)
        case Inside():
            return judge_inside(body, sweep, first)
        case Crossover():
            return judge_crossover(body, sweep, first, [point.values[1] for point in points])
        case WinnerChanges():
            return judge_winner(sweep, [point.winner for point in points])
        case Shown():
            return Judgement(True, "")
        case Somewhere():
            return _counted(sweep, points, wanted=True)
        case _:
            return _counted(sweep, points, wanted=False)


def _counted(sweep: Sweep, points: Sequence[_Point], *, wanted: bool) -> Judgement:
    """Holds where, or fails first where: ``wanted`` asks for one point that holds, else all must."""
    named = list(zip(sweep.points, points, strict=True))
    held = [point for point, each in named if each.judgement.passed]
    if wanted and not held:
        return Judgement(False, f"holds at none of {len(points)} points")
    if wanted:
        return Judgement(True, f"holds at {len(held)} of {len(points)} points, first at {sweep.param} = {held[0].text}")
    failed = next(((point, each) for point, each in named if not each.judgement.passed), None)
    if failed is None:
        return Judgement(True, f"holds at all {len(points)} points")
    point, each = failed
    count = len(points) - len(held)
    return Judgement(
        False, f"fails at {count} of {len(points)}, first at {sweep.param} = {point.text}: {each.judgement.text}"
    )


def _slack(body: Comparison, right: Value) -> Fraction:
    """How far apart two equal values may be."""
    if body.tolerance is None:
        return Fraction(0)
    return abs(right.amount) * body.tolerance.amount if body.relative else body.tolerance.amount


def _holds(left: Fraction, relation: Relation, right: Fraction, high: Fraction, slack: Fraction) -> bool:
    match relation:
        case Relation.LT:
            return left < right
        case Relation.LE:
            return left <= right
        case Relation.GT:
            return left > right
        case Relation.GE:
            return left >= right
        case Relation.EQ:
            return abs(left - right) <= slack
        case Relation.NE:
            return abs(left - right) > slack
        case Relation.WITHIN:
            return right <= left <= high
