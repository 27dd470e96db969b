"""Plans in files of their own: ``schedule mine for w = import "plan.json"``, and ``--schedule plan.json``.

A file holds a plan of Magus (``from_json.py``), an execution plan of MSCCL++ (``mscclpp/read.py``) or, in Python, a
CommPlan of Syncopate (``syncopate/read.py``); the keys ``gpus`` and ``device_plans`` tell them apart. Only plans of one
part are imported: a schedule in the language says how one op is carried out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..codes import Code
from ..ir import OpCase, OpPlan, Part, Plan, Scenario, System, Workload, WrittenPlan
from ..text import syntax as ast
from ..text.diagnostics import Diagnostic, Report, Source, Span, listing, raising_errors
from ..text.json_forms import MAX_FILE_BYTES, Item, JsonPlace, read_json
from ..text.load import path_beside, read_source

PLAN_SUFFIX = ".json"
PLAN_SUFFIXES = (PLAN_SUFFIX, ".py")
IMPORT = "import"
Warn = Callable[[Sequence[Diagnostic]], None]


def imported(declaration: ast.TemplateNode | ast.PlanNode, report: Report) -> ast.Text | None:
    """Return the path of ``schedule mine for w = import "plan.json"``, None for any other schedule."""
    match declaration:
        case ast.TemplateNode(values=(ast.Name(text=word), ast.Text() as path)) if word == IMPORT:
            return path
        case ast.TemplateNode(values=(ast.Name(text=word) as name, *_)) if word == IMPORT:
            raise report.fail(Code.MGS116, "import names a file", name.span, 'import "plan.json"')
        case _:
            return None


def import_plan(scenario: OpCase, text: ast.Text, report: Report) -> WrittenPlan:
    """Read the plan at the path ``text``, in the folder of the file that names it or below.

    Raises
    ------
    Stopped
        If it cannot be read or cannot run here; ``report`` says why.
    """
    from .write import plan_of

    document = _document(path_beside(text, "plan", report), text.span, report)
    part = _only_part(_built(scenario.system, Workload.of_one(scenario.shape), document, ""), document)
    return plan_of(scenario, part.schedule)


def ignore_warnings(warnings: Sequence[Diagnostic]) -> None:
    """Drop warnings."""


def op_plan_in_file(scenario: OpCase, path: Path, warn: Warn = ignore_warnings) -> OpPlan:
    """Read the schedule of a plan file at any path, which becomes its name; pass warnings to ``warn``.

    Raises
    ------
    CompileError
        If the file cannot be read, is not a plan, or holds one that cannot run here.
    """
    return _schedule(scenario, str(path), lambda span, report: _document(path, span, report), warn)


def plan_in_text(scenario: OpCase, text: str, name: str) -> OpPlan:
    """Read the schedule of the text of a plan file; errors name it ``name``, and its suffix says what it is.

    Raises
    ------
    CompileError
        As ``op_plan_in_file``.
    """
    return _schedule(scenario, name, lambda span, report: _parsed(text, JsonPlace(name, span, report)))


def plan_in_file(scenario: Scenario, path: Path) -> Plan:
    """Read the plan of several ops from a file at any path, which becomes its name.

    Raises
    ------
    CompileError
        As ``op_plan_in_file``.
    """
    name = str(path)
    with raising_errors() as report:
        return _built(scenario.system, scenario.workload, _document(path, _span(name), report), name)


def _schedule(
    scenario: OpCase, name: str, read: Callable[[Span, Report], Item], warn: Warn = ignore_warnings
) -> OpPlan:
    with raising_errors() as report:
        document = read(_span(name), report)
        part = _only_part(_built(scenario.system, Workload.of_one(scenario.shape), document, name), document)
        warn(report.diagnostics)
        return part.schedule


def _span(name: str) -> Span:
    return Span(Source("--schedule", name), 0, len(name))


def _built(system: System, workload: Workload, document: Item, name: str) -> Plan:
    """The plan of a file, called ``name``, with nothing wrong in it."""
    # Imported here: few scenarios import a plan, and every command reads scenarios.
    if "gpus" in document.members():
        from .mscclpp.read import read_mscclpp

        return _built_collective(system, workload, document, name, read_mscclpp)
    if "device_plans" in document.members():
        from .syncopate.read import read_syncopate

        return _built_collective(system, workload, document, name, read_syncopate)
    from .from_json import read_plan

    return read_plan(system, workload, document, name)


def _built_collective(
    system: System, workload: Workload, document: Item, name: str, read: Callable[[OpCase, Item], WrittenPlan]
) -> Plan:
    """The plan of another program, which is for one collective and its kernel; ``read`` reads it."""
    from ..planning.build import ScheduleError, build_op_plan
    from .from_json import check

    if len(workload.ops) > 1:
        message = f"this is the plan of one collective, {workload.name} has {len(workload.ops)} ops"
        raise document.fail(message, code=Code.MGS524)
    (op,) = workload.ops
    case = OpCase(op.name, system, op.shape)
    try:
        schedule = build_op_plan(case, read(case, document), name)
    except ScheduleError as error:
        unfit = error.rejection
        raise document.fail(unfit.message, unfit.hint, unfit.code) from None
    plan = Plan.of_one(op.name, op.shape, schedule)
    check(system, workload, plan, document, {})
    return plan


def _only_part(plan: Plan, document: Item) -> Part:
    if len(plan.parts) > 1:
        names = listing(part.name for part in plan.parts)
        raise document.fail(f"the plan has {len(plan.parts)} parts, {names}; here one is expected", code=Code.MGS524)
    return plan.parts[0]


def _document(path: Path, span: Span, report: Report) -> Item:
    return _parsed(read_source(path, report, span, MAX_FILE_BYTES).text, JsonPlace(path.name, span, report))


def _parsed(text: str, place: JsonPlace) -> Item:
    from .syncopate.python import SUFFIX, read_python

    return read_python(text, place) if place.file.endswith(SUFFIX) else read_json(text, place)
