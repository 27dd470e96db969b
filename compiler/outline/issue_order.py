"""The issue order of the steps of an outline: kernels keep theirs, transfers and sums go where their waits allow."""

from collections.abc import Sequence
from heapq import heappop, heappush

from ..ir import Reduction, Step, TileGroup, Transfer

Move = Transfer | Reduction


def before_kernels(groups: Sequence[TileGroup], moving: Sequence[Move]) -> tuple[Step, ...]:
    """Issue each kernel after the transfers that bring its input."""
    issued: list[Step] = []
    rest = iter(moving)
    known, sent = {step.signal for step in moving if isinstance(step, Transfer)}, set[str]()
    for group in groups:
        while not known.intersection(group.after) <= sent:
            step = next(rest)
            issued.append(step)
            sent.update(_sets(step))
        issued.append(group)
    return (*issued, *rest)


def after_kernels(groups: Sequence[TileGroup], moving: Sequence[Move], *, sums_behind: bool) -> tuple[Step, ...]:
    """Issue each transfer and sum as soon as all its waits are issued; with ``sums_behind`` sums follow all kernels."""
    queue = _Queue(moving, [group.name for group in groups], sums_behind)
    issued: list[Step] = []
    for group in groups:
        issued.append(group)
        issued += queue.released((group.name,))
    return (*issued, *queue.rest())


class _Queue:
    """Transfers and sums that wait; those that are released keep their order."""

    def __init__(self, moving: Sequence[Move], kernels: Sequence[str], sums_behind: bool) -> None:
        self._moving = moving
        self._missing: list[int] = []
        self._waiting: dict[str, list[int]] = {}
        # All ranks issue alike: a signal stands for the own transfer that sets it.
        known = {*kernels, *(name for step in moving for name in _sets(step))}
        for index, step in enumerate(moving):
            behind = {kernels[-1]} if sums_behind and isinstance(step, Reduction) else set[str]()
            names = known.intersection(step.after) | behind
            if not names:  # waits for other ranks only: keep the order of the algorithm
                names = {moving[index - 1].name} if index else {kernels[0]}
            self._missing.append(len(names))
            for name in names:
                self._waiting.setdefault(name, []).append(index)

    def released(self, names: Sequence[str]) -> list[Move]:
        """Return the steps that may be issued after ``names``, and those that these release in turn."""
        released_steps: list[Move] = []
        ready: list[int] = []
        self._release(names, ready)
        while ready:
            step = self._moving[heappop(ready)]
            released_steps.append(step)
            self._release(_sets(step), ready)
        return released_steps

    def rest(self) -> list[Move]:
        """Return the steps that were never released; the check of the plan reports them."""
        return [step for index, step in enumerate(self._moving) if self._missing[index]]

    def _release(self, names: Sequence[str], ready: list[int]) -> None:
        for name in names:
            for index in self._waiting.pop(name, ()):
                self._missing[index] -= 1
                if not self._missing[index]:
                    heappush(ready, index)


def _sets(step: Move) -> tuple[str, ...]:
    """Return the names that other steps may wait for: of the step, and of its signal."""
    return (step.name, step.signal) if isinstance(step, Transfer) else (step.name,)
