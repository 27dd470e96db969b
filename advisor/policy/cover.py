"""Few schedules for many sizes: neighbours share one where it loses next to nothing at any of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...compiler.ir import Choice
from ...compiler.templates import BASELINE
from ..candidates.advice import Advice

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

    def times_us(self) -> Mapping[Choice, float]:
        """Return the times of schedules that other sizes may have too, the fastest first."""
        timed = [one for one in self.advice.candidates if one.choice is not None and not one.choice.parts]
        return {one.choice: one.best_us for one in sorted(timed, key=lambda one: one.best_us) if one.choice}

    @property
    def fastest_us(self) -> float:
        """The time of the fastest schedule; simulated ones alone count where what is recommended is."""
        candidates, recommended = self.advice.candidates, self.advice.recommended
        return min(one.best_us for one in candidates if one.is_estimate is recommended.is_estimate)

    def losses(self) -> Mapping[Choice, float]:
        """Return the relative loss of each schedule of the recommended kind over the recommended one."""
        return {
            choice: us / self.advice.recommended.best_us - 1
            for choice, us in self.times_us().items()
            if self.advice.scenario.is_algorithm_choice or (choice.template == BASELINE.name) is not self.overlaps
        }


@dataclass(frozen=True, slots=True)
class Stretch:
    """One schedule for neighbouring sizes, and its largest loss over the recommended ones there."""

    choice: Choice
    points: tuple[AdvisedSize, ...]
    loss: float


def cover(points: Sequence[AdvisedSize], tolerance: float = TOLERANCE) -> tuple[Stretch, ...]:
    """Return the fewest stretches that cover ``points``, which are in the order of their sizes.

    Points at which overlap pays and those at which it does not share none.
    """
    stretches: list[Stretch] = []
    open_points: list[AdvisedSize] = []
    shared: dict[Choice, float] = {}
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


def _closed(points: Sequence[AdvisedSize], shared: Mapping[Choice, float]) -> Stretch:
    """Of the choices that do, the one that is recommended most often: advice prefers simple ones among ties."""
    often = Counter(point.advice.recommended.choice for point in points)
    choice = min(shared, key=lambda each: (-often[each], shared[each], str(each)))
    return Stretch(choice, tuple(points), max(0.0, shared[choice]))
