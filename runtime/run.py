"""A plan carried out with real data in this process: a thread for each stream and lane of each rank."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ..compiler.ir import Graph, GraphPlan, System, Transfer
from .board import Board, HoldPolicy, work_through
from .execute import Executor
from .findings import differences, stuck_sentences
from .memory import CheckedArray, Fault
from .problem import Problem
from .report import MAX_NAMED, Outcome, RunReport, SeedRun
from .tasks import Queue, Task, tasks_of
from .wiring import problems_of

Job = tuple[System, Graph, GraphPlan]
"""What is carried out: on which system, the ops, and how."""
DETAIL = 2
"""Rows and columns that stand for an interval between cuts: two, so that their order shows too."""


def carry_out(
    system: System, graph: Graph, plan: GraphPlan, seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> RunReport:
    """Carry ``plan`` out with real data, once for each of ``seeds``, until a run fails.

    Parameters
    ----------
    system
        What the plan runs on; its number of ranks counts.
    graph
        The ops of the plan, those of all layers that it has written out.
    plan
        How each op is carried out; of one op, ``GraphPlan.of_one``.
    seeds
        Each draws the numbers, and who is held up.
    detail
        How many rows and columns are kept of each interval between neighbouring cuts of a part, None: all of them.

    Raises
    ------
    RunRefused
        If it cannot be carried out here.
    """
    return RunReport.of(system, plan, (PlanRun(system, graph, plan, seed, detail).report() for seed in seeds))


class PlanRun:
    """One run of a plan; ``problems`` are the memories of its parts by their names."""

    def __init__(self, system: System, graph: Graph, plan: GraphPlan, seed: int, detail: int | None) -> None:
        self._num_ranks, self._plan, self._seed = system.num_ranks, plan, seed
        self.tasks = tasks_of(plan, system.num_ranks)
        self._prepare(self.tasks.threads(plan))
        self.problems = problems_of(graph, plan, self.tasks, system.num_ranks, detail, seed)
        self._executors: Mapping[str, Executor] = {
            name: self._executor(problem, self.tasks.of_part[name]) for name, problem in self.problems.items()
        }
        first = {part.op: part.name for part in reversed(plan.parts)}
        names = {task.number: name for name, tasks in self.tasks.of_part.items() for task in tasks}
        names |= {number: first[op] for number, op in self.tasks.frees.items()}
        self._of_task: Mapping[int, Executor] = {number: self._executors[name] for number, name in names.items()}
        self._held = {op: self._arrays(graph, op) for op in dict.fromkeys(self.tasks.frees.values())}

    # What a subclass does otherwise, where one rank is here.

    def _prepare(self, threads: dict[Queue, int]) -> None:
        """Make the board, for queues with so many ``threads``."""
        self._threads = threads
        self._board = Board(self.tasks.all, self._num_ranks, threads, self._seed)

    def _executor(self, problem: Problem, tasks: tuple[Task, ...]) -> Executor:
        """Return what carries out the tasks of one part."""
        return Executor(problem, tasks, self._board, HoldPolicy(self._seed))

    def report(self) -> SeedRun:
        """Carry everything out, and compare."""
        self.work()
        return SeedRun.of(self._seed, *self.found(range(self._num_ranks)))

    # A run.

    def work(self) -> None:
        """Carry out all steps until they are done, or stand still, or something fails."""
        work_through(self._board, self.carry_out, self._threads)

    def carry_out(self, task: Task) -> None:
        """Do what a task says."""
        executor = self._of_task[task.number]
        if task.number not in self.tasks.frees:
            executor.carry_out(task)
            return
        for array in self._held[self.tasks.frees[task.number]][task.rank]:
            array.free(task)
        executor.done(task)

    def ended(self) -> tuple[Outcome, list[str]]:
        """Return how the run ended, with sentences, without a look at its numbers: EXACT, FAULT or DEADLOCK.

        An error that says nothing of the plan is raised.
        """
        if isinstance(self._board.error, Fault):
            return Outcome.FAULT, [str(self._board.error)]
        if self._board.error is not None:
            raise self._board.error
        stuck = self._board.stuck
        if stuck:
            return Outcome.DEADLOCK, stuck_sentences(stuck, self.tasks.all, self._num_ranks)
        return Outcome.EXACT, []

    def found(self, ranks: Sequence[int]) -> tuple[Outcome, list[str]]:
        """Return what became of the run at ``ranks``, with sentences for what is wrong there, one more than are shown.

        An error that says nothing of the plan is raised.
        """
        outcome, sentences = self.ended()
        if outcome is not Outcome.EXACT:
            return outcome, sentences
        for array in chain.from_iterable(chain.from_iterable(self._held.values())):
            array.restore()
        for name, problem in self.problems.items():
            wrong = differences(self._executors[name], problem, self.tasks.of_part[name], ranks)
            sentences += [sentence for sentence, _ in zip(wrong, range(MAX_NAMED + 1 - len(sentences)), strict=False)]
        return Outcome.WRONG if sentences else Outcome.EXACT, sentences

    def _arrays(self, graph: Graph, op: str) -> tuple[tuple[CheckedArray, ...], ...]:
        """Return, for each rank, what is freed when an op and all that hold it have ended.

        Copies that add where they land leave the result in what the kernel made, which then stays.
        """
        parts = [part.name for part in self._plan.parts if part.op == op]
        steps = (task.step for name in parts for task in self.tasks.of_part[name])
        if any(isinstance(step, Transfer) and step.reduce for step in steps):
            return ((),) * self._num_ranks
        whole, ranks = graph.op(op).workload, range(self._num_ranks)
        return tuple(
            tuple(array for name in parts for array in self.problems[name].held(rank, whole)) for rank in ranks
        )
