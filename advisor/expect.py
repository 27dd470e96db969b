"""Runs what a file expects: simulates the schedules it names and compares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from ..compiler.expectation import (
    Check,
    Comparison,
    Dimension,
    Expectation,
    Metric,
    MetricOf,
    Relation,
    Speedup,
    Value,
    VerdictIs,
)
from ..compiler.plan import declared
from ..compiler.scenario import TICKS_PER_US, Scenario
from ..simcore import Result, simulate
from .advice import Advice
from .bounds import lower_bound
from .recommend import Advisor, packet_bytes
from .solver import NoFeasibleSchedule

BEST, SERIAL, BOUND = "best", "serial", "bound"


class ExpectationError(ValueError):
    """An expectation that asks for a figure there is not, for instance the DIL of a lone collective."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One statement with what was found; ``found`` is a sentence for the report."""

    check: Check
    passed: bool
    found: str


@dataclass(slots=True)
class ExpectationRunner:
    """Simulates for one scenario, each schedule once, and checks statements against what it finds."""

    scenario: Scenario
    advisor: Callable[[], Advisor]
    workers: int = 1
    _advice: Advice | None = None
    _results: dict[str, Result] = field(default_factory=dict)

    def run(self, expectation: Expectation) -> tuple[CheckResult, ...]:
        """Every statement of the block, in order."""
        return tuple(self._check(check) for check in expectation.checks)

    def _check(self, check: Check) -> CheckResult:
        try:
            if isinstance(check.body, VerdictIs):
                verdict = self.advice().verdict
                return CheckResult(check, verdict is check.body.verdict, f"verdict is {verdict.value}")
            return self._compare(check, check.body)
        except (ExpectationError, NoFeasibleSchedule) as error:
            return CheckResult(check, False, str(error))

    def _compare(self, check: Check, body: Comparison) -> CheckResult:
        left, right = self._value(body.left), self._value(body.right)
        high = body.high.amount if body.high is not None else right.amount
        passed = _holds(left.amount, body.relation, right.amount, high, _slack(body, right))
        found = f"left is {show(left)}"
        if not isinstance(body.right, Value):
            found += f", right is {show(right)}"
        return CheckResult(check, passed, found)

    def _value(self, term: MetricOf | Speedup | Value) -> Value:
        match term:
            case Value():
                return term
            case Speedup(fast, slow):
                ratio = self._makespan(slow) / self._makespan(fast)
                return Value(ratio, Dimension.RATIO)
            case MetricOf(schedule, Metric.MAKESPAN):
                return Value(self._makespan(schedule), Dimension.TIME)
            case MetricOf(schedule, metric):
                return _metric(self.result(schedule), metric)

    def _makespan(self, schedule: str) -> Fraction:
        if schedule == BOUND:
            return Fraction(lower_bound(self.scenario).ticks)
        return Fraction(self.result(schedule).makespan_ticks)

    def advice(self) -> Advice:
        """The advice for the scenario, asked for once."""
        if self._advice is None:
            self._advice = self.advisor().recommend(self.scenario, workers=self.workers)
        return self._advice

    def result(self, schedule: str) -> Result:
        """A declared schedule, ``best`` or ``serial``, simulated at line granularity."""
        if schedule == BOUND:
            raise ExpectationError("the lower bound has a makespan and nothing else")
        if schedule in (BEST, SERIAL):
            advice = self.advice()
            result = advice.result if schedule == BEST else advice.serial_result
            assert result is not None, "advice is verified unless asked otherwise"
            return result
        if schedule not in self._results:
            named = next((named for named in self.scenario.schedules if named.name == schedule), None)
            if named is None:
                raise ExpectationError(f"{schedule} does not fit these sizes and was left out")
            self._results[schedule] = simulate(
                self.scenario,
                declared(self.scenario, named),
                unit_bytes=self.scenario.gpu.line_bytes,
                explain_bytes=packet_bytes(self.scenario),
            )
        return self._results[schedule]


def _metric(result: Result, metric: Metric) -> Value:
    """A figure of ``result`` with its dimension."""
    ticks = {
        Metric.COMPUTE_TIME: result.compute_ticks,
        Metric.COMM_TIME: result.comm_ticks,
        Metric.EXPOSED_TIME: result.exposed_ticks,
    }
    if metric in ticks:
        return Value(Fraction(ticks[metric]), Dimension.TIME)
    if metric is Metric.STAGING:
        return Value(Fraction(result.schedule.staging_bytes), Dimension.BYTES)
    ratios: dict[Metric, float | None] = {
        Metric.EXPOSED: result.exposed_ticks / max(1, result.makespan_ticks),
        Metric.OVERLAP_EFFICIENCY: result.overlap_efficiency,
        Metric.DIL: result.dil,
        Metric.CIL: result.cil,
    }
    ratio = ratios[metric]
    if ratio is None:
        raise ExpectationError(f"{result.schedule.expression} has no {metric.value}")
    return Value(Fraction(ratio), Dimension.RATIO)


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


def show(value: Value) -> str:
    """A value as people read it."""
    match value.dimension:
        case Dimension.TIME:
            return f"{float(value.amount) / TICKS_PER_US:.2f} us"
        case Dimension.BYTES:
            return f"{float(value.amount) / 2**20:.2f} MiB"
        case Dimension.RATIO:
            return f"{float(value.amount):.4g}"
