"""Steps of all ranks as tasks: what each waits for, by name, and the queue that takes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..compiler.ir import (
    Direction,
    Kernels,
    Reach,
    Scenario,
    Schedule,
    Step,
    TileGroup,
    Transfer,
    kernels_of,
    queued_behind,
    seen_from,
    sums_of_all,
)

Mark = tuple[int, str]
"""Something that happens at a rank: a step there is done, or a signal has landed."""
Queue = tuple[int, str]
"""A queue of a rank, by a name for people."""
ENGINE_THREADS = 4
"""Most threads for the transfers of a rank that are in no lane."""


@dataclass(slots=True, eq=False)
class Task:
    """One step at one rank.

    ``waits`` are the marks that must happen first, ``behind`` the step before it in its queue, if the queue keeps the
    order. ``known`` has the bit ``number`` of each task that is certain to be done before this one begins; it is filled
    in when the task begins.
    """

    number: int
    rank: int
    step: Step
    queue: Queue
    waits: tuple[Mark, ...]
    behind: str = ""
    known: int = 0

    def follows(self, number: int) -> bool:
        """Whether the task of that number is certain to be done before this one begins."""
        return bool(self.known >> number & 1)

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.step.name}"


def tasks_of(scenario: Scenario, schedule: Schedule) -> tuple[Task, ...]:
    """Return the tasks of all ranks, each rank's in issue order."""
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT
    steps = [schedule.steps_of(rank) for rank in range(scenario.num_ranks)]
    tasks: list[Task] = []
    for rank, mine in enumerate(steps):
        behind = _behind(mine, persistent)
        flags = _flags(steps, rank) if schedule.engine.by_tiles else {}
        for step in mine:
            queued = behind.get(step.name, ())
            names = dict.fromkeys((*step.after, *queued))
            waits = (*((rank, name) for name in names), *flags.get(step.name, ()))
            last = next(iter(queued), "")
            tasks.append(Task(len(tasks), rank, step, (rank, _queue_of(step, persistent)), waits, last))
    return tuple(tasks)


def landing_ranks(step: Transfer, issuer: int, num_ranks: int) -> tuple[int, ...]:
    """Return the ranks at which a transfer sets its signal; a put to all sets it at its own rank as well."""
    if step.direction is Direction.GET:
        return (issuer,)
    return tuple(range(num_ranks)) if step.reach is Reach.ALL else ((issuer + step.peer) % num_ranks,)


def source_ranks(step: Transfer, issuer: int, num_ranks: int) -> tuple[int, ...]:
    """Return the ranks that a transfer reads from; a switch sums what a get from all reads."""
    if step.direction is Direction.PUT:
        return (issuer,)
    return tuple(range(num_ranks)) if step.reach is Reach.ALL else ((issuer + step.peer) % num_ranks,)


def marks_of(task: Task, num_ranks: int) -> Iterator[Mark]:
    """Yield what happens by the end of a task."""
    yield task.rank, task.step.name
    if isinstance(task.step, Transfer):
        yield from ((rank, task.step.signal) for rank in landing_ranks(task.step, task.rank, num_ranks))


def _behind(steps: tuple[Step, ...], persistent: bool) -> dict[str, list[str]]:
    """Return for each step those before it in its queue; groups of a persistent kernel are taken one by one here."""
    behind: dict[str, list[str]] = {}
    for name, before in queued_behind(steps, persistent=persistent):
        behind.setdefault(name, []).append(before)
    groups = [step.name for step in steps if isinstance(step, TileGroup)] if persistent else []
    for before, name in pairwise(groups):
        behind.setdefault(name, []).append(before)
    return behind


def _flags(steps: list[tuple[Step, ...]], rank: int) -> dict[str, list[Mark]]:
    """Return the kernels of all ranks whose tiles say by flags that what a switch sums is there."""
    n = len(steps)
    return {
        step.name: [
            ((rank + offset) % n, group.name)
            for offset in range(n)
            for group in kernels_of(seen_from(step.region, offset, n), steps[(rank + offset) % n])
        ]
        for step in sums_of_all(steps[rank])
    }


def _queue_of(step: Step, persistent: bool) -> str:
    if isinstance(step, Transfer):
        return "engines" if step.lane is None else f"lane {step.lane}"
    return "persistent kernel" if persistent and isinstance(step, TileGroup) else f"stream {step.stream}"
