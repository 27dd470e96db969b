"""A schedule carried out with real data: a thread for each queue of each rank, and what became of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Thread

from ..compiler.ir import Reduction, Rejection, Scenario, Schedule, TileGroup, Transfer
from .axes import Layout
from .board import Board, RunOver
from .execute import Executor
from .findings import waiting_sentences, wrong_sentences
from .hold_policy import HoldPolicy, Moment
from .memory import Fault
from .problem import Problem
from .refusals import reject_run
from .tasks import ENGINE_THREADS, Queue, Task, tasks_of

DETAIL = 2
"""Rows and columns that stand for an interval between cuts: two, so that their order shows too."""


class Outcome(Enum):
    """EXACT: every rank has what the serial computation gives. The others name what is wrong."""

    EXACT = "exact"
    WRONG = "wrong result"
    FAULT = "wrong step"
    DEADLOCK = "deadlock"


@dataclass(frozen=True, slots=True)
class SeedRun:
    """What became of the run with ``seed``, with a sentence for each thing that is wrong."""

    seed: int
    outcome: Outcome
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """A schedule carried out: steps of all ranks together, and a run for each seed up to the first that fails."""

    schedule: str
    num_ranks: int
    copies: int
    kernels: int
    sums: int
    runs: tuple[SeedRun, ...]

    @property
    def exact(self) -> bool:
        """Whether every run was exact."""
        return all(run.outcome is Outcome.EXACT for run in self.runs)


class RunRefused(ValueError):
    """A schedule that is not carried out here, and why."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection)
        self.rejection = rejection


def carry_out(
    scenario: Scenario, schedule: Schedule, seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> RunReport:
    """Carry ``schedule`` out with real data, once for each of ``seeds``, until a run fails.

    Of each interval between neighbouring cuts of the plan ``detail`` rows and columns are kept, None: all of them.

    Raises
    ------
    RunRefused
        If it cannot be carried out here.
    """
    unfit = reject_run(scenario, schedule)
    if unfit is not None:
        raise RunRefused(unfit)
    layout = Layout.of(scenario, [schedule.steps_of(rank) for rank in range(scenario.num_ranks)], detail)
    runs: list[SeedRun] = []
    for seed in seeds:
        runs.append(_run(scenario, schedule, layout, seed))
        if runs[-1].outcome is not Outcome.EXACT:
            break
    steps = [step for rank in range(scenario.num_ranks) for step in schedule.steps_of(rank)]
    copies, kernels, sums = (sum(isinstance(step, kind) for step in steps) for kind in (Transfer, TileGroup, Reduction))
    return RunReport(schedule.expression, scenario.num_ranks, copies, kernels, sums, tuple(runs))


def _run(scenario: Scenario, schedule: Schedule, layout: Layout, seed: int) -> SeedRun:
    tasks = tasks_of(scenario, schedule)
    threads = _threads(schedule, tasks)
    board, problem = Board(tasks, scenario.num_ranks, threads, seed), Problem(scenario, layout, tasks, seed)
    policy = HoldPolicy(seed)

    def pause(task: Task) -> None:
        if policy.holds(task, Moment.END):
            board.hold(task)

    def landed(rank: int, task: Task) -> None:
        assert isinstance(task.step, Transfer)
        board.reach((rank, task.step.signal), task)

    executor = Executor(problem, tasks, pause, landed)

    def work(queue: Queue) -> None:
        try:
            while True:
                task = board.take(queue)
                if policy.holds(task, Moment.BEGIN):
                    board.hold(task)
                executor.carry_out(task)
                board.reach((task.rank, task.step.name), task)
                board.finish(task)
        except RunOver:
            return
        except BaseException as error:
            board.stop(error)

    _work_through(
        board, [Thread(target=work, args=(queue,), daemon=True) for queue, n in threads.items() for _ in range(n)]
    )
    if isinstance(board.error, Fault):
        return SeedRun(seed, Outcome.FAULT, (str(board.error),))
    if board.error is not None:
        raise board.error
    if board.stuck:
        return SeedRun(seed, Outcome.DEADLOCK, tuple(waiting_sentences(board, tasks)))
    sentences = tuple(wrong_sentences(executor, problem, tasks))
    return SeedRun(seed, Outcome.WRONG if sentences else Outcome.EXACT, sentences)


def _threads(schedule: Schedule, tasks: Sequence[Task]) -> dict[Queue, int]:
    """Return the number of threads of each queue: several where transfers are in no lane."""
    engines = max(1, min(schedule.engine.count, ENGINE_THREADS))
    return {task.queue: engines if task.queue[1] == "engines" else 1 for task in tasks}


def _work_through(board: Board, threads: list[Thread]) -> None:
    """Run all threads until the run is over; Ctrl-C ends them."""
    try:
        for thread in threads:
            thread.start()
        board.start()
        with board.over:
            while not board.stopped:
                board.over.wait()
    except BaseException as error:
        board.stop(error)
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
