"""What is wrong after a run, in sentences: steps that wait, and what differs from the serial computation."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..compiler.ir import Transfer
from .execute import Executor
from .problem import Expected, Problem
from .report import MAX_NAMED
from .tasks import MEMORY, Mark, Task, marks_of

Stuck = tuple[Task, tuple[Mark, ...]]
"""A task that waits, and what for."""


def stuck_sentences(stuck: Iterable[Stuck], tasks: Sequence[Task], num_ranks: int) -> list[str]:
    """Name the steps that wait for each other in turn, else all that wait, and what for; ``tasks`` are those of all."""
    setters: dict[str, list[Task]] = {}
    names = {(task.rank, task.step.name) for task in tasks}
    for task in tasks:
        if isinstance(task.step, Transfer):
            setters.setdefault(task.step.signal, []).append(task)
    circle = circle_in([one for one in stuck if one[0].queue[1] != MEMORY], num_ranks)  # what frees only follows
    return [
        f"{task} waits for {' and '.join(_mark_text(task, mark, names, setters) for mark in marks)}"
        for task, marks in circle
    ]


def circle_in(stuck: Sequence[Stuck], num_ranks: int) -> Sequence[Stuck]:
    """Return tasks that wait for each other in turn, each with what it waits for in the next; else all of ``stuck``."""
    waiting = {mark: one for one in stuck for mark in marks_of(one[0], num_ranks)}
    path: list[Stuck] = []
    task, marks = stuck[0]
    while all(task is not before for before, _ in path):
        mark = next((mark for mark in marks if mark in waiting), None)
        if mark is None:
            return stuck
        path.append((task, (mark,)))
        task, marks = waiting[mark]
    return path[next(place for place, (before, _) in enumerate(path) if before is task) :]


def _mark_text(task: Task, mark: Mark, names: set[Mark], setters: dict[str, list[Task]]) -> str:
    rank, name = mark
    if mark in names:
        place = f" of rank {rank}" if rank != task.rank else ""
        queue = f", before it in {task.queue[1]}" if name == task.behind and name not in task.step.after else ""
        return f"{name}{place}{queue}"
    if name not in setters:
        return f"{name}, which nothing sets"
    return name


def differences(executor: Executor, problem: Problem, tasks: Sequence[Task], ranks: Sequence[int]) -> Iterator[str]:
    """Yield what is not as it must be at ``ranks``, and parts of sums that nobody has taken."""
    yield from _differences(executor, problem, tasks, ranks)
    yield from _never_summed(problem, ranks)


def _differences(executor: Executor, problem: Problem, tasks: Sequence[Task], ranks: Sequence[int]) -> Iterator[str]:
    for expected in (each for rank in ranks for each in problem.expected(rank)):
        differs = expected.find() != expected.wanted
        if differs.any():
            yield _difference(executor, expected, np.argwhere(differs)[0], tasks)


def _never_summed(problem: Problem, ranks: Sequence[int]) -> Iterator[str]:
    for rank in ranks:
        memory = problem.memories[rank]
        for part in memory.parts:
            if part.left.any():
                yield f"{part.task} brings {memory.result.where(part.place, part.left)}, which rank {rank} never sums"


def _difference(executor: Executor, expected: Expected, where: np.ndarray, tasks: Sequence[Task]) -> str:
    row, col = (int(index) for index in where)
    rows, cols = expected.buffer.interval(row, col)
    found, wanted, name = expected.find()[row, col], expected.wanted[row, col], expected.buffer.name
    writers = [
        str(task) if task.rank != expected.rank else task.step.name
        for task in tasks
        for rank, tensor, (block, in_rows, in_cols) in executor.targets(task)
        if (rank, tensor, block) == (expected.rank, name, expected.block)
        and in_rows.start <= row < in_rows.stop
        and in_cols.start <= col < in_cols.stop
    ]
    by = f"written by {', '.join(writers[-MAX_NAMED:])}" if writers else "which no step writes"
    what = "nothing" if np.isnan(found) else f"{found:g} in place of {wanted:g}"
    return f"rank {expected.rank} has {what} in rows {rows}, columns {cols} of block {expected.block} of {name}, {by}"
