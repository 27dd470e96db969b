"""The value of a parameter at which the answer about several ops flips between overlap and none.

Other values get a short advice: the baseline and the fastest schedules that overlap, simulated in coarse packets. There
is no search for others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import GraphScenario, Progress, ShouldStop
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError
from ...simcore import RunOptions, RunOutcome, RunTooLarge
from ...simcore.simulate_layers import simulate_layers
from ..answer.rule import finalists, overlap_pays, recommended_of
from ..candidates.advice import Advice, Threshold
from ..candidates.candidate import Candidate, baseline_of, by_time
from .several import MOST_EFFORT, UNIT_BYTES

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
    at: Callable[[int], GraphScenario]


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
    usable = [one for one in advice.candidates if not one.is_outside and not one.side_by_side and not one.problem]
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
        for outward in (fewer, more) if pays else (more, fewer):
            last = now
            for value in _doubling(outward, now):
                found = self._pays_at(value)
                if found is not None and found is not pays:
                    return self._bisected(min(last, value), max(last, value))
                last = last if found is None else value
        return None

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

    def _timed(self, scenario: GraphScenario, candidate: Candidate) -> Candidate | None:
        """The schedule at these sizes; None where it does not fit them."""
        try:
            result = simulate_layers(
                scenario.system,
                scenario.graph,
                candidate.joint,
                name=scenario.name,
                unit_bytes=UNIT_BYTES,
                most_effort=MOST_EFFORT,
                options=RunOptions(observe=False, loads=False, should_stop=self.should_stop),
            )
        except (ScheduleError, RunTooLarge):
            return None
        if result.outcome is not RunOutcome.DONE:
            return None
        ticks = result.makespan_ticks
        return replace(candidate, result=None, simulated_ticks=ticks, unit_bytes=UNIT_BYTES)


def _doubling(values: Sequence[int], now: int) -> Iterator[int]:
    """Yield values, each about twice or half the one before, and the last."""
    last = now
    for value in values:
        if value >= 2 * last or 2 * value <= last or value == values[-1]:
            yield value
            last = value
