"""In which order the steps of an outline are issued: kernels in theirs, transfers and sums where they belong."""

from collections.abc import Sequence
from heapq import heappop, heappush

from ..ir import Reduction, Step, TileGroup, Transfer

Move = Transfer | Reduction


def before_kernels(groups: Sequence[TileGroup], moving: Sequence[Move]) -> tuple[Step, ...]:
    """Each kernel behind the transfers that bring what it reads."""
    found: list[Step] = []
    rest = iter(moving)
    known, sent = {step.signal for step in moving if isinstance(step, Transfer)}, set[str]()
    for group in groups:
        while not known.intersection(group.after) <= sent:
            step = next(rest)
            found.append(step)
            sent.update(_sets(step))
        found.append(group)
    return (*found, *rest)


def after_kernels(groups: Sequence[TileGroup], moving: Sequence[Move], *, sums_behind: bool) -> tuple[Step, ...]:
    """Each transfer and each sum as soon as all that it waits for is issued; sums behind all kernels if asked."""
    queue = _Queue(moving, [group.name for group in groups], sums_behind)
    found: list[Step] = []
    for group in groups:
        found.append(group)
        found += queue.released((group.name,))
    return (*found, *queue.rest())


class _Queue:
    """Transfers and sums that wait; those that may go do so in their order."""

    def __init__(self, moving: Sequence[Move], kernels: Sequence[str], sums_behind: bool) -> None:
        self._moving = moving
        self._missing: list[int] = []
        self._waiting: dict[str, list[int]] = {}
        # A signal stands for the own transfer of that name: all ranks issue alike.
        known = {*kernels, *(name for step in moving for name in _sets(step))}
        for index, step in enumerate(moving):
            behind = {kernels[-1]} if sums_behind and isinstance(step, Reduction) else set[str]()
            names = known.intersection(step.after) | behind
            if not names:  # waits for others alone, in the order of the algorithm
                names = {moving[index - 1].name} if index else {kernels[0]}
            self._missing.append(len(names))
            for name in names:
                self._waiting.setdefault(name, []).append(index)

    def released(self, names: Sequence[str]) -> list[Move]:
        """What may go now that ``names`` are issued, and what may go then."""
        found: list[Move] = []
        ready: list[int] = []
        self._release(names, ready)
        while ready:
            step = self._moving[heappop(ready)]
            found.append(step)
            self._release(_sets(step), ready)
        return found

    def rest(self) -> list[Move]:
        """What never could go, which is wrong and is said where the plan is checked."""
        return [step for index, step in enumerate(self._moving) if self._missing[index]]

    def _release(self, names: Sequence[str], ready: list[int]) -> None:
        for name in names:
            for index in self._waiting.pop(name, ()):
                self._missing[index] -= 1
                if not self._missing[index]:
                    heappush(ready, index)


def _sets(step: Move) -> tuple[str, ...]:
    """What others may wait for once a step is issued."""
    return (step.name, step.signal) if isinstance(step, Transfer) else (step.name,)
