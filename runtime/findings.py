"""What is wrong after a run, in sentences: steps that wait, and what differs from the serial computation."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from ..compiler.ir import Transfer
from .board import Board
from .execute import Executor
from .memory import Fault
from .problem import Expected, Problem
from .report import MAX_NAMED, Outcome
from .tasks import Mark, Task


def found(
    board: Board, executor: Executor, problem: Problem, tasks: Sequence[Task], ranks: Sequence[int]
) -> tuple[Outcome, list[str]]:
    """Return what became of a run at ``ranks``, with a sentence for each thing that is wrong there, at most a few more
    than are shown.

    An error that says nothing of the plan is raised.
    """
    outcome, sentences = how_it_ended(board, tasks)
    if outcome is not Outcome.EXACT:
        return outcome, sentences
    sentences = list(islice(differences(executor, problem, tasks, ranks), MAX_NAMED + 1))
    return Outcome.WRONG if sentences else Outcome.EXACT, sentences


def how_it_ended(board: Board, tasks: Sequence[Task]) -> tuple[Outcome, list[str]]:
    """Return FAULT, DEADLOCK or, whatever the numbers are, EXACT.

    An error that says nothing of the plan is raised.
    """
    if isinstance(board.error, Fault):
        return Outcome.FAULT, [str(board.error)]
    if board.error is not None:
        raise board.error
    if board.stuck:
        return Outcome.DEADLOCK, list(waiting_sentences(board.stuck, tasks))
    return Outcome.EXACT, []


def waiting_sentences(stuck: Iterable[tuple[Task, tuple[Mark, ...]]], tasks: Sequence[Task]) -> Iterator[str]:
    """Name the steps that wait and what for."""
    setters: dict[str, list[Task]] = {}
    names = {(task.rank, task.step.name) for task in tasks}
    for task in tasks:
        if isinstance(task.step, Transfer):
            setters.setdefault(task.step.signal, []).append(task)
    for task, marks in stuck:
        yield f"{task} waits for {' and '.join(_mark_text(task, mark, names, setters) for mark in marks)}"


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
    for expected in problem.expected(ranks):
        differs = expected.found != expected.wanted
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
    found, wanted, name = expected.found[row, col], expected.wanted[row, col], expected.buffer.name
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
