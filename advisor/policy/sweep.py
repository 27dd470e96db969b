"""Advice for every point of a grid, and the rules that follow where one size varies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...compiler.ir import Cancelled, GraphScenario, JsonObject, Scenario, Settings
from ...compiler.planning.build import ScheduleError
from ..candidates.advice import Advice
from ..implementations.offers import Offer
from ..options import AdviceOptions
from ..pools import Ask
from ..solver import NoFeasibleSchedule
from .axis import SizeAxis, axis_of_scenario, size_of
from .build import policy_table
from .cover import TOLERANCE
from .table import PolicyTable

SCHEMA = "magus-sweep/1"


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of a grid: the settings of the file's parameters, and the advice."""

    settings: Settings
    advice: Advice

    @property
    def offer(self) -> Offer | None:
        """The fastest implementation that pays, None if none is known to."""
        offers = self.advice.offers
        return next(iter(() if offers is None else offers.paying), None)

    def document(self) -> JsonObject:
        """Return the point as JSON."""
        advice = self.advice
        return {
            "settings": dict(self.settings),
            "verdict": advice.verdict.value,
            "schedule": advice.recommended.expression,
            "us": advice.recommended.best_us,
            "baseline": advice.serial.expression,
            "baseline_us": advice.serial.best_us,
            "gain": advice.speedup,
            "gain_low": None if advice.interval is None else advice.interval[0],
            "gain_high": None if advice.interval is None else advice.interval[1],
            "confidence": advice.confidence.value,
            "implementation": None if self.offer is None else self.offer.name,
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """Points in their order, and the rules if one size varied and nothing else did.

    One that was ``interrupted`` has the points that were answered until then, and no rules; neither has one with points
    that ``failed``, for which no schedule is feasible, with the reasons.
    """

    points: tuple[SweepPoint, ...]
    policy: PolicyTable | None
    interrupted: bool = False
    failed: tuple[tuple[Settings, str], ...] = ()

    def document(self) -> JsonObject:
        """Return the document of ``magus sweep --json``."""
        return {
            "schema": SCHEMA,
            "scenario": self.points[0].advice.scenario.name if self.points else None,
            "interrupted": self.interrupted,
            "failed": [{"settings": dict(settings), "reason": reason} for settings, reason in self.failed],
            "points": [point.document() for point in self.points],
            "policy": None if self.policy is None else self.policy.document(),
        }


def swept(
    points: Sequence[tuple[Settings, GraphScenario]],
    ask: Ask[GraphScenario, Advice],
    *,
    options: AdviceOptions,
    tolerance: float = TOLERANCE,
) -> Sweep:
    """Return the advice for each of ``points``, and rules of templates: there are none where more was searched.

    ``ask`` asks for advice with these ``options``; ``policy_table`` describes the rest.

    Raises
    ------
    Cancelled
        If what was asked was stopped at the first point.
    """
    found: list[SweepPoint] = []
    failed: list[tuple[Settings, str]] = []
    try:
        answers = ask([scenario for _, scenario in points])
        for (settings, _), answer in zip(points, answers, strict=True):
            try:
                found.append(SweepPoint(settings, answer()))
            except (NoFeasibleSchedule, ScheduleError) as error:
                failed.append((settings, str(error)))
        searched = options.bespoke or failed
        rules = None if searched or not found else _rules(found, ask, options.verify, tolerance)
        return Sweep(tuple(found), rules, failed=tuple(failed))
    except Cancelled:
        if not found:
            raise
        return Sweep(tuple(found), None, interrupted=True, failed=tuple(failed))


def _rules(
    found: Sequence[SweepPoint], ask: Ask[GraphScenario, Advice], simulated: bool, tolerance: float
) -> PolicyTable | None:
    by_size = _by_size([point.advice for point in found])
    if by_size is None:
        return None
    axis, known = by_size
    sizes = tuple(known)
    advice_of = {GraphScenario.of_one(axis.at(size)): advice for size, advice in known.items()}

    def recall(scenarios: Sequence[GraphScenario]) -> list[Callable[[], Advice]]:
        new = [scenario for scenario in scenarios if scenario not in advice_of]
        answers = dict(zip(new, ask(new), strict=True))
        return [answers.get(scenario) or partial(advice_of.__getitem__, scenario) for scenario in scenarios]

    return policy_table(axis, sizes, recall, simulated=simulated, tolerance=tolerance)


def _by_size(advices: Sequence[Advice]) -> tuple[SizeAxis, Mapping[int, Advice]] | None:
    """Return the axis of the first scenario and the advice by size; None if scenarios differ in anything else."""
    axis = axis_of_scenario(advices[0].case)
    if axis is None:
        return None
    known = {_size(advice.case, axis): advice for advice in advices}
    alike = all(
        axis.at(size).workload.compute == advice.case.workload.compute
        and axis.at(size).workload.moved == advice.case.workload.moved
        and advice.scenario.system == advices[0].scenario.system
        for size, advice in known.items()
    )
    return (axis, known) if alike and len(known) == len(advices) else None


def _size(scenario: Scenario, axis: SizeAxis) -> int:
    return size_of(scenario.workload, axis.field) or 0
