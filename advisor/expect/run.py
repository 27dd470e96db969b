"""Runs the expectations of a file: simulates its schedules at every point of its sweeps, and compares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import TypeVar

from ...compiler.ir import Metric, MetricOf, Settings, Value
from ...compiler.ir.step import StepScenario
from ...compiler.pipeline import Compiled
from ...compiler.resolve.expect.expectation import (
    Bindings,
    Body,
    Check,
    CheckedSweep,
    Comparison,
    Crossover,
    Expectation,
    Inside,
    Linear,
    Relation,
    Shown,
    Somewhere,
    SweptValue,
    Trend,
    VerdictIs,
    WinnerChanges,
)
from ...compiler.text.diagnostics import CompileError
from ..questions.advisor import Advisor
from ..steps.layer_times import LayerTimes
from .simulations import ExpectationError, Runs, StepRuns
from .values import (
    FigureValue,
    Judgement,
    RunFigures,
    figure_value,
    judge_crossover,
    judge_inside,
    judge_linear,
    judge_trend,
    judge_winner,
)


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


Found = TypeVar("Found", Judgement, _Point)


def _found(check: Check, figures: RunFigures, judge: Callable[[Body, RunFigures], Found]) -> Found:
    """Return what ``judge`` makes of a statement; that it divides by zero is an ``ExpectationError``."""
    try:
        return judge(check.body, figures)
    except ZeroDivisionError as error:
        raise ExpectationError(f"'{check.text}' divides by zero") from error


def _judge(body: Body, figures: RunFigures) -> Judgement:
    match body:
        case VerdictIs(verdict=wanted):
            assert isinstance(figures.runs, Runs), "a step has no verdict"
            verdict = figures.runs.advice().verdict
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


class Standing(Enum):
    """The outcome of a statement; the value is the word in reports."""

    PASSED = "ok"
    FAILED = "FAILED"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One statement with its outcome: ``found`` is a sentence, ``values`` and ``points`` are the numbers.

    ``bindings`` are the settings of its block; ``sweep`` is the sweep that contains it, if any.
    """

    check: Check
    standing: Standing
    found: str
    values: tuple[FigureValue, ...]
    points: tuple[PointFigures, ...]
    bindings: Bindings
    sweep: CheckedSweep | None

    @property
    def passed(self) -> bool:
        """Whether the statement did not fail; one that only shows a value cannot fail."""
        return self.standing is not Standing.FAILED


@dataclass(slots=True)
class ExpectationRunner:
    """Runs every ``expect`` block of one file.

    ``compile`` compiles the file under further settings of its parameters, since sizes and the numbers in statements
    depend on them. The file is compiled, and each schedule simulated, once for each setting.
    """

    compile: Callable[[Bindings], Compiled]
    advisor: Callable[[], Advisor]
    workers: int = 1
    _compiled: dict[Bindings, Compiled] = field(default_factory=dict)
    _runs: dict[tuple[str, Bindings, bool], Runs | StepRuns] = field(default_factory=dict)
    _times: LayerTimes = field(default_factory=LayerTimes)

    def run(self) -> Iterator[CheckResult]:
        """Yield the result of every statement of the file, in order.

        Raises
        ------
        CompileError
            If the file is wrong, by itself or under the bindings of a block.
        """
        for number, block in enumerate(self._file(()).expectations):
            bound = self._expectation(number, block.bindings)
            for place, statement in enumerate(bound.statements):
                if isinstance(statement, Check):
                    yield self._alone(statement, bound)
                else:
                    yield from self._swept(number, place, statement, block.bindings)

    def _alone(self, check: Check, block: Expectation) -> CheckResult:
        try:
            judgement = _found(check, self._figures(block, block.bindings, block.seeds), _judge)
        except ExpectationError as error:
            judgement = Judgement(False, str(error))
        return _result(check, judgement, (), block.bindings, None)

    def _swept(self, number: int, place: int, sweep: CheckedSweep, bindings: Bindings) -> Iterator[CheckResult]:
        for idx, check in enumerate(sweep.checks):
            shown: tuple[PointFigures, ...] = ()
            try:
                points = [self._at(point, (number, place, idx), sweep, bindings) for point in sweep.points]
                judgement = _joined(check.body, sweep, points)
                named = zip(sweep.points, points, strict=True)
                shown = tuple(PointFigures(point.text, there.judgement.values) for point, there in named)
            except ExpectationError as error:
                judgement = Judgement(False, str(error))
            yield _result(check, judgement, shown, bindings, sweep)

    def _at(self, point: SweptValue, where: tuple[int, int, int], sweep: CheckedSweep, bindings: Bindings) -> _Point:
        """Judge a statement at one point of a sweep: ``where`` are its block, the sweep's place there, and its own."""
        number, place, idx = where
        settings, at = (*bindings, (sweep.param, point.text)), f"at {sweep.param} = {point.text}"
        try:
            block = self._expectation(number, settings)
        except CompileError as error:
            first = error.first
            raise ExpectationError(f"{at}: {first.code.name}: {first.message}") from error
        there = block.statements[place]
        assert isinstance(there, CheckedSweep), "parameters change the numbers of a statement, not its form"
        figures = self._figures(block, settings, there.seeds)
        try:
            return _found(there.checks[idx], figures, _point)
        except ExpectationError as error:
            raise ExpectationError(f"{at}: {error}") from error

    def _file(self, settings: Bindings) -> Compiled:
        if settings not in self._compiled:
            self._compiled[settings] = self.compile(settings)
        return self._compiled[settings]

    def _expectation(self, number: int, settings: Bindings) -> Expectation:
        return self._file(settings).expectations[number]

    def _figures(self, block: Expectation, settings: Bindings, seeds: int) -> RunFigures:
        key = (block.workload, settings, block.packets)
        if key not in self._runs:
            compiled = self._file(settings)
            step = compiled.step(block.workload)
            if step is None:
                self._runs[key] = Runs(compiled.scenario(block.workload), self.advisor, self.workers, block.packets)
            else:
                self._runs[key] = StepRuns(step, partial(self._step, block.workload, settings), self._times)
        return RunFigures(self._runs[key], seeds)

    def _step(self, name: str, settings: Bindings, more: Settings) -> StepScenario:
        found = self.compile((*settings, *more)).step(name)
        assert found is not None, "the file has this step"
        return found


def _result(
    check: Check, judgement: Judgement, points: tuple[PointFigures, ...], bindings: Bindings, sweep: CheckedSweep | None
) -> CheckResult:
    standing = Standing.PASSED if judgement.passed else Standing.FAILED
    if judgement.passed and isinstance(check.body, Shown):
        standing = Standing.SHOWN
    return CheckResult(check, standing, judgement.text, judgement.values, points, bindings, sweep)
