"""JSON documents of graphs: the document of a result with the ops, and the schedules of a file."""

from ...compiler.ir import TICKS_PER_US, GraphPlan, GraphScenario, JsonObject
from ...compiler.planning.graph_batches import batch_counts, labels_of
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.planning.graph_layers import own_name
from ...simcore.figures.graph_result import OpResult
from ...simcore.simulate_layers import LayersResult
from ..answer.export import bound_document, result_document
from ..bounds.lower_bound import Bound
from .answer import GraphAnswer, ShownSchedule

GRAPH_SCHEDULES_SCHEMA = "magus-graph-schedules/1"
GRAPH_ANSWER_SCHEMA = "magus-graph-answer/1"


def graph_document(scenario: GraphScenario, plan: GraphPlan, result: LayersResult, bound: Bound) -> JsonObject:
    """Return the document of ``magus simulate --json`` on a graph: that of a pair, with ``ops``, layers and the bound.

    All but ``layers`` and the bound is of the layers that were simulated.
    """
    labels = labels_of(scenario.graph, plan.num_batches)
    schedules: dict[str, list[str]] = {}
    for part in plan.parts:
        schedules.setdefault(part.op, []).append(part.schedule.expression)
    ops = [
        _op_document(op) | {"pattern": labels[name], "schedules": schedules[name]}
        for op in result.simulated.ops
        for name in (own_name(op.name),)
    ]
    period = result.period_ticks
    layers = {
        "count": result.layers,
        "simulated": result.num_simulated,
        "period_us": None if period is None else period / TICKS_PER_US,
        "estimated": result.estimated,
        "makespan_us": result.makespan_ticks / TICKS_PER_US,
        "makespan_ticks": result.makespan_ticks,
    }
    document = result_document(result.simulated.whole, scenario.name)
    return document | {"layers": layers, "ops": ops, "bound": bound_document(bound)}


def _op_document(op: OpResult) -> JsonObject:
    return {
        "name": op.name,
        "begin_us": op.begin_ticks / TICKS_PER_US,
        "end_us": op.end_ticks / TICKS_PER_US,
        "makespan_us": op.makespan_ticks / TICKS_PER_US,
        "compute_us": op.compute_ticks / TICKS_PER_US,
        "comm_us": op.comm_ticks / TICKS_PER_US,
        "exposed_comm_us": op.exposed_ticks / TICKS_PER_US,
    }


def graph_schedules_document(scenario: GraphScenario, bound: Bound) -> JsonObject:
    """Return the document of ``magus schedules --json`` on a graph."""
    return {
        "schema": GRAPH_SCHEDULES_SCHEMA,
        "scenario": scenario.name,
        "workload": scenario.name,
        "layers": scenario.graph.num_layers,
        "batches": list(batch_counts(scenario.graph)),
        "ops": [
            {
                "name": op.name,
                "pattern": op.label,
                "reads": [{"tensor": read.tensor, "made_by": read.made_by or None} for read in op.reads],
            }
            for op in scenario.graph.ops
        ],
        "schedules": [choice.name for choice in scenario.schedules],
        "bound": bound_document(bound),
    }


def graph_answer_document(answer: GraphAnswer) -> JsonObject:
    """Return the document of an answer about a graph: its schedules, each as ``magus simulate --json`` tells it."""
    scenario, bound = answer.scenario, answer.bound
    return {
        "schema": GRAPH_ANSWER_SCHEMA,
        "scenario": scenario.name,
        "workload": scenario.graph.name,
        "verdict": answer.verdict.value,
        "recommended": answer.recommended.expression,
        "speedup": answer.speedup,
        "baseline": answer.baseline,
        "interrupted": answer.interrupted,
        "reasons": list(answer.reasons),
        "marks": list(answer.marks),
        "bound": None if bound is None else bound_document(bound),
        "schedules": [_candidate_document(each, bound) for each in answer.candidates],
    }


def _candidate_document(candidate: ShownSchedule, bound: Bound | None) -> JsonObject:
    scenario, result = candidate.scenario, candidate.result
    if result is None or bound is None:
        return {"name": candidate.expression, "problem": candidate.problem or None}
    plan = build_graph_plan(scenario.system, scenario.graph, candidate.choice)
    return {"name": candidate.expression, "problem": None, **graph_document(scenario, plan, result, bound)}
