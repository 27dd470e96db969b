"""A plan of a graph carried out with real data in this process: a thread for each stream and lane of each rank."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from ...compiler.ir import Graph, GraphPlan, Made, Scenario, System, Transfer
from ..board import Board
from ..crew import work_through
from ..findings import differences, how_it_ended, waiting_sentences
from ..hold_policy import HoldPolicy
from ..memory import CheckedArray
from ..refusals import reject_graph_run
from ..report import MAX_NAMED, Outcome, RunRefused, RunReport, SeedRun
from ..run import DETAIL
from ..tasks import ENGINE_THREADS, Mark, Queue, Task, landing_ranks
from .executor import PartExecutor
from .operands import Sheet
from .part import PartProblem
from .part_layout import part_problem
from .tasks import GraphTasks, tasks_of_graph
from .wiring import wires_of


def carry_out_graph(
    system: System, graph: Graph, plan: GraphPlan, seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> RunReport:
    """Carry ``plan`` out with real data, once for each of ``seeds``, until a run fails.

    ``graph`` has the ops of all layers of the plan. Of each interval between neighbouring cuts of a part ``detail``
    rows and columns are kept, None: all of them.

    Raises
    ------
    RunRefused
        If it cannot be carried out here.
    """
    unfit = reject_graph_run(system, plan)
    if unfit is not None:
        raise RunRefused(unfit)
    return RunReport.of_graph(system, plan, (GraphRun(system, graph, plan, seed, detail).report() for seed in seeds))


class GraphRun:
    """One run of a plan; ``problems`` are the memories of its parts."""

    def __init__(self, system: System, graph: Graph, plan: GraphPlan, seed: int, detail: int | None) -> None:
        self._system, self._plan, self._seed = system, plan, seed
        self._tasks: GraphTasks = tasks_of_graph(system, plan)
        self._threads = _threads(plan, self._tasks)
        self._board = Board(self._tasks.all, system.num_ranks, self._threads, seed)
        self.problems = self._laid_out(graph, detail)
        policy = HoldPolicy(seed)
        self._executors = {
            name: PartExecutor(problem, self._tasks.of_part[name], self._board, policy)
            for name, problem in self.problems.items()
        }
        self._of_task = {
            task.number: self._executors[name] for name, tasks in self._tasks.of_part.items() for task in tasks
        }
        self._held = {op: self._arrays(graph, op) for op in self._tasks.frees.values()}

    def report(self) -> SeedRun:
        """Carry everything out, and compare."""
        work_through(self._board, self._carry_out, self._threads)
        outcome, sentences = how_it_ended(self._board, self._tasks.all)
        if outcome is Outcome.DEADLOCK:
            sentences = list(waiting_sentences(circle_in(self._board.stuck), self._tasks.all))
        if outcome is Outcome.EXACT:
            for array in chain(*self._held.values()):
                array.restore()
            ranks = range(self._system.num_ranks)
            wrong = chain.from_iterable(
                differences(self._executors[name], problem, self._tasks.of_part[name], ranks)
                for name, problem in self.problems.items()
            )
            sentences = list(islice(wrong, MAX_NAMED + 1))
            outcome = Outcome.WRONG if sentences else outcome
        return SeedRun.of(self._seed, outcome, sentences)

    def _laid_out(self, graph: Graph, detail: int | None) -> dict[str, PartProblem]:
        """The memories of each part, behind those of the parts before it."""
        problems: dict[str, PartProblem] = {}
        sheets: dict[tuple[str, Made], Sheet] = {}
        for part in self._plan.parts:
            scenario = Scenario(part.name, self._system, part.workload)
            wires = wires_of(graph, self._plan, part, sheets)
            own, every = self._tasks.of_part[part.name], self._tasks.all
            problem = part_problem(graph, part, scenario, wires, every, own, detail, self._seed)
            problems[part.name] = problem
            sheets |= {(part.name, what): sheet for what, sheet in problem.sheets()}
        return problems

    def _arrays(self, graph: Graph, op: str) -> tuple[CheckedArray, ...]:
        """What is freed when an op, and all that hold it, have ended.

        Copies that add where they land leave the result in what the kernel made, which then stays.
        """
        if any(isinstance(task.step, Transfer) and task.step.reduce for task in self._tasks_of(op)):
            return ()
        whole = graph.op(op).workload
        problems = [self.problems[part.name] for part in self._plan.parts if part.op == op]
        ranks = range(self._system.num_ranks)
        return tuple(array for problem in problems for rank in ranks for array in problem.held(rank, whole))

    def _tasks_of(self, op: str) -> Iterator[Task]:
        return chain.from_iterable(self._tasks.of_part[part.name] for part in self._plan.parts if part.op == op)

    def _carry_out(self, task: Task) -> None:
        op = self._tasks.frees.get(task.number)
        if op is None:
            self._of_task[task.number].carry_out(task)
            return
        for array in self._held[op]:
            array.free(task)
        self._board.reach((task.rank, task.step.name), task)


def circle_in(stuck: Sequence[tuple[Task, tuple[Mark, ...]]]) -> list[tuple[Task, tuple[Mark, ...]]]:
    """Return tasks that wait for each other in turn, each with what it waits for in the next; else all of ``stuck``."""
    waiting = {(task.rank, task.step.name): (task, marks) for task, marks in stuck}
    waiting |= {
        (rank, task.step.signal): (task, marks)
        for task, marks in stuck
        if isinstance(task.step, Transfer)
        for rank in landing_ranks(task.step, task.rank, 1 + max(task.rank for task, _ in stuck))
    }
    way: list[tuple[Task, tuple[Mark, ...]]] = []
    task, marks = stuck[0]
    while all(task is not before for before, _ in way):
        mark = next((mark for mark in marks if mark in waiting), None)
        if mark is None:
            return list(stuck)
        way.append((task, (mark,)))
        task, marks = waiting[mark]
    return way[next(place for place, (before, _) in enumerate(way) if before is task) :]


def _threads(plan: GraphPlan, tasks: GraphTasks) -> dict[Queue, int]:
    """The number of threads of each queue: several where transfers are in no lane."""
    threads = {task.queue: 1 for task in tasks.all}
    for part in plan.parts:
        for task in tasks.of_part[part.name]:
            if task.queue[1].endswith("engines"):
                engines = min(part.schedule.engine.count, ENGINE_THREADS)
                threads[task.queue] = max(threads[task.queue], engines)
    return threads
