"""Advice on a graph as a JSON document."""

from dataclasses import asdict

from ...compiler.ir import TICKS_PER_US, GraphPlan, GraphScenario, JsonObject
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_batches import batch_counts, labels_of
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.planning.graph_expression import graph_choice_text, graph_expression_of
from ...compiler.planning.graph_layers import own_name
from ...simcore.figures.graph_result import OpResult
from ...simcore.simulate_layers import LayersResult
from ..answer.export import bound_document, offers_document, promise_document, result_document
from ..bounds.lower_bound import Bound
from ..candidates.advice import Advice, OpAdvice
from ..candidates.candidate import Candidate

SCHEMA = "magus-graph-advice/2"
GRAPH_SCHEDULES_SCHEMA = "magus-graph-schedules/1"


def graph_advice_document(advice: Advice, *, results: bool = False) -> JsonObject:
    """Return the document of ``magus advise --json`` on a graph, in us, with the ``results`` of its schedules."""
    serial = advice.serial
    return {
        "schema": SCHEMA,
        "scenario": advice.scenario.name,
        "workload": advice.scenario.name,
        "verdict": advice.verdict.value,
        "layers": advice.scenario.num_layers,
        "speedup": advice.speedup,
        **promise_document(advice.promise),
        "baseline": {"name": advice.baseline, "us": advice.serial.best_us},
        "confidence": advice.confidence.value,
        "confidence_reason": advice.confidence_reason,
        "ties": list(advice.ties),
        "recommended": _candidate(advice.recommended, serial) | {"block": _block(advice)},
        "serial": _candidate(serial, serial),
        "candidates": [
            _candidate(each, serial) | (_result(advice, each) if results else {}) for each in advice.candidates
        ],
        "ops": [_op_advice(op) for op in advice.ops],
        "reasons": list(advice.reasons),
        "bound": None if advice.bound is None else bound_document(advice.bound),
        "gap_to_bound": advice.gap_to_bound,
        "kernels_us": advice.kernels_ticks / TICKS_PER_US,
        "copier": advice.copier,
        "searched": advice.searched,
        "timing": asdict(advice.timing),
        "marks": list(advice.marks),
        "interrupted": advice.interrupted,
        "outside_calibration": list(advice.outside_calibration),
        "implementations": offers_document(advice),
    }


def _candidate(candidate: Candidate, serial: Candidate) -> JsonObject:
    whole = None if candidate.result is None else candidate.result.simulated.whole
    return {
        "name": candidate.expression,
        "what": candidate.what,
        "expression": _expression(candidate),
        "batches": candidate.joint.batches,
        "us": candidate.best_us,
        "ticks": candidate.ticks,
        "gain": serial.ticks / candidate.ticks,
        "simulated": candidate.result is not None,
        "estimated": candidate.is_estimate,
        "unit_bytes": candidate.unit_bytes,
        "staging_bytes": None if whole is None else whole.schedule.staging_bytes,
        "origin": candidate.origin.value,
        "outside": candidate.is_outside,
        "side_by_side": candidate.side_by_side,
    }


def _result(advice: Advice, candidate: Candidate) -> JsonObject:
    """What ``magus simulate --json`` says of a schedule, or why it was not simulated."""
    scenario, result, bound = advice.scenario, candidate.result, advice.bound
    if result is None or bound is None:
        return {"result": None, "problem": candidate.problem or None}
    plan = build_graph_plan(scenario.system, scenario.graph, candidate.joint)
    return {"result": graph_document(scenario, plan, result, bound), "problem": None}


def _expression(candidate: Candidate) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return graph_expression_of(candidate.joint)
    except ScheduleError:
        return None


def _block(advice: Advice) -> str | None:
    """The schedule as a block for the file; None where an op has a plan written out."""
    try:
        return graph_choice_text(advice.recommended.joint, advice.scenario.name)
    except ScheduleError:
        return None


def _op_advice(op: OpAdvice) -> JsonObject:
    return {
        "name": op.name,
        "pattern": op.label,
        "how": op.how or None,
        "begin_us": op.begin_ticks / TICKS_PER_US,
        "end_us": op.end_ticks / TICKS_PER_US,
        "comm_us": op.comm_ticks / TICKS_PER_US,
        "exposed_us": op.exposed_ticks / TICKS_PER_US,
        "hidden_by": [{"op": name, "share": share} for name, share in op.hidden_by],
        "alone": op.alone or None,
        "alone_us": op.alone_ticks / TICKS_PER_US if op.alone_ticks else None,
        "whole_us": op.whole_ticks / TICKS_PER_US if op.whole_ticks else None,
    }


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
