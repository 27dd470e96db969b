"""Where one schedule gives way to the next, found between two sizes."""

from collections.abc import Mapping
from math import lcm

from ...compiler.ir import TICKS_PER_US, Choice, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.templates import BASELINE
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import shortlist_unit
from ..implementations.promise import MIN_GAIN
from ..workers import SimulationJob, run_job
from .axis import SizeAxis
from .cover import AdvisedSize, Stretch

PRECISION = 1 / 16
"""Share of a size to which a flip is found."""


def multiple_of(axis: SizeAxis, choice: Choice, size: int) -> int:
    """Return a number whose multiples, near ``size``, are sizes that ``choice`` can be built for."""
    for multiple in (axis.grain, lcm(axis.grain, choice.chunks), axis.grain * choice.chunks):
        first = -(-size // multiple)
        if all(reject_choice(axis.at(multiple * (first + idx)), choice) is None for idx in range(3)):
            return multiple
    return size  # only this size is known to do


def first_of_next(axis: SizeAxis, left: Stretch, right: Stretch, *, simulated: bool) -> int:
    """Return the first size from which the schedule of ``right`` is taken.

    An overlapping schedule must gain as much over a serial one as advice asks for.
    """
    low, high = left.points[-1].size, right.points[0].size
    step = lcm(*(multiple_of(axis, each.choice, low) for each in (left, right)))
    while high - low > max(step, PRECISION * low):
        middle = (low + high) // 2 // step * step
        if not low < middle < high:
            break
        if _gives_way(axis.at(middle), left.choice, right.choice, simulated):
            high = middle
        else:
            low = middle
    return high


def time_us(point: AdvisedSize, choice: Choice, *, simulated: bool) -> float | None:
    """Return the time of ``choice`` at a size, None where it cannot be cut for it.

    It is ``simulated`` if that is asked and the advice left it out.
    """
    scenario = point.advice.case
    found = next((one for one in point.advice.candidates if one.choice == choice), None)
    if found is not None and not (simulated and found.is_estimate):
        return found.best_us
    if reject_choice(scenario, choice) is not None:
        return None
    return _times_us(scenario, (choice,), simulated)[choice]


def _gives_way(scenario: Scenario, left: Choice, right: Choice, simulated: bool) -> bool:
    times_us = _times_us(scenario, (left, right), simulated)
    lead = 1 + max(MIN_GAIN, scenario.resolution)
    of_left, of_right = (lead if choice.template == BASELINE.name else 1.0 for choice in (left, right))
    return times_us[right] * of_left < times_us[left] * of_right


def _times_us(scenario: Scenario, choices: tuple[Choice, ...], simulated: bool) -> Mapping[Choice, float]:
    found = {one.choice: one for one in predicted_candidates(scenario, choices)}
    if not simulated:
        return {choice: found[choice].best_us for choice in choices}
    schedules = {choice: found[choice].schedule for choice in choices}
    results = {
        choice: run_job(SimulationJob(scenario, schedule, shortlist_unit(scenario, schedule)))
        for choice, schedule in schedules.items()
    }
    return {choice: result.makespan_ticks / TICKS_PER_US for choice, result in results.items()}
