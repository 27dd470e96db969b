"""Evaluation of the statements of an expectation: alone, or over the points of a sweep."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from ...compiler.ir import Metric, MetricOf, Value
from ...compiler.resolve.expect.expectation import (
    Body,
    Check,
    CheckedSweep,
    Comparison,
    Crossover,
    Inside,
    Linear,
    Relation,
    Shown,
    Somewhere,
    Trend,
    VerdictIs,
    WinnerChanges,
)
from .simulations import ExpectationError
from .sweeps import Judgement, judge_crossover, judge_inside, judge_linear, judge_trend, judge_winner
from .values import FigureValue, RunFigures, figure_value


@dataclass(frozen=True, slots=True)
class Scene:
    """A statement at one point of a sweep: the value of the parameter, the statement there, and its figures."""

    setting: str
    check: Check
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class PointFigures:
    """The figures at one point of a sweep; ``setting`` is the value of the parameter."""

    setting: str
    values: tuple[FigureValue, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """One point: the judgement of the statement there, and the exact values behind it."""

    judgement: Judgement
    values: tuple[Value, ...] = ()
    winner: str = ""


def judge(check: Check, figures: RunFigures) -> Judgement:
    """Judge a statement that stands alone.

    Raises
    ------
    ExpectationError
        If it refers to a figure that does not exist, or divides by zero.
    """
    with _division_reported(check):
        return _judge(check.body, figures)


def judge_sweep(
    check: Check, sweep: CheckedSweep, scenes: Iterable[Scene]
) -> tuple[Judgement, tuple[PointFigures, ...]]:
    """Judge a statement over all points of a sweep; return the judgement and the figures at each point.

    Raises
    ------
    ExpectationError
        If it refers to a figure that does not exist, or divides by zero; the message names the point.
    """
    points: list[_Point] = []
    for scene in scenes:
        try:
            with _division_reported(scene.check):
                points.append(_point(scene.check.body, scene.figures))
        except ExpectationError as error:
            raise ExpectationError(f"at {sweep.param} = {scene.setting}: {error}") from error
    shown = [
        PointFigures(point.text, outcome.judgement.values) for point, outcome in zip(sweep.points, points, strict=True)
    ]
    return _joined(check.body, sweep, points), tuple(shown)


@contextmanager
def _division_reported(check: Check) -> Iterator[None]:
    try:
        yield
    except ZeroDivisionError as error:
        raise ExpectationError(f"'{check.text}' divides by zero") from error


def _judge(body: Body, figures: RunFigures) -> Judgement:
    match body:
        case VerdictIs(verdict=wanted):
            verdict = figures.runs.verdict()
            return Judgement(verdict is wanted, f"verdict is {verdict.value}")
        case Comparison():
            return _compare(body, figures)
        case Shown(term=term):
            value = figure_value("value", figures.value(term))
            return Judgement(True, value.text, (value,))
        case _:
            raise AssertionError("the compiler lets no other statement stand outside of a sweep")


def _compare(body: Comparison, figures: RunFigures) -> Judgement:
    left, right = figures.value(body.left), figures.value(body.right)
    high = body.high.amount if body.high is not None else right.amount
    passed = _holds(left.amount, body.relation, right.amount, high, _slack(body, right))
    values = [figure_value("left", left)]
    if not isinstance(body.right, Value):
        values.append(figure_value("right", right))
    return Judgement(passed, ", ".join(f"{value.name} is {value.text}" for value in values), tuple(values))


def _point(body: Body, figures: RunFigures) -> _Point:
    match body:
        case Somewhere(body=inner):
            return _Point(_judge(inner, figures))
        case Trend(term=term) | Linear(term=term) | Inside(term=term):
            value = figures.value(term)
            return _Point(Judgement(True, "", (figure_value("value", value),)), (value,))
        case Crossover(left=left, right=right):
            values = figures.value(left), figures.value(right)
            return _Point(
                Judgement(True, "", (figure_value("left", values[0]), figure_value("right", values[1]))), values
            )
        case WinnerChanges(schedules=schedules):
            makespans = {name: figures.value(MetricOf(name, Metric.MAKESPAN)).amount for name in schedules}
            winner = min(schedules, key=lambda name: makespans[name])
            return _Point(Judgement(True, "", (FigureValue("winner", winner, winner),)), winner=winner)
        case _:
            return _Point(_judge(body, figures))


def _joined(body: Body, sweep: CheckedSweep, points: Sequence[_Point]) -> Judgement:
    """Judge the statement over all points."""
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


def _counted(sweep: CheckedSweep, points: Sequence[_Point], *, wanted: bool) -> Judgement:
    """Judge a statement that must hold at one point if ``wanted``, else at all."""
    named = list(zip(sweep.points, points, strict=True))
    held = [point for point, outcome in named if outcome.judgement.passed]
    if wanted and not held:
        return Judgement(False, f"holds at none of {len(points)} points")
    if wanted:
        return Judgement(True, f"holds at {len(held)} of {len(points)} points, first at {sweep.param} = {held[0].text}")
    failed = next(((point, outcome) for point, outcome in named if not outcome.judgement.passed), None)
    if failed is None:
        return Judgement(True, f"holds at all {len(points)} points")
    point, outcome = failed
    count = len(points) - len(held)
    return Judgement(
        False, f"fails at {count} of {len(points)}, first at {sweep.param} = {point.text}: {outcome.judgement.text}"
    )


def _slack(body: Comparison, right: Value) -> Fraction:
    """Return the largest difference of two equal values."""
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
