"""``magus simulate`` and ``magus schedules`` on a graph: one of its schedules, simulated, and a list of them."""

from ....advisor.answer.extrapolation import outside_of_graph
from ....advisor.bounds.graph_bound import graph_bound
from ....advisor.candidates.shortlist import packet_bytes
from ....advisor.layers.export import graph_document, graph_schedules_document
from ....advisor.solver.graph_memory import check_graph_memory
from ....compiler.ir import GraphPlan, GraphScenario
from ....compiler.planning.graph_build import build_graph_plan
from ....compiler.resolve.schedules.from_text import schedule_named
from ....simcore import RunOptions, RunOutcome, run_of_graph
from ....simcore.simulate_layers import simulate_layers
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.graph import graph_schedules_text, graph_text
from ...text.progress import progress_line
from ..simulate_options import SimulateOptions, explain_outcome, stoppable


def simulate_graph_of(scenario: GraphScenario, options: SimulateOptions) -> Exit:
    """Simulate a schedule of a graph, and print the times of the whole and of each op."""
    if options.record is not None or options.num_seeds:
        say("magus: --seeds and --record-writes are for pairs: a graph is simulated once")
        return Exit.USAGE
    check_graph_memory(scenario)
    chosen = schedule_named(scenario, options.schedule)
    plan = (
        chosen.first_layer()
        if isinstance(chosen, GraphPlan)
        else build_graph_plan(scenario.system, scenario.graph, chosen)
    )
    bound = graph_bound(scenario.system, scenario.graph)
    with stoppable() as pressed, progress_line() as progress:
        result = simulate_layers(
            scenario.system,
            scenario.graph,
            chosen,
            name=scenario.name,
            unit_bytes=scenario.gpu.line_bytes if options.at_line else packet_bytes(scenario.gpu),
            seed=options.seed,
            options=RunOptions(options.fold, True, pressed, lambda line_hops: progress("run", line_hops, 0)),
        )
    check_graph_memory(scenario, result.simulated.whole.schedule.staging_bytes)
    outside = outside_of_graph(scenario.system, plan)
    done = result.simulated.whole.outcome is RunOutcome.DONE
    drawn = options.pictures.save(run_of_graph(scenario, chosen, result)) if done else Exit.DONE
    if options.as_json:
        print_json(graph_document(scenario, plan, result, bound) | {"outside_calibration": list(outside)})
    else:
        put(graph_text(scenario, plan, result, bound, outside))
    if not done:
        return explain_outcome(result.simulated.whole)
    return max(drawn, Exit.NOT_FEASIBLE if options.strict and outside else Exit.DONE)


def list_graph_schedules(scenario: GraphScenario, *, as_json: bool) -> Exit:
    """Print the ops of a graph and the schedules that its file declares, and the bound on all."""
    bound = graph_bound(scenario.system, scenario.graph)
    if as_json:
        print_json(graph_schedules_document(scenario, bound))
    else:
        put(graph_schedules_text(scenario, bound))
    return Exit.DONE
