"""Advice for every point of a grid, and the rules that follow where one size varies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from ...compiler.ir import Cancelled, JsonObject, Rejection, Scenario, Schedule, Settings
from ...compiler.planning.build import ScheduleError, schedule_block
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.text.records import Tabular
from ..answer.stages import AdviceOptions
from ..candidates.advice import Advice
from ..solver import NoFeasibleSchedule
from ..work.on_dask import BackendError
from ..work.pools import Ask
from .build import policy_table
from .cover import TOLERANCE, SizeAxis, axis_of_scenario, size_of
from .layer_rules import SettingAxis, Simulate, layer_rules, said_of, timed_everywhere
from .table import PolicyRule, PolicyTable, SweepPoint, table_of

SCHEMA = "magus-sweep/2"


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Tabular):
    """Points in their order, and the rules if one size varied and nothing else did.

    One that was ``interrupted`` has the points that were answered until then, and no rules; neither has one with points
    that ``failed``, for which no schedule is feasible, with the reasons. ``lost`` is why the machines that worked on it
    were lost, if they were.
    """

    points: tuple[SweepPoint, ...]
    policy: PolicyTable | None
    interrupted: bool = False
    failed: tuple[tuple[Settings, str], ...] = ()
    lost: Rejection | None = None

    ROWS: ClassVar[str] = "points"

    @property
    def summary(self) -> str:
        """The numbers of points, of rules and of what failed."""
        ended = ", interrupted" if self.interrupted else ""
        return f"{len(self.points)} points, {len(self.rules)} rules, {len(self.failed)} failed{ended}"

    @property
    def rules(self) -> tuple[PolicyRule, ...]:
        """The rules, none where there is no table or it has none."""
        return () if self.policy is None else self.policy.rules

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Of several ops no overlap, and the schedules that are recommended somewhere."""
        found = {point.choice.name: point.choice for point in self.points if point.choice is not None}
        return tuple(({SERIAL.name: SERIAL} | found).values()) if found else ()

    def document(self) -> JsonObject:
        """Return the document of ``magus sweep --json``."""
        workload = self.points[0].advice.scenario.name if self.points else ""
        return {
            "schema": SCHEMA,
            "scenario": workload or None,
            "interrupted": self.interrupted,
            "failed": [{"settings": dict(settings), "reason": reason} for settings, reason in self.failed],
            "points": [point.document() for point in self.points],
            "schedules": [
                {"name": each.name, "expression": said_of(each), "block": block_of(each, workload)}
                for each in self.schedules
            ],
            "policy": self.policy.document() if self.policy is not None and self.rules else None,
        }


def block_of(choice: Schedule, workload: str) -> str | None:
    """The block that declares a schedule; None for ``serial``, and where only the file can say it."""
    try:
        return None if choice == SERIAL else schedule_block(choice, workload)
    except ScheduleError:
        return None


@dataclass(frozen=True, slots=True)
class OtherSizes:
    """Workloads of several ops at other sizes: the one ``at`` settings, and how a schedule is simulated there.

    ``at`` raises ``CompileError`` for settings that cannot be.
    """

    at: Callable[[Settings], Scenario]
    simulate: Simulate


def swept(
    points: Sequence[tuple[Settings, Scenario]],
    ask: Ask[Scenario, Advice],
    *,
    options: AdviceOptions,
    tolerance: float = TOLERANCE,
    others: OtherSizes | None = None,
) -> Sweep:
    """Return the advice for each of ``points``, and rules.

    Of one op rules are of templates: there are none where more was searched. Of several ops each schedule that is
    recommended somewhere is simulated at all ``others``; without them there are no rules.

    Parameters
    ----------
    ask
        Asks for advice with these ``options``.
    tolerance
        The relative loss that a rule may have so that there are fewer rules.

    Raises
    ------
    Cancelled, BackendError
        If what was asked was stopped at the first point, or those who answer were lost there.
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
        if found and found[0].advice.scenario.only_case is None:
            return replace(_of_several(found, others, tolerance, rules=not failed), failed=tuple(failed))
        searched = options.bespoke or failed
        simulated = options.verify and not any(each.advice.recommended.is_estimate for each in found)
        rules = None if searched or not found else _rules(found, ask, simulated, tolerance)
        return Sweep(tuple(found), rules, failed=tuple(failed))
    except (Cancelled, BackendError) as error:
        if not found:
            raise
        several, lost = found[0].advice.scenario.only_case is None, getattr(error, "rejection", None)
        kept = timed_everywhere(found, None) if several else found
        return Sweep(tuple(kept), None, interrupted=True, failed=tuple(failed), lost=lost)


def _of_several(points: Sequence[SweepPoint], others: OtherSizes | None, tolerance: float, *, rules: bool) -> Sweep:
    timed = timed_everywhere(points, None if others is None else others.simulate)
    axis = None if others is None or not rules else _setting_axis(points, others)
    found = () if axis is None or others is None else layer_rules(axis, timed, others.simulate, tolerance)
    return Sweep(timed, table_of(found, [point.advice for point in timed], timed, simulated=True))


def _setting_axis(points: Sequence[SweepPoint], others: OtherSizes) -> SettingAxis | None:
    """The parameter that varies in whole numbers; None if none does, or several."""
    first = points[0].settings
    varied = [name for name, text in first if any(dict(point.settings)[name] != text for point in points)]
    if len(varied) != 1 or not all(dict(point.settings)[varied[0]].isdecimal() for point in points):
        return None
    (name,) = varied

    def at(size: int) -> Scenario:
        return others.at(tuple((key, str(size) if key == name else text) for key, text in first))

    return SettingAxis(name, at)


def _rules(
    found: Sequence[SweepPoint], ask: Ask[Scenario, Advice], simulated: bool, tolerance: float
) -> PolicyTable | None:
    by_size = _by_size([point.advice for point in found])
    if by_size is None:
        return None
    axis, known = by_size
    sizes = tuple(known)
    advice_of = {Scenario.of_one(axis.at(size)): advice for size, advice in known.items()}

    def recall(scenarios: Sequence[Scenario]) -> list[Callable[[], Advice]]:
        new = [scenario for scenario in scenarios if scenario not in advice_of]
        answers = dict(zip(new, ask(new), strict=True))
        return [answers.get(scenario) or partial(advice_of.__getitem__, scenario) for scenario in scenarios]

    table = policy_table(axis, sizes, recall, simulated=simulated, tolerance=tolerance)
    return replace(table, points=tuple(found))


def _by_size(advices: Sequence[Advice]) -> tuple[SizeAxis, Mapping[int, Advice]] | None:
    """Return the axis of the first scenario and the advice by size; None if scenarios differ in anything else."""
    axis = axis_of_scenario(advices[0].case)
    if axis is None:
        return None
    known = {size_of(advice.case.shape, axis.field) or 0: advice for advice in advices}
    alike = all(
        axis.at(size).shape.compute == advice.case.shape.compute
        and axis.at(size).shape.moved == advice.case.shape.moved
        and advice.scenario.system == advices[0].scenario.system
        for size, advice in known.items()
    )
    return (axis, known) if alike and len(known) == len(advices) else None
