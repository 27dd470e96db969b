"""What is to be carried out: schedules of a scenario, or a plan file alone.

A plan says nothing of the machine. Nothing is timed here, so that any shipped one does whose engines the plan can have.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..compiler.codes import Code
from ..compiler.ir import DType, Graph, GraphPlan, GraphScenario, Scenario, Schedule
from ..compiler.pipeline import compile_file
from ..compiler.planfile.file import PLAN_SUFFIX, Warn, ignore_warnings, plan_in_file
from ..compiler.planfile.forms import MAX_PARTS
from ..compiler.planning.build import declared
from ..compiler.planning.graph_batches import in_batches
from ..compiler.planning.graph_build import build_graph_plan
from ..compiler.planning.graph_layers import layers_of
from ..compiler.request import request as requests
from ..compiler.request.scenario import scenario_of
from ..compiler.resolve.schedules.from_text import plan_named, resolve_schedule
from ..compiler.text.diagnostics import CompileError, Report
from ..compiler.text.json_items import MAX_FILE_BYTES, Item, JsonPlace, read_json
from ..compiler.text.load import read_source
from ..compiler.text.source import Source, Span
from ..compiler.text.vocabulary import MAX_EXTENT, MAX_RANKS
from .run import Job

LAYERS = 2
"""Layers of those that repeat that are carried out: each waits for the one before alike."""
GPUS = ("H100", "MI300X")
"""One with a switch, and one with more engines."""
HINT = "give its scenario: FILE.mgs --schedule PLAN.json"


def jobs_of(scenario: GraphScenario, schedule: str | None, warn: Warn = ignore_warnings) -> tuple[Job, ...]:
    """Return what ``schedule`` means, None: each schedule that the file declares, else the serial one.

    Of layers that repeat LAYERS are carried out, or as many as a plan file has written out. ``warn`` is told what a
    file says that a plan does not.

    Raises
    ------
    CompileError
        If there is no such schedule, or a file holds no plan that can run.
    ScheduleError
        If it cannot run on the scenario.
    """
    case = scenario.pair
    if case is None:
        layers = min(LAYERS, scenario.num_layers)
        if schedule is None and scenario.schedules:
            plans = [build_graph_plan(scenario.system, scenario.graph, each, layers) for each in scenario.schedules]
        else:
            plans = [plan_named(scenario, schedule, layers)]
        return tuple(_job_of_plan(scenario, each) for each in plans)
    if schedule is None and case.schedules:
        return tuple(_job_of_pair(case, declared(case, named)) for named in case.schedules)
    return (_job_of_pair(case, resolve_schedule(case, schedule, warn)),)


def _job_of_pair(scenario: Scenario, schedule: Schedule) -> Job:
    name, workload = scenario.name, scenario.workload
    return scenario.system, Graph.of_one(workload, name), GraphPlan.of_one(name, workload, schedule)


def _job_of_plan(scenario: GraphScenario, plan: GraphPlan) -> Job:
    graph = layers_of(in_batches(scenario.graph, plan.num_batches), plan.num_layers)
    return scenario.system, graph, plan


def read_job(file: Path, schedule: str | None) -> Job:
    """Return the scenario of a ``.mgs`` file and what ``schedule`` means there, or those of a plan file.

    Raises
    ------
    CompileError
        If a file cannot be read, or holds something wrong.
    ScheduleError
        If the schedule cannot run on the scenario.
    RequestError
        If the sizes of a plan do not fit its number of ranks.
    """
    if file.suffix != PLAN_SUFFIX:
        return jobs_of(compile_file(file).scenario(), schedule)[0]
    switched, other = _scenarios(file)
    with suppress(CompileError):
        return _job_of_pair(switched, plan_in_file(switched, file))
    return _job_of_pair(other, plan_in_file(other, file))


def _scenarios(file: Path) -> tuple[Scenario, ...]:
    """Return what a plan is for, on each of ``GPUS``."""
    report, text = Report(), str(file)
    span = Span(Source("plan", text), 0, len(text))
    with report.trial():
        document = read_json(read_source(file, report, span, MAX_FILE_BYTES).text, JsonPlace(file.name, span, report))
        members = document.members()
        if "scenario" not in members:
            raise document.fail("this is no plan that says what it is for", HINT)
        said = _one_op(members["scenario"])
        if not said.keys() <= {"ranks", "pattern", "moved", "gemm"} or not {"ranks", "pattern", "moved"} <= said.keys():
            raise members["scenario"].fail("its kernels and loads need their scenario", HINT, Code.MGS540)
        said["pattern"].word(tuple(pattern.value for pattern in requests.PATTERNS))
        return tuple(_scenario(gpu, said) for gpu in GPUS)
    raise CompileError(report.diagnostics)


def _one_op(scenario: Item) -> dict[str, Item]:
    """What a plan says of its one op, and its ``ranks``."""
    members = scenario.entries(("ranks", "ops"), ("batches", "layers"))
    if len(ops := members["ops"].items(MAX_PARTS, 1)) > 1 or len(members) > 2:
        raise members["ops"].fail("several ops need their scenario", HINT, Code.MGS540)
    op = ops[0].members()
    op.pop("name", None)
    return {"ranks": members["ranks"], **op}


def _scenario(gpu: str, said: dict[str, Item]) -> Scenario:
    moved = said["moved"].entries(("rows", "cols", "dtype"))
    dtype = DType(moved["dtype"].word(tuple(each.value for each in DType)))
    rows, cols = (moved[key].number(1, MAX_EXTENT) for key in ("rows", "cols"))
    gemm = said["gemm"].entries(("m", "n", "k", "dtype")) if "gemm" in said else {}
    m, n, k = (gemm[key].number(1, MAX_EXTENT) if gemm else 0 for key in ("m", "n", "k"))
    pattern, ranks = str(said["pattern"].value), said["ranks"].number(1, MAX_RANKS)
    moves_apart = not gemm or pattern in {each.value for each in requests.BESIDE_PATTERNS}
    num_bytes = rows * cols * dtype.num_bytes if moves_apart else 0
    request = requests.Request(pattern, m, n, k, num_bytes, dtype.value, gpu, ranks)
    scenario = scenario_of(request).case
    assert scenario.workload.moved is not None, "a plan that moves nothing has no key 'moved'"
    tensor = replace(scenario.workload.moved, rows=rows, cols=cols)
    return replace(scenario, workload=replace(scenario.workload, moved=tensor))
