"""``magus plan`` on a graph: a schedule as the block that declares it, or its plan as JSON."""

import json
from dataclasses import replace
from pathlib import Path

from ....compiler.ir import GraphChoice, GraphPlan, GraphScenario
from ....compiler.planfile.graph_schema import graph_plan_schema
from ....compiler.planfile.graph_to_json import graph_plan_document, graph_plan_text
from ....compiler.planning.build import ScheduleError
from ....compiler.planning.graph_build import build_graph_plan
from ....compiler.planning.graph_expression import graph_choice_text
from ....compiler.planning.knobs.library import reject_library_plan
from ....compiler.resolve.schedules.from_text import schedule_named
from ....compiler.text.printable import printable
from ....simcore.simulate_layers import FEWEST_LAYERS
from ...exit_codes import Exit
from ...text.door import say
from ...text.plan_block import free_name
from ..console import deliver


def print_graph_plan(
    scenario: GraphScenario, *, schedule: str | None, as_json: bool, layers: int | None, out: Path | None
) -> Exit:
    """Write ``schedule`` to ``out`` or stdout; as JSON so many ``layers``, None: as many as ``simulate`` runs first."""
    chosen = schedule_named(scenario, schedule)
    if as_json:
        plan = chosen if isinstance(chosen, GraphPlan) else _written_out(scenario, chosen, layers)
        document = graph_plan_document(scenario.system, scenario.graph, plan)
        return deliver(graph_plan_text(document), out, plan.expression)
    if isinstance(chosen, GraphPlan):
        say("magus: a plan written out is no schedule of the language; use --format json")
        return Exit.USAGE
    named = replace(chosen, name=free_name(choice.name for choice in scenario.schedules))
    text = f"# {printable(chosen.name)}\n{graph_choice_text(named, scenario.name)}"
    return deliver(text, out, chosen.name)


def print_graph_schema(out: Path | None) -> Exit:
    """Write the JSON Schema of plans of graphs to ``out`` or stdout."""
    return deliver(json.dumps(graph_plan_schema(), indent=2) + "\n", out, "the schema of plans of layers")


def _written_out(scenario: GraphScenario, choice: GraphChoice, layers: int | None) -> GraphPlan:
    repeat = scenario.graph.repeat
    count = min(layers or FEWEST_LAYERS, 1 if repeat is None else repeat.count)
    plan = build_graph_plan(scenario.system, scenario.graph, choice, count)
    for part in plan.parts:
        if part.schedule.engine.by_library:
            raise ScheduleError(reject_library_plan(part.schedule.engine))
    return plan
