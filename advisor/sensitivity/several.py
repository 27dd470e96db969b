"""Sensitivity and threshold of an answer about several ops, by the numbers that its ops feel most.

Which numbers these are, estimates of the ops by themselves say; what they change of the whole is then simulated.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import (
    TICKS_PER_US,
    OpCase,
    OpChoice,
    OpPlan,
    Progress,
    Scenario,
    ShouldStop,
    System,
)
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.templates import BASELINE
from ...compiler.text.diagnostics import CompileError
from ...simcore import RunOptions, RunOutcome, RunTooLarge
from ...simcore.simulate_layers import simulate_layers
from ..answer.rule import finalists, overlap_pays, recommended_of
from ..candidates.advice import Advice, Threshold
from ..candidates.candidate import Candidate, baseline_of, by_time
from ..candidates.sensitivity import ChangedNumber, RoutingDraws, Sensitivity
from ..estimate.makespan import makespans
from .sensitivity import HardwareNumber, hardware_numbers, with_number
from .threshold import first_flip

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


def over_draws(
    advice: Advice,
    seeds: Sequence[int],
    drawn: Callable[[int], Scenario],
    progress: Progress,
    should_stop: ShouldStop,
) -> RoutingDraws | None:
    """Return the times of what is recommended, the baseline and the fastest other schedule over draws of the routing.

    ``drawn`` is the scenario with its routing under a seed. Each schedule takes its known time, times the change that
    coarse packets show. None if no draw could be simulated.

    Raises
    ------
    Cancelled
        If the caller asked to stop before anything was known.
    """
    compared = _compared(advice)
    before = _Runs(advice.scenario, compared, should_stop).ticks(advice.scenario.system)
    found: dict[int, tuple[float, ...]] = {}
    for done, seed in enumerate(seeds if before is not None else ()):
        progress("draws", done, len(seeds))
        if should_stop():
            break
        scenario = drawn(seed)
        after = _Runs(scenario, compared, should_stop).ticks(scenario.system)
        if before is not None and after is not None:
            found[seed] = tuple(one.best_us * b / a for one, a, b in zip(compared, before, after, strict=True))
    if not found:
        return None
    expressions = tuple(one.expression for one in compared)
    loss = advice.recommended.best_us / min(one.best_us for one in compared) - 1
    return RoutingDraws(tuple(found), expressions, tuple(zip(*found.values(), strict=True)), loss)


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


def _of_ops(advice: Advice) -> Counter[tuple[OpCase, OpPlan]]:
    """The ops by themselves under their schedules in what is recommended, and how often there is each."""
    modes = {mode.op: mode.body for mode in advice.recommended.joint.modes}
    system, found = advice.scenario.system, Counter[tuple[OpCase, OpPlan]]()
    for op in advice.scenario.workload.ops:
        case = OpCase("", system, replace(op.shape, name=""))
        usual = OpChoice(BASELINE.name, system.num_ranks, usual_engine(system, op.shape))
        body = modes.get(op.name)
        choice = body if isinstance(body, OpChoice) and not body.engine.by_library else usual
        try:
            found[case, build_op_plan(case, choice)] += 1
        except ScheduleError:
            found[case, build_op_plan(case, usual)] += 1
    return found


def _estimated(system: System, schedules: Counter[tuple[OpCase, OpPlan]]) -> float:
    return sum(
        count * next(makespans(replace(case, system=system), [schedule], max_steps=0))
        for (case, schedule), count in schedules.items()
    )


def _compared(advice: Advice) -> tuple[Candidate, ...]:
    """What is recommended, the baseline, and the fastest other schedule that may be recommended."""
    chosen = (advice.recommended, advice.serial, *by_time(_usable(advice)))
    return tuple({one.expression: one for one in chosen}.values())[:3]


def _usable(advice: Advice) -> list[Candidate]:
    """The candidates that may be recommended."""
    return [one for one in advice.candidates if not one.is_outside and not one.side_by_side and not one.problem]


def _pays(scenario: Scenario, compared: Sequence[Candidate], us: Sequence[float]) -> bool:
    """Whether overlap pays with these times."""
    timed = [
        replace(one, simulated_ticks=round(each * TICKS_PER_US), result=None)
        for one, each in zip(compared, us, strict=True)
    ]
    return overlap_pays(scenario, finalists(scenario, by_time(timed)))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Simulates the ``compared`` schedules, all layers, in coarse packets."""

    scenario: Scenario
    compared: tuple[Candidate, ...]
    should_stop: ShouldStop

    def ticks(self, system: System) -> tuple[int, ...] | None:
        """Return their times on ``system``; None if one has none."""
        scenario = replace(self.scenario, system=system)
        found = tuple(coarse_ticks(scenario, one, self.should_stop) for one in self.compared)
        return None if None in found else tuple(each for each in found if each is not None)


def coarse_ticks(scenario: Scenario, candidate: Candidate, should_stop: ShouldStop) -> int | None:
    """Return the time of all layers in coarse packets; None where the schedule does not fit, or does not finish."""
    try:
        result = simulate_layers(
            scenario.system,
            scenario.workload,
            candidate.joint,
            name=scenario.name,
            unit_bytes=UNIT_BYTES,
            most_effort=MOST_EFFORT,
            options=RunOptions(observe=False, loads=False, should_stop=should_stop),
        )
    except (ScheduleError, RunTooLarge):
        return None
    return result.total_ticks if result.outcome is RunOutcome.DONE else None


TOP = 3
"""Schedules that overlap and are simulated at each value."""
DOUBLINGS, STEPS = 5, 4
"""Values that no domain lists: so often doubled and halved, in so many steps from one to the next."""


@dataclass(frozen=True, slots=True)
class ParamAxis:
    """A parameter of a file: its value ``now``, the other ``values`` it may have, and the scenario ``at`` each.

    ``at`` raises ``CompileError`` where a value does not fit.
    """

    name: str
    now: int
    values: tuple[int, ...]
    at: Callable[[int], Scenario]


def values_around(now: int) -> tuple[int, ...]:
    """Return values to try of a parameter whose domain lists none.

    >>> values_around(4096)[:3], values_around(4096)[-2:]
    ((128, 160, 192), (114688, 131072))
    """
    found = {now * (STEPS + step) * 2**double // STEPS for double in range(DOUBLINGS) for step in range(STEPS)}
    found |= {now * (STEPS + step) // STEPS // 2**halve for halve in range(1, DOUBLINGS + 1) for step in range(STEPS)}
    return tuple(sorted({*found, now * 2**DOUBLINGS} - {0}))


def threshold_of_several(
    advice: Advice, axis: ParamAxis, progress: Progress, should_stop: ShouldStop
) -> Threshold | None:
    """Return where overlap begins or ceases to pay; None where nothing overlaps, or no other value fits.

    Raises
    ------
    Cancelled
        If the caller asked to stop.
    """
    usable = _usable(advice)
    overlapping = by_time([one for one in usable if not one.is_serial])[:TOP]
    if not overlapping:
        return None
    compared = (baseline_of(by_time(usable)), *overlapping)
    pays = not recommended_of(advice.scenario, finalists(advice.scenario, advice.candidates)).is_serial
    search = _Search(axis, compared, progress, should_stop, {axis.now: pays})
    flip = search.flip()
    tried = (min(search.verdicts), max(search.verdicts))
    if len(search.verdicts) == 1:
        return None
    if flip is None:
        return Threshold(None, pays, True, tried, axis.name)
    return Threshold(flip[1], search.verdicts[flip[1]], True, flip, axis.name)


@dataclass(slots=True)
class _Search:
    """A search around the value that a file has; ``verdicts`` are whether overlap pays, by value."""

    axis: ParamAxis
    compared: tuple[Candidate, ...]
    progress: Progress
    should_stop: ShouldStop
    verdicts: dict[int, bool] = field(default_factory=dict)
    unfit: set[int] = field(default_factory=set)

    def flip(self) -> tuple[int, int] | None:
        """Return neighbouring values with different verdicts, None if all that were tried agree."""
        pays, now = self.verdicts[self.axis.now], self.axis.now
        fewer = sorted((each for each in self.axis.values if each < now), reverse=True)
        more = sorted(each for each in self.axis.values if each > now)
        found = first_flip(now, _doubling(fewer, now), _doubling(more, now), pays, self._pays_at)
        return None if found is None else self._bisected(*found)

    def _bisected(self, low: int, high: int) -> tuple[int, int]:
        between = [each for each in self.axis.values if low < each < high and each not in self.unfit]
        while between:
            middle = between[len(between) // 2]
            found = self._pays_at(middle)
            if found is self.verdicts[low]:
                low = middle
            elif found is not None:
                high = middle
            between = [each for each in between if low < each < high and each not in self.unfit]
        return low, high

    def _pays_at(self, value: int) -> bool | None:
        """Whether overlap pays at a value; None where it does not fit, or nothing can be simulated there."""
        if value not in self.verdicts and value not in self.unfit:
            self.progress("threshold", len(self.verdicts), 0)
            found = self._judged(value)
            if found is None:
                self.unfit.add(value)
            else:
                self.verdicts[value] = found
        return self.verdicts.get(value)

    def _judged(self, value: int) -> bool | None:
        try:
            scenario = self.axis.at(value)
        except CompileError:
            return None
        baseline, *others = (self._timed(scenario, one) for one in self.compared)
        timed = [one for one in others if one is not None]
        if baseline is None or not timed:
            return None
        return overlap_pays(scenario, finalists(scenario, by_time([baseline, *timed])))

    def _timed(self, scenario: Scenario, candidate: Candidate) -> Candidate | None:
        """The schedule at these sizes; None where it does not fit them."""
        ticks = coarse_ticks(scenario, candidate, self.should_stop)
        if ticks is None:
            return None
        return replace(candidate, result=None, simulated_ticks=ticks, unit_bytes=UNIT_BYTES)


def _doubling(values: Sequence[int], now: int) -> Iterator[int]:
    """Yield values, each about twice or half the one before, and the last."""
    last = now
    for value in values:
        if value >= 2 * last or 2 * value <= last or value == values[-1]:
            yield value
            last = value
