"""Runs the expectations of a file: simulates its schedules at every point of its sweeps, and compares."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ...compiler.pipeline import Compiled
from ...compiler.resolve.expect.expectation import Bindings, Check, CheckedSweep, Expectation, Shown
from ...compiler.text.diagnostics import CompileError
from ..recommend import Advisor
from .checks import PointFigures, Scene, judge, judge_sweep
from .graph_simulations import GraphRuns
from .simulations import ExpectationError, Runs, Simulated
from .sweeps import Judgement
from .values import FigureValue, RunFigures


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
    _runs: dict[tuple[str, Bindings, bool], Simulated] = field(default_factory=dict)

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
            judgement = judge(check, self._figures(block, block.bindings, block.seeds))
        except ExpectationError as error:
            judgement = Judgement(False, str(error))
        return _result(check, judgement, (), block.bindings, None)

    def _swept(self, number: int, place: int, sweep: CheckedSweep, bindings: Bindings) -> Iterator[CheckResult]:
        for idx, check in enumerate(sweep.checks):
            points: tuple[PointFigures, ...] = ()
            try:
                judgement, points = judge_sweep(check, sweep, self._scenes(number, place, idx, sweep, bindings))
            except ExpectationError as error:
                judgement = Judgement(False, str(error))
            yield _result(check, judgement, points, bindings, sweep)

    def _scenes(self, number: int, place: int, idx: int, sweep: CheckedSweep, bindings: Bindings) -> Iterator[Scene]:
        """Yield the statement ``idx`` of a sweep at every point, with the numbers it has there."""
        for point in sweep.points:
            settings = (*bindings, (sweep.param, point.text))
            try:
                block = self._expectation(number, settings)
            except CompileError as error:
                first = error.first
                message = f"at {sweep.param} = {point.text}: {first.code.name}: {first.message}"
                raise ExpectationError(message) from error
            there = block.statements[place]
            assert isinstance(there, CheckedSweep), "parameters change the numbers of a statement, not its form"
            yield Scene(point.text, there.checks[idx], self._figures(block, settings, there.seeds))

    def _file(self, settings: Bindings) -> Compiled:
        if settings not in self._compiled:
            self._compiled[settings] = self.compile(settings)
        return self._compiled[settings]

    def _expectation(self, number: int, settings: Bindings) -> Expectation:
        return self._file(settings).expectations[number]

    def _figures(self, block: Expectation, settings: Bindings, seeds: int) -> RunFigures:
        key = (block.workload, settings, block.packets)
        if key not in self._runs:
            scenario = self._file(settings).scenario(block.workload)
            if scenario.pair is None:
                self._runs[key] = GraphRuns(scenario, self.advisor, block.packets)
            else:
                self._runs[key] = Runs(scenario.pair, self.advisor, self.workers, block.packets)
        return RunFigures(self._runs[key], seeds)


def _result(
    check: Check, judgement: Judgement, points: tuple[PointFigures, ...], bindings: Bindings, sweep: CheckedSweep | None
) -> CheckResult:
    standing = Standing.PASSED if judgement.passed else Standing.FAILED
    if judgement.passed and isinstance(check.body, Shown):
        standing = Standing.SHOWN
    return CheckResult(check, standing, judgement.text, judgement.values, points, bindings, sweep)
