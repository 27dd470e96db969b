"""What other hardware numbers, and other routing, would change of an answer, as data."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.ir import percentile

# Share of its time by which the answer must fall further behind before it no longer holds: as for another answer at
# once, less is no reason to choose a schedule.
MAX_LOSS = 0.01
# Share of time by which the largest loss must shrink before another schedule is called more robust.
MIN_ROBUST_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class ChangedNumber:
    """The schedules with one hardware number, ``paths`` in the language, multiplied by ``factor``.

    ``us`` are their times, simulated there where ``simulated`` says so, else the known time times the change of the
    estimate. ``overlap_pays`` is the verdict with these times.
    """

    name: str
    paths: tuple[str, ...]
    factor: float
    us: tuple[float, ...]
    simulated: tuple[bool, ...]
    overlap_pays: bool

    @property
    def fastest(self) -> int:
        """The number of the fastest schedule."""
        return self.us.index(min(self.us))

    def loss(self, schedule: int = 0) -> float:
        """Return the share by which a schedule takes longer than the fastest."""
        return _loss(self.us, schedule)


@dataclass(frozen=True, slots=True)
class RobustChoice:
    """A schedule that never loses as much as the answer may: ``max_loss`` against ``answer_max_loss``.

    ``worst`` and ``answer_worst`` are the changes where they lose so much, None for the numbers as they are. ``price``
    is the share by which it takes longer than the answer with the numbers as they are.
    """

    schedule: int
    max_loss: float
    worst: ChangedNumber | None
    answer_max_loss: float
    answer_worst: ChangedNumber
    price: float


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Times ``us`` of some ``schedules``, the answer first, and with each hardware number changed.

    ``simulated`` is whether changes were simulated, as far as the number of runs allowed; else all
    times of ``changes`` are estimates. ``changes`` are of all numbers, or ``of_most_felt`` alone.
    """

    schedules: tuple[str, ...]
    us: tuple[float, ...]
    overlap_pays: bool
    changes: tuple[ChangedNumber, ...]
    simulated: bool
    of_most_felt: bool = False

    @property
    def loss(self) -> float:
        """The share by which the answer takes longer than the fastest: 0, or what simplicity costs."""
        return _loss(self.us, 0)

    def added_loss(self, change: ChangedNumber) -> float:
        """Return how much more the answer loses with ``change`` than without."""
        return change.loss() - self.loss

    @property
    def exceptions(self) -> tuple[ChangedNumber, ...]:
        """The changes with which the answer does not hold, the greatest loss first."""
        others = (change for change in self.changes if self.added_loss(change) > MAX_LOSS)
        return tuple(sorted(others, key=self.added_loss, reverse=True))

    @property
    def flips(self) -> tuple[ChangedNumber, ...]:
        """The changes with which overlap pays if it does not, or ceases to."""
        return tuple(change for change in self.changes if change.overlap_pays is not self.overlap_pays)

    @property
    def most_felt(self) -> ChangedNumber | None:
        """The change by 10 % with which the time of the answer changes most."""
        small = (change for change in self.changes if abs(change.factor - 1) < 0.5)
        return max(small, key=lambda change: abs(change.us[0] / self.us[0] - 1), default=None)

    @property
    def robust(self) -> RobustChoice | None:
        """The schedule whose largest loss is smallest, if that is clearly less than what changes cost the answer."""
        worst = [self._worst(schedule) for schedule in range(len(self.schedules))]
        losses = [_loss(self.us, idx) if change is None else change.loss(idx) for idx, change in enumerate(worst)]
        best, answer_worst = losses.index(min(losses)), worst[0]
        if answer_worst is None or losses[0] - max(losses[best], self.loss) < MIN_ROBUST_GAIN:
            return None
        price = self.us[best] / self.us[0] - 1
        return RobustChoice(best, losses[best], worst[best], losses[0], answer_worst, price)

    def _worst(self, schedule: int) -> ChangedNumber | None:
        """Return the change with which a schedule loses most, None if it loses no less without."""
        worst = max(self.changes, key=lambda change: change.loss(schedule), default=None)
        return worst if worst is not None and worst.loss(schedule) > _loss(self.us, schedule) else None


PERCENTILES = (5, 50, 95, 99)


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """Return the least and largest value and the percentiles."""
    return {"min": min(values), **{f"p{p}": percentile(values, p) for p in PERCENTILES}, "max": max(values)}


@dataclass(frozen=True, slots=True)
class RoutingDraws:
    """Times ``us`` of some ``schedules``, the answer first, with experts of rows drawn under each of ``seeds``.

    ``us`` has those of a schedule side by side. A seed under which a schedule does not fit is not among them.
    """

    seeds: tuple[int, ...]
    schedules: tuple[str, ...]
    us: tuple[tuple[float, ...], ...]
    loss: float

    @property
    def stays(self) -> int:
        """In how many draws the answer loses no more to the fastest than ``loss``, as under the routing asked about."""
        return sum(_loss(each, 0) - self.loss <= MAX_LOSS for each in zip(*self.us, strict=True))


def _loss(us: Sequence[float], schedule: int) -> float:
    return us[schedule] / min(us) - 1
