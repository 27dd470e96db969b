"""A schedule carried out with real data in this process: a thread for each queue of each rank."""

from collections.abc import Iterable

from ..compiler.ir import Scenario, Schedule
from .axes import Layout
from .board import Board
from .crew import threads_of, work_through
from .execute import Executor
from .findings import found
from .hold_policy import HoldPolicy
from .problem import Problem
from .refusals import reject_run
from .report import RunRefused, RunReport, SeedRun
from .tasks import tasks_of

DETAIL = 2
"""Rows and columns that stand for an interval between cuts: two, so that their order shows too."""


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
    return RunReport.of(scenario, schedule, (_run(scenario, schedule, layout, seed) for seed in seeds))


def _run(scenario: Scenario, schedule: Schedule, layout: Layout, seed: int) -> SeedRun:
    tasks = tasks_of(scenario, schedule)
    threads = threads_of(schedule, tasks)
    board, problem = Board(tasks, scenario.num_ranks, threads, seed), Problem(scenario, layout, tasks, seed)
    executor = Executor(problem, tasks, board, HoldPolicy(seed))
    work_through(board, executor.carry_out, threads)
    outcome, sentences = found(board, executor, problem, tasks, range(scenario.num_ranks))
    return SeedRun.of(seed, outcome, sentences)
