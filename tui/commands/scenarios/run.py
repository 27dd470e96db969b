"""``magus run``: schedules carried out with real data, and whether every rank ends with what it should."""

from collections.abc import Iterator

from ....compiler.codes import Code
from ....compiler.ir import GraphChoice, GraphPlan, GraphScenario, Scenario, Schedule
from ....compiler.planning.build import declared
from ....compiler.planning.graph_batches import in_batches
from ....compiler.planning.graph_build import build_graph_plan
from ....compiler.planning.graph_layers import layers_of, written_out
from ....compiler.resolve.schedules.from_text import resolve_schedule, schedule_named
from ....runtime import RunRefused, carry_out
from ....runtime.graphs.run import carry_out_graph
from ....runtime.over_torch.launch import RankFailed, carry_out_over_torch
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.runs import Carried, run_text, runs_document
from ..console import show
from ..inputs import ScenarioInput
from ..running import run_command

LAYERS = 2
"""Layers of those that repeat that are carried out: each waits for the one before alike."""


def run_file(source: ScenarioInput, *, schedule: str | None, seeds: range, over_torch: bool, as_json: bool) -> Exit:
    """Carry out ``schedule``, by default every one that the file declares, and print what became of it."""

    def action() -> Exit:
        scenario = source.subject()
        if isinstance(scenario, GraphScenario) and over_torch:
            say("magus: --on torch is for pairs: layers are carried out in this process")
            return Exit.USAGE
        carried: list[Carried] = []
        for each in _each(scenario, schedule, seeds, over_torch):
            carried.append(each)
            if not as_json:
                put(run_text(each, seeds))
        if as_json:
            print_json(runs_document(scenario.name, scenario.num_ranks, seeds, carried))
        return Exit.DONE if all(each.exact for each in carried) else Exit.INPUT

    try:
        return run_command(action)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        say(f"{Code.MGS432.name} error: torch is not installed\n  help: pip install 'magus-gpu[torch]'")
        return Exit.USAGE
    except RankFailed as error:
        say(f"magus: {error}")
        return Exit.INPUT


def _each(scenario: Scenario | GraphScenario, text: str | None, seeds: range, over_torch: bool) -> Iterator[Carried]:
    """Carry out each schedule that is meant."""
    if isinstance(scenario, GraphScenario):
        named = scenario.schedules if text is None else ()
        for chosen in named or (schedule_named(scenario, text),):
            yield _carried_graph(scenario, chosen, seeds)
        return
    for schedule in _schedules(scenario, text):
        yield _carried(scenario, schedule, seeds, over_torch)


def _schedules(scenario: Scenario, text: str | None) -> list[Schedule]:
    if text is None and scenario.schedules:
        return [declared(scenario, named) for named in scenario.schedules]
    return [resolve_schedule(scenario, text, show)]


def _carried_graph(scenario: GraphScenario, chosen: GraphChoice | GraphPlan, seeds: range) -> Carried:
    """Carry out the layers that a plan has written out, of others LAYERS of those that repeat."""
    graph, system = scenario.graph, scenario.system
    if isinstance(chosen, GraphPlan):
        name, plan = chosen.expression, chosen
        ops = layers_of(in_batches(graph, plan.num_batches), plan.num_layers)
    else:
        layers = 1 if graph.repeat is None else min(LAYERS, graph.repeat.count)
        name, plan = chosen.name, build_graph_plan(system, graph, chosen, layers)
        ops = written_out(graph, chosen, layers)[0]
    try:
        return Carried(name, carry_out_graph(system, ops, plan, seeds))
    except RunRefused as error:
        return Carried(name, None, error.rejection)


def _carried(scenario: Scenario, schedule: Schedule, seeds: range, over_torch: bool) -> Carried:
    try:
        if over_torch:
            (report,) = carry_out_over_torch([(scenario, schedule)], seeds)
        else:
            report = carry_out(scenario, schedule, seeds)
        return Carried(schedule.expression, report)
    except RunRefused as error:
        return Carried(schedule.expression, None, error.rejection)
