"""The sensitivity of an answer about several ops: with the numbers that its ops feel most, each schedule once more.

Which numbers these are, estimates of the ops by themselves say; what they change of the whole is then simulated.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import (
    TICKS_PER_US,
    Choice,
    GraphScenario,
    Progress,
    Scenario,
    Schedule,
    ShouldStop,
    System,
)
from ...compiler.planning.build import ScheduleError, build_schedule
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.templates import BASELINE
from ...simcore import RunOptions, RunOutcome, RunTooLarge
from ...simcore.simulate_layers import simulate_layers
from ..answer.rule import finalists, overlap_pays
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate, by_time
from ..candidates.sensitivity import ChangedNumber, Sensitivity
from ..estimate.makespan import makespans
from .hardware_numbers import HardwareNumber, hardware_numbers, with_number

MAX_RUNS = 32
"""Runs of the whole stage, those with the numbers as they are included."""
UNIT_BYTES, MOST_EFFORT = 8192, 200_000_000
"""Packets of these runs, and the line-hops from which layers that show no period are no longer all simulated."""

Change = tuple[HardwareNumber, float]


def sensitivity_of_several(advice: Advice, progress: Progress, should_stop: ShouldStop) -> Sensitivity | None:
    """Return how an answer about several ops depends on hardware numbers; None without another schedule.

    Compared are what is recommended, the baseline and the fastest other schedule. Each takes its known time, times the
    change that coarse packets show. A change of which a run fails, or that there was no time for, is left out.

    Raises
    ------
    Cancelled
        If the caller asked to stop before anything was known.
    """
    compared = _compared(advice)
    if len(compared) < 2:
        return None
    runs = _Runs(advice.scenario, compared, should_stop)
    before = runs.ticks(advice.scenario.system)
    if before is None:
        return None
    us = tuple(one.best_us for one in compared)
    chosen = felt_most(advice)[: MAX_RUNS // len(compared) - 1]
    changes: list[ChangedNumber] = []
    for done, (number, factor) in enumerate(chosen):
        progress("sensitivity", done, len(chosen))
        if should_stop():
            break
        system = with_number(advice.scenario.cases[0], number, factor).system
        after = runs.ticks(system)
        if after is not None:
            there = tuple(each * b / a for each, a, b in zip(us, before, after, strict=True))
            pays = _pays(replace(advice.scenario, system=system), compared, there)
            simulated = (True,) * len(compared)
            changes.append(ChangedNumber(number.name, number.paths, factor, there, simulated, pays))
    expressions = tuple(one.expression for one in compared)
    pays = _pays(advice.scenario, compared, us)
    return Sensitivity(expressions, us, pays, tuple(changes), True, of_most_felt=True)


def felt_most(advice: Advice) -> list[Change]:
    """Return the hardware numbers with a factor each, those first that change the estimates of the ops most."""
    schedules = _of_ops(advice)
    before = _estimated(advice.scenario.system, schedules)
    by_number: dict[str, tuple[float, Change]] = {}
    case = advice.scenario.cases[0]
    for number in hardware_numbers(advice.scenario.system):
        for factor in number.factors:
            change = abs(_estimated(with_number(case, number, factor).system, schedules) / before - 1)
            if change > by_number.get(number.name, (0.0, None))[0]:
                by_number[number.name] = change, (number, factor)
    return [change for _, change in sorted(by_number.values(), key=lambda each: -each[0])]


def _of_ops(advice: Advice) -> Counter[tuple[Scenario, Schedule]]:
    """The ops by themselves under their schedules in what is recommended, and how often there is each."""
    modes = {mode.op: mode.body for mode in advice.recommended.joint.modes}
    system, found = advice.scenario.system, Counter[tuple[Scenario, Schedule]]()
    for op in advice.scenario.graph.ops:
        case = Scenario("", system, replace(op.workload, name=""))
        usual = Choice(BASELINE.name, system.num_ranks, usual_engine(system, op.workload))
        body = modes.get(op.name)
        choice = body if isinstance(body, Choice) and not body.engine.by_library else usual
        try:
            found[case, build_schedule(case, choice)] += 1
        except ScheduleError:
            found[case, build_schedule(case, usual)] += 1
    return found


def _estimated(system: System, schedules: Counter[tuple[Scenario, Schedule]]) -> float:
    return sum(
        count * next(makespans(replace(case, system=system), [schedule], max_steps=0))
        for (case, schedule), count in schedules.items()
    )


def _compared(advice: Advice) -> tuple[Candidate, ...]:
    """What is recommended, the baseline, and the fastest other schedule that may be recommended."""
    usable = [one for one in advice.candidates if not one.is_outside and not one.side_by_side and not one.problem]
    chosen = (advice.recommended, advice.serial, *by_time(usable))
    return tuple({one.expression: one for one in chosen}.values())[:3]


def _pays(scenario: GraphScenario, compared: Sequence[Candidate], us: Sequence[float]) -> bool:
    """Whether overlap pays with these times."""
    timed = [
        replace(one, simulated_ticks=round(each * TICKS_PER_US), result=None)
        for one, each in zip(compared, us, strict=True)
    ]
    return overlap_pays(scenario, finalists(scenario, by_time(timed)))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Simulates the ``compared`` schedules, all layers, in coarse packets."""

    scenario: GraphScenario
    compared: tuple[Candidate, ...]
    should_stop: ShouldStop

    def ticks(self, system: System) -> tuple[int, ...] | None:
        """Return their times on ``system``; None if one has none."""
        found = tuple(self._ticks(system, one) for one in self.compared)
        return None if None in found else tuple(each for each in found if each is not None)

    def _ticks(self, system: System, candidate: Candidate) -> int | None:
        try:
            result = simulate_layers(
                system,
                self.scenario.graph,
                candidate.joint,
                name=self.scenario.name,
                unit_bytes=UNIT_BYTES,
                most_effort=MOST_EFFORT,
                options=RunOptions(observe=False, loads=False, should_stop=self.should_stop),
            )
        except (ScheduleError, RunTooLarge):
            return None
        return result.total_ticks if result.outcome is RunOutcome.DONE else None
