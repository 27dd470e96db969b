"""The axis of sizes, and few schedules for many of them: neighbours share one that loses next to nothing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from ...compiler.codes import Code
from ...compiler.ir import TICKS_PER_US, OpCase, OpChoice, OpShape, Pattern, Scenario
from ...compiler.planning.build import reject_choice
from ...compiler.request.request import COLLECTIVE_PATTERNS, INDEPENDENT_PATTERNS, Request, RequestError
from ...compiler.request.scenario import scenario_of
from ...compiler.templates import BASELINE
from ..candidates.advice import Advice
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import shortlist_unit
from ..implementations.predict import MIN_GAIN
from ..sensitivity.threshold import num_rows, with_moved_rows, with_rows
from ..work.workers import SimulationJob, run_job

TOLERANCE = 0.02
"""Loss that a schedule may have at a size so that fewer schedules do for all."""


@dataclass(frozen=True, slots=True)
class AdvisedSize:
    """The advice for one size."""

    size: int
    advice: Advice

    @property
    def overlaps(self) -> bool:
        """Whether another schedule than a serial one is recommended; for a lone collective always."""
        return self.advice.scenario.is_algorithm_choice or not self.advice.recommended.is_serial

    def times_us(self) -> Mapping[OpChoice, float]:
        """Return the times of schedules that other sizes may have too, the fastest first."""
        timed = [one for one in self.advice.candidates if one.choice is not None and not one.choice.parts]
        return {one.choice: one.best_us for one in sorted(timed, key=lambda one: one.best_us) if one.choice}

    @property
    def fastest_us(self) -> float:
        """The time of the fastest schedule; simulated ones alone count where what is recommended is."""
        candidates, recommended = self.advice.candidates, self.advice.recommended
        return min(one.best_us for one in candidates if one.is_estimate is recommended.is_estimate)

    def losses(self) -> Mapping[OpChoice, float]:
        """Return the relative loss of each schedule of the recommended kind over the recommended one."""
        return {
            choice: us / self.advice.recommended.best_us - 1
            for choice, us in self.times_us().items()
            if self.advice.scenario.is_algorithm_choice or (choice.template == BASELINE.name) is not self.overlaps
        }


@dataclass(frozen=True, slots=True)
class Stretch:
    """One schedule for neighbouring sizes, and its largest loss over the recommended ones there."""

    choice: OpChoice
    points: tuple[AdvisedSize, ...]
    loss: float


def cover(points: Sequence[AdvisedSize], tolerance: float = TOLERANCE) -> tuple[Stretch, ...]:
    """Return the fewest stretches that cover ``points``, which are in the order of their sizes.

    Points at which overlap pays and those at which it does not share none.
    """
    stretches: list[Stretch] = []
    open_points: list[AdvisedSize] = []
    shared: dict[OpChoice, float] = {}
    for point in points:
        losses = {choice: loss for choice, loss in point.losses().items() if loss <= tolerance}
        if not losses:  # a plan written out is recommended: the nearest choice stands for it
            losses = dict([min(point.losses().items(), key=lambda each: each[1])])
        both = {choice: max(loss, losses[choice]) for choice, loss in shared.items() if choice in losses}
        if open_points and both and open_points[-1].overlaps is point.overlaps:
            open_points.append(point)
            shared = both
            continue
        if open_points:
            stretches.append(_closed(open_points, shared))
        open_points, shared = [point], losses
    return (*stretches, _closed(open_points, shared)) if open_points else ()


def _closed(points: Sequence[AdvisedSize], shared: Mapping[OpChoice, float]) -> Stretch:
    """Of the choices that do, the one that is recommended most often: advice prefers simple ones among ties."""
    often = Counter(point.advice.recommended.choice for point in points)
    choice = min(shared, key=lambda each: (-often[each], shared[each], str(each)))
    return Stretch(choice, tuple(points), max(0.0, shared[choice]))


ROWS, BYTES = "m", "num_bytes"
_HINT = "tables are for a GEMM with a collective of as many rows, and for even collectives alone"


@dataclass(frozen=True, slots=True)
class SizeAxis:
    """Scenarios that differ in one size: ``at`` returns that of a size, a multiple of ``grain``.

    ``field`` is what a request calls the size.
    """

    field: str
    grain: int
    at: Callable[[int], OpCase]


def axis_of(question: Request | Scenario) -> SizeAxis:
    """Return the axis of a request or a scenario.

    Raises
    ------
    RequestError
        If its sizes cannot be changed alone.
    """
    if isinstance(question, Request):
        return axis_of_request(question)
    axis = None if question.only_case is None else axis_of_scenario(question.case)
    if axis is None:
        label = question.title if question.only_case is None else question.case.shape.label
        raise RequestError(Code.MGS520, "pattern", f"{label} has no size that varies alone", _HINT)
    return axis


def check_sizes(axis: SizeAxis, sizes: Sequence[int]) -> None:
    """Check that there are sizes, and that they are multiples of the grain.

    Raises
    ------
    RequestError
        If not.
    """
    if not sizes:
        raise RequestError(Code.MGS306, axis.field, "no sizes are given")
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size <= 0 or size % axis.grain:
            hint = f"multiples of {axis.grain}"
            raise RequestError(Code.MGS304, axis.field, f"{size!r:.40} does not divide among the ranks", hint)


def axis_of_request(request: Request) -> SizeAxis:
    """Return the axis of ``request``: its bytes if it has no GEMM, else its m.

    Raises
    ------
    RequestError
        If it has both, or no collective.
    """
    if request.kind in (*INDEPENDENT_PATTERNS, Pattern.GEMM):
        raise RequestError(Code.MGS520, "pattern", f"{request.pattern} has no size that varies alone", _HINT)
    ranks = scenario_of(request).num_ranks
    if request.kind in COLLECTIVE_PATTERNS:
        moved = scenario_of(request).case.shape.moved
        assert moved is not None, "a collective moves a tensor"
        step = ranks * moved.dtype.bytes_of(moved.dtype.block)
        return SizeAxis(BYTES, step, lambda size: scenario_of(replace(request, num_bytes=size)).case)
    return SizeAxis(ROWS, ranks, lambda size: scenario_of(replace(request, m=size)).case)


def axis_of_scenario(scenario: OpCase) -> SizeAxis | None:
    """Return the axis of the scenario of a file; None where its sizes cannot be changed alone."""
    if num_rows(scenario.shape) is not None:
        return SizeAxis(ROWS, scenario.num_ranks, lambda size: with_rows(scenario, size))
    moved = scenario.shape.moved
    if not scenario.is_algorithm_choice or moved is None or scenario.shape.uneven:
        return None
    row_bytes = moved.dtype.bytes_of(moved.cols)
    return SizeAxis(BYTES, scenario.num_ranks * row_bytes, lambda size: with_moved_rows(scenario, size // row_bytes))


def size_of(shape: OpShape, field: str) -> int | None:
    """Return the size of a workload on the axis of ``field``, None if it has none."""
    if field == ROWS:
        return None if shape.gemm is None else shape.gemm.m
    return None if shape.moved is None else shape.moved.num_bytes


PRECISION = 1 / 16
"""Share of a size to which a flip is found."""


def multiple_of(axis: SizeAxis, choice: OpChoice, size: int) -> int:
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
    return flip(low, high, step, lambda size: _gives_way(axis.at(size), left.choice, right.choice, simulated))


def flip(low: int, high: int, step: int, gives_way: Callable[[int], bool]) -> int:
    """Return the first size, of those that ``step`` divides and to ``PRECISION``, at which one schedule gives way.

    At ``low`` it does not, and at ``high`` it does.
    """
    while high - low > max(step, PRECISION * low):
        middle = (low + high) // 2 // step * step
        if not low < middle < high:
            break
        if gives_way(middle):
            high = middle
        else:
            low = middle
    return high


def time_us(point: AdvisedSize, choice: OpChoice, *, simulated: bool) -> float | None:
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


def _gives_way(scenario: OpCase, left: OpChoice, right: OpChoice, simulated: bool) -> bool:
    times_us = _times_us(scenario, (left, right), simulated)
    lead = 1 + max(MIN_GAIN, scenario.resolution)
    of_left, of_right = (lead if choice.template == BASELINE.name else 1.0 for choice in (left, right))
    return times_us[right] * of_left < times_us[left] * of_right


def _times_us(scenario: OpCase, choices: tuple[OpChoice, ...], simulated: bool) -> Mapping[OpChoice, float]:
    found = {one.choice: one for one in predicted_candidates(scenario, choices)}
    if not simulated:
        return {choice: found[choice].best_us for choice in choices}
    schedules = {choice: found[choice].schedule for choice in choices}
    results = {
        choice: run_job(SimulationJob(scenario, schedule, shortlist_unit(scenario, schedule)))
        for choice, schedule in schedules.items()
    }
    return {choice: result.makespan_ticks / TICKS_PER_US for choice, result in results.items()}
