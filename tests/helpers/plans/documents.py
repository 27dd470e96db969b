"""Plans as JSON documents: read without a file, and the hash of a schedule."""

from magus.compiler.ir import Plan, Scenario, Schedule
from magus.compiler.planfile.from_json import read_plan
from magus.compiler.planfile.to_json import plan_hash, plan_of
from magus.compiler.text.diagnostics import CompileError, Report
from magus.compiler.text.json_items import Item, JsonPlace
from magus.compiler.text.source import Source, Span


def plan_from_document(scenario: Scenario, document: object) -> Plan:
    """Read a plan for ``scenario``; what is wrong is in the diagnostics of the CompileError."""
    report = Report()
    with report.attempt():
        return read_plan(scenario, Item(document, "", JsonPlace("plan", Span(Source("<document>", ""), 0, 0), report)))
    raise CompileError(report.diagnostics)


def schedule_hash(scenario: Scenario, schedule: Schedule) -> str:
    """The hash of the plan of ``schedule``."""
    return plan_hash(scenario, plan_of(scenario, schedule))
