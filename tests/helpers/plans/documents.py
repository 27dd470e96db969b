"""Plans as JSON documents: read without a file, and the hash of a schedule."""

from typing import Any

from magus.compiler.ir import JsonObject, OpCase, OpPlan, Plan, Workload, WrittenPlan
from magus.compiler.planfile.forms import StepLimits, plan_form
from magus.compiler.planfile.from_json import read_plan
from magus.compiler.planfile.write import op_plan_document, plan_of
from magus.compiler.text.diagnostics import CompileError, Report, Source, Span
from magus.compiler.text.json_forms import Item, JsonPlace


def item_of(document: object, report: Report) -> Item:
    """A document as it is read from a file."""
    return Item(document, "", JsonPlace("plan", Span(Source("<document>", ""), 0, 0), report))


def read_from_document(scenario: OpCase, item: Item, name: str) -> Plan:
    """Read, build and check a plan for the one op of ``scenario``."""
    return read_plan(scenario.system, Workload.of_one(scenario.shape), item, name)


def plan_from_document(scenario: OpCase, document: object) -> WrittenPlan:
    """Read the steps of a plan that can run; what is wrong is in the diagnostics of the CompileError."""
    return plan_of(scenario, built_from_document(scenario, document, "plan").parts[0].schedule)


def steps_from_document(scenario: OpCase, document: JsonObject) -> WrittenPlan:
    """Read the steps of the only plan of a document, whether they can run or not."""
    (plan,) = document["plans"]
    form = plan_form(StepLimits(scenario.num_ranks, kernels=scenario.shape.num_kernels))
    return form.read(item_of(plan, Report()))


def built_from_document(scenario: OpCase, document: object, name: str) -> Plan:
    """Read, build and check a plan; what is wrong is in the diagnostics of the CompileError."""
    report = Report()
    with report.attempt():
        return read_from_document(scenario, item_of(document, report), name)
    raise CompileError(report.diagnostics)


def schedule_hash(scenario: OpCase, schedule: OpPlan) -> str:
    """The hash of the plan of ``schedule``."""
    return str(op_plan_document(scenario, schedule)["hash"])


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of everything in a document."""
    keys: list[str | int] = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    return [path, *(found for key in keys for found in places(value[key], (*path, key)))]
