"""Advice on a workload for every point of a grid, and from which size on which of its schedules.

Each schedule that is recommended at a point is simulated at all others, so that a rule says what it costs to keep one
schedule over a range.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ...compiler.ir import TICKS_PER_US, Cancelled, JsonObject, Scenario, Schedule, Settings
from ...compiler.planning.build import ScheduleError, expression_of_schedule, schedule_block
from ...compiler.resolve.schedules.from_text import SERIAL
from ..candidates.advice import Advice
from ..candidates.candidate import ScheduleOrigin
from .cover import TOLERANCE

SCHEMA = "magus-graph-sweep/1"
Simulate = Callable[[Scenario, Schedule, Advice], int | None]
"""The ticks of a schedule at a point with that advice, None where it cannot be carried out."""


@dataclass(frozen=True, slots=True)
class WorkloadPoint:
    """One point of a grid: the settings of the file's parameters, the advice, and the name of its schedule.

    ``ticks`` has the time of each schedule of the sweep that can be carried out here, by name.
    """

    settings: Settings
    advice: Advice
    schedule: str
    ticks: Mapping[str, int]

    @property
    def gain(self) -> float:
        """Of the recommended schedule over no overlap."""
        return self.ticks[SERIAL.name] / self.ticks[self.schedule]

    def document(self) -> JsonObject:
        """Return the point as JSON."""
        us = {name: ticks / TICKS_PER_US for name, ticks in self.ticks.items()}
        return {
            "settings": dict(self.settings),
            "verdict": self.advice.verdict.value,
            "schedule": self.schedule,
            "us": us[self.schedule],
            "baseline_us": us[SERIAL.name],
            "gain": self.gain,
            "schedules_us": us,
        }


@dataclass(frozen=True, slots=True)
class WorkloadRule:
    """``schedule`` for the points from ``first`` to ``last``: gains over no overlap, and how far behind the best."""

    first: Settings
    last: Settings
    schedule: str
    gain: tuple[float, float]
    loss: float


@dataclass(frozen=True, slots=True)
class WorkloadSweep:
    """Points in their order, the schedules that are recommended somewhere, and rules where one parameter varies.

    ``interrupted`` and ``failed`` are as in ``Sweep``.
    """

    points: tuple[WorkloadPoint, ...]
    schedules: tuple[Schedule, ...] = ()
    rules: tuple[WorkloadRule, ...] = ()
    interrupted: bool = False
    failed: tuple[tuple[Settings, str], ...] = ()

    def document(self) -> JsonObject:
        """Return the document of ``magus sweep --json`` on several ops."""
        workload = self.points[0].advice.scenario.name if self.points else ""
        return {
            "schema": SCHEMA,
            "scenario": workload or None,
            "interrupted": self.interrupted,
            "failed": [{"settings": dict(settings), "reason": reason} for settings, reason in self.failed],
            "points": [point.document() for point in self.points],
            "schedules": [
                {
                    "name": each.name,
                    "expression": said_of(each),
                    "block": block_of(each, workload),
                }
                for each in self.schedules
            ],
            "rules": [
                {
                    "first": dict(rule.first),
                    "last": dict(rule.last),
                    "schedule": rule.schedule,
                    "gain": list(rule.gain),
                    "loss": rule.loss,
                }
                for rule in self.rules
            ],
        }


def workload_swept(
    points: Sequence[tuple[Settings, Scenario]],
    advise: Callable[[Scenario], Advice],
    simulate: Simulate,
    *,
    tolerance: float = TOLERANCE,
) -> WorkloadSweep:
    """Return the advice for each of ``points``, and rules with schedules that are at most ``tolerance`` behind.

    Raises
    ------
    Cancelled
        If ``advise`` was stopped at the first point.
    """
    found: list[tuple[Settings, Advice]] = []
    failed: list[tuple[Settings, str]] = []
    try:
        for settings, scenario in points:
            try:
                found.append((settings, advise(scenario)))
            except ScheduleError as error:
                failed.append((settings, str(error)))
        named = _named([advice for _, advice in found])
        compared = tuple(_point(settings, advice, named, simulate) for settings, advice in found)
    except Cancelled:
        if not found:
            raise
        named = _named([advice for _, advice in found])
        alone = tuple(_point(settings, advice, named, _not_simulated) for settings, advice in found)
        return WorkloadSweep(alone, tuple(named.values()), interrupted=True, failed=tuple(failed))
    varied = {name for settings, _ in points for name, text in settings if text != dict(points[0][0])[name]}
    rules = _rules(compared, tolerance) if len(varied) == 1 and not failed else ()
    return WorkloadSweep(compared, tuple(named.values()), rules, failed=tuple(failed))


def _not_simulated(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
    """Nothing is simulated any more."""
    return None


def said_of(choice: Schedule) -> str:
    """What a schedule says, on one line; its name where an op is said in outline."""
    try:
        return expression_of_schedule(choice)
    except ScheduleError:
        return choice.name


def block_of(choice: Schedule, workload: str) -> str | None:
    """The block that declares a schedule; None for ``serial``, and where only the file can say it."""
    try:
        return None if choice == SERIAL else schedule_block(choice, workload)
    except ScheduleError:
        return None


def _named(advices: Sequence[Advice]) -> dict[str, Schedule]:
    """The recommended schedules by what they say; those that no file declares are numbered."""
    taken = {choice.name for advice in advices for choice in advice.scenario.schedules}
    named: dict[str, Schedule] = {said_of(SERIAL): SERIAL}
    for advice in advices:
        best, said = advice.recommended, said_of(_recommended(advice))
        if said in named:
            continue
        declared = best.origin is ScheduleOrigin.DECLARED and best.expression in taken
        name = (
            best.expression if declared else next(n for k in count(1) if (n := f"{best.expression}_{k}") not in taken)
        )
        taken.add(name)
        named[said] = replace(best.joint, name=name)
    return named


def _recommended(advice: Advice) -> Schedule:
    """The recommended schedule; no overlap for any in which nothing overlaps."""
    return SERIAL if advice.recommended.is_serial else advice.recommended.joint


def _point(settings: Settings, advice: Advice, named: Mapping[str, Schedule], simulate: Simulate) -> WorkloadPoint:
    best = said_of(_recommended(advice))
    known = {best: advice.recommended.ticks, said_of(SERIAL): advice.no_overlap.ticks}
    ticks = {
        choice.name: known[said] if said in known else simulate(advice.scenario, choice, advice)
        for said, choice in named.items()
    }
    able = {name: each for name, each in ticks.items() if each is not None}
    return WorkloadPoint(settings, advice, named[best].name, able)


def _rules(points: Sequence[WorkloadPoint], tolerance: float) -> tuple[WorkloadRule, ...]:
    """The fewest ranges of neighbouring points, each with a schedule that is near the best at all of them."""
    rules: list[WorkloadRule] = []
    left = list(points)
    while left:
        lengths = {name: _reach(left, name, tolerance) for name in left[0].ticks}
        length = max(lengths.values())
        able = [name for name, reach in lengths.items() if reach == length]
        here, left = left[:length], left[length:]
        losses = {name: (name != SERIAL.name, _loss(here, name)) for name in able}  # no overlap where it does
        name = min(losses, key=lambda each: losses[each])
        gains = [point.ticks[SERIAL.name] / point.ticks[name] for point in here]
        loss = _loss(here, name)
        rules.append(WorkloadRule(here[0].settings, here[-1].settings, name, (min(gains), max(gains)), loss))
    return tuple(rules)


def _reach(points: Sequence[WorkloadPoint], name: str, tolerance: float) -> int:
    """At how many of the first points a schedule is near the best."""
    far = (place for place, point in enumerate(points) if _loss([point], name) > tolerance)
    return next(far, len(points))


def _loss(points: Sequence[WorkloadPoint], name: str) -> float:
    """How far a schedule is behind the best, at the worst of ``points``."""
    return max(
        point.ticks[name] / min(point.ticks.values()) - 1 if name in point.ticks else float("inf") for point in points
    )
