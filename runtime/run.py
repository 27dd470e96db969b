"""A plan carried out with real data in this process: a thread for each stream and lane of each rank."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

from ..compiler.codes import Code
from ..compiler.ir import JsonObject, OpCase, OpPlan, Plan, Scenario, System, Transfer, Workload
from ..compiler.pipeline import compile_file
from ..compiler.planfile.file import PLAN_SUFFIX, Warn, ignore_warnings, op_plan_in_file
from ..compiler.planfile.forms import SCENARIO, ScenarioInFile
from ..compiler.planning.build import declared
from ..compiler.planning.groups import cut_up
from ..compiler.planning.plan import build_plan, layers_of
from ..compiler.request import request as requests
from ..compiler.request.scenario import scenario_of
from ..compiler.resolve.schedules.from_text import plan_named, resolve_schedule
from ..compiler.text.diagnostics import CompileError, Source, Span, raising_errors
from ..compiler.text.json_forms import MAX_FILE_BYTES, Item, JsonPlace, read_json
from ..compiler.text.load import read_source
from ..compiler.text.vocabulary import MAX_EXTENT
from .board import Board, HoldPolicy, work_through
from .execute import Executor, differences, ended
from .memory import CheckedArray
from .operands import Given
from .problem import Problem
from .report import MAX_NAMED, Outcome, RunReport, SeedRun
from .tasks import Queue, Task, tasks_of
from .wiring import problems_of

Job = tuple[System, Workload, Plan]
"""What is carried out: on which system, the ops, and how."""
DETAIL = 2
"""Rows and columns that stand for an interval between cuts: two, so that their order shows too."""


def carry_out(
    system: System, workload: Workload, plan: Plan, seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> RunReport:
    """Carry ``plan`` out with real data, once for each of ``seeds``, until a run fails.

    Parameters
    ----------
    system
        The system of the plan; only its number of ranks matters here.
    workload
        The ops of the plan, of all layers that the plan has written out.
    plan
        How each op is carried out; for a single op see ``Plan.of_one``.
    seeds
        One run for each: it draws the numbers, and decides which steps are delayed.
    detail
        Tensors are smaller than in the workload: so many rows and columns are kept between two neighbouring cuts of a
        part. None keeps all of them.

    Returns
    -------
    RunReport
        How each run ended, and what was wrong.

    Raises
    ------
    RunRefused
        If ``reject_run`` says why the plan is not carried out, for instance because it has too many steps.
    """
    return RunReport.of(system, plan, (PlanRun(system, workload, plan, seed, detail).report() for seed in seeds))


class PlanRun:
    """One run of a plan; ``problems`` are the memories of its parts by their names.

    Numbers of tensors that nobody makes are ``given``, which needs a ``detail`` of None, or drawn from ``seed``.
    """

    def __init__(
        self,
        system: System,
        workload: Workload,
        plan: Plan,
        seed: int,
        detail: int | None,
        given: Given = MappingProxyType({}),
    ) -> None:
        self._num_ranks, self._plan, self._seed = system.num_ranks, plan, seed
        self.tasks = tasks_of(plan, system.num_ranks)
        self._prepare(self.tasks.threads(plan))
        self.problems = problems_of(workload, plan, self.tasks, detail, seed, given)
        self._executors: Mapping[str, Executor] = {
            name: self._executor(problem, self.tasks.of_part[name]) for name, problem in self.problems.items()
        }
        first = {part.op: part.name for part in reversed(plan.parts)}
        names = {task.number: name for name, tasks in self.tasks.of_part.items() for task in tasks}
        names |= {number: first[op] for number, op in self.tasks.frees.items()}
        self._of_task: Mapping[int, Executor] = {number: self._executors[name] for number, name in names.items()}
        self._held = {op: self._arrays(workload, op) for op in dict.fromkeys(self.tasks.frees.values())}

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
        """Return how the run ended; see ``execute.ended``."""
        return ended(self._board, self.tasks.all, self._num_ranks)

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
            sentences += islice(wrong, MAX_NAMED + 1 - len(sentences))
        return Outcome.WRONG if sentences else Outcome.EXACT, sentences

    def _arrays(self, workload: Workload, op: str) -> tuple[tuple[CheckedArray, ...], ...]:
        """Return, for each rank, what is freed when an op and all that hold it have ended.

        Copies that add where they land leave the result in what the kernel made, which then stays.
        """
        parts = [part.name for part in self._plan.parts if part.op == op]
        steps = (task.step for name in parts for task in self.tasks.of_part[name])
        if any(isinstance(step, Transfer) and step.reduce for step in steps):
            return ((),) * self._num_ranks
        whole, ranks = workload.op(op).shape, range(self._num_ranks)
        return tuple(
            tuple(array for name in parts for array in self.problems[name].held(rank, whole)) for rank in ranks
        )


LAYERS = 2
"""Layers of those that repeat that are carried out: each waits for the one before alike."""
GPUS = ("H100", "MI300X")
"""One with a switch, and one with more engines."""
HINT = "give its scenario: FILE.mgs --schedule PLAN.json"


def jobs_of(scenario: Scenario, schedule: str | None, warn: Warn = ignore_warnings) -> tuple[Job, ...]:
    """Return what to carry out: ``schedule``, or for None all that the file declares, else the serial one.

    If layers repeat, LAYERS of them are carried out, or as many as a plan file has written out. ``warn`` is called with
    what a plan file says and a plan cannot.

    Raises
    ------
    CompileError
        If there is no such schedule, or a file holds no plan that can run.
    ScheduleError
        If it cannot run on the scenario.
    """
    case = scenario.only_case
    if case is None:
        layers = min(LAYERS, scenario.num_layers)
        if schedule is None and scenario.schedules:
            plans = [build_plan(scenario.system, scenario.workload, each, layers) for each in scenario.schedules]
        else:
            plans = [plan_named(scenario, schedule, layers)]
        workloads = [layers_of(cut_up(scenario.workload, each.cut), each.num_layers) for each in plans]
        return tuple((scenario.system, workload, plan) for workload, plan in zip(workloads, plans, strict=True))
    if schedule is None and case.schedules:
        return tuple(job_of_op(case, declared(case, named)) for named in case.schedules)
    return (job_of_op(case, resolve_schedule(case, schedule, warn)),)


def job_of_op(scenario: OpCase, schedule: OpPlan) -> Job:
    """Return what carries out ``schedule`` for one op."""
    name, shape = scenario.name, scenario.shape
    return scenario.system, Workload.of_one(shape, name), Plan.of_one(name, shape, schedule)


def read_job(file: Path, schedule: str | None) -> Job:
    """Return the scenario of a ``.mgs`` file and what ``schedule`` means there, or those of a plan file.

    Raises
    ------
    CompileError
        If a file cannot be read, or holds something wrong.
    ScheduleError
        If the schedule cannot run on the scenario.
    """
    if file.suffix != PLAN_SUFFIX:
        return jobs_of(compile_file(file).scenario(), schedule)[0]
    switched, other = _scenarios(file)
    with suppress(CompileError):
        return job_of_op(switched, op_plan_in_file(switched, file))
    return job_of_op(other, op_plan_in_file(other, file))


def _scenarios(file: Path) -> tuple[OpCase, ...]:
    """Return what a plan is for, on each of ``GPUS``."""
    span = Span(Source("plan", str(file)), 0, len(str(file)))
    with raising_errors() as report:
        document = read_json(read_source(file, report, span, MAX_FILE_BYTES).text, JsonPlace(file.name, span, report))
        members = document.members()
        if "scenario" not in members:
            raise document.fail("this is no plan that says what it is for", HINT)
        place, said = members["scenario"], SCENARIO.read(members["scenario"])
        (op, *others) = said.ops
        if others or said != ScenarioInFile(said.ranks, said.ops):
            raise place.fail("several ops need their scenario", HINT, Code.MGS540)
        if "moved" not in op or not op.keys() <= {"name", "pattern", "moved", "gemm"}:
            raise place.fail("its kernels and loads need their scenario", HINT, Code.MGS540)
        try:
            return tuple(_scenario(gpu, said.ranks, op) for gpu in GPUS)
        except requests.RequestError as error:
            unfit = error.rejection
            raise place.fail(unfit.message, unfit.hint, unfit.code) from None


def _scenario(gpu: str, ranks: int, op: JsonObject) -> OpCase:
    rows, cols, dtype = (op["moved"][key] for key in ("rows", "cols", "dtype"))
    gemm: dict[str, Item] = op.get("gemm", {})
    m, n, k = (gemm[key].number(1, MAX_EXTENT) if key in gemm else 0 for key in ("m", "n", "k"))
    moves_apart = not gemm or op["pattern"] in requests.INDEPENDENT_PATTERNS
    num_bytes = dtype.bytes_of(rows * cols) if moves_apart else 0
    request = requests.Request(op["pattern"].value, m, n, k, num_bytes, dtype.value, gpu, ranks)
    scenario = scenario_of(request).case
    if scenario.shape.moved is None:
        raise requests.RequestError(Code.MGS310, "moved", f"{op['pattern'].value} moves nothing", "leave it out")
    tensor = replace(scenario.shape.moved, rows=rows, cols=cols)
    return replace(scenario, shape=replace(scenario.shape, moved=tensor))
