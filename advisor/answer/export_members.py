"""What the JSON documents say of several ops besides: layers, what each op does, and what can be switched on today."""

from ...compiler.ir import TICKS_PER_US, JsonObject, Plan, Scenario
from ...compiler.planning.build import ScheduleError, expression_of_schedule, schedule_block
from ...compiler.planning.groups import experts_of_a_rank, labels_of
from ...compiler.planning.parts import batch_counts
from ...compiler.planning.plan import own_name
from ...simcore import OpResult, Result
from ..candidates.advice import Advice, OpAdvice
from ..candidates.candidate import Candidate
from ..candidates.sensitivity import ChangedNumber, RobustChoice, RoutingDraws, Sensitivity, spread_of
from .extrapolation import imbalance_of


def several_members(advice: Advice) -> JsonObject:
    """Return what the document of an answer says besides where there are several ops, in us."""
    imbalance = imbalance_of(advice.scenario)
    return {
        "layers": advice.scenario.num_layers,
        "block": _block(advice),
        "ops": [_op_advice(op) for op in advice.ops],
        "kernels_us": advice.kernels_ticks / TICKS_PER_US,
        "copier": advice.copier,
        "searched": advice.searched,
        "imbalance": None if imbalance is None else imbalance.document,
    }


def candidate_members(candidate: Candidate) -> JsonObject:
    """Return the members that only schedules of several ops have."""
    return {
        "expression": _expression(candidate),
        "batches": candidate.joint.batches,
        "groups": list(candidate.joint.groups),
        "estimated": candidate.is_estimate,
        "origin": candidate.origin.value,
        "outside": candidate.is_outside,
        "side_by_side": candidate.side_by_side,
        "problem": candidate.problem or None,
    }


def _expression(candidate: Candidate) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return expression_of_schedule(candidate.joint)
    except ScheduleError:
        return None


def _block(advice: Advice) -> str | None:
    """The recommended schedule as a block for the file; None where an op has a plan written out."""
    try:
        return schedule_block(advice.recommended.joint, advice.scenario.name)
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


def result_members(scenario: Scenario, plan: Plan, result: Result) -> JsonObject:
    """Return what the document of a run says besides where there are several ops.

    All else is of the layers that were simulated.
    """
    labels = labels_of(scenario.workload, plan.cut)
    schedules: dict[str, list[str]] = {}
    for part in plan.parts:
        schedules.setdefault(part.op, []).append(part.schedule.expression)
    ops = [
        _op_result(op) | {"pattern": labels[name], "schedules": schedules[name]}
        for op in result.ops
        for name in (own_name(op.name),)
    ]
    period = result.period_ticks
    layers = {
        "count": result.layers,
        "simulated": result.num_simulated,
        "period_us": None if period is None else period / TICKS_PER_US,
        "estimated": result.is_estimate,
        "makespan_us": result.total_ticks / TICKS_PER_US,
        "makespan_ticks": result.total_ticks,
    }
    return {"layers": layers, "ops": ops}


def _op_result(op: OpResult) -> JsonObject:
    return {
        "name": op.name,
        "begin_us": op.begin_ticks / TICKS_PER_US,
        "end_us": op.end_ticks / TICKS_PER_US,
        "makespan_us": op.makespan_ticks / TICKS_PER_US,
        "compute_us": op.compute_ticks / TICKS_PER_US,
        "comm_us": op.comm_ticks / TICKS_PER_US,
        "exposed_comm_us": op.exposed_ticks / TICKS_PER_US,
    }


def ops_members(scenario: Scenario) -> JsonObject:
    """Return what ``magus schedules --json`` says of several ops: layers, batches, and what each op reads."""
    return {
        "layers": scenario.workload.num_layers,
        "batches": list(batch_counts(scenario.workload)),
        "experts": experts_of_a_rank(scenario.workload),
        "ops": [
            {
                "name": op.name,
                "pattern": op.label,
                "reads": [{"tensor": read.tensor, "made_by": read.made_by or None} for read in op.reads],
            }
            for op in scenario.workload.ops
        ],
    }


def sensitivity_document(found: Sensitivity) -> JsonObject:
    """Return the table; times are in the order of ``schedules``, the answer first."""
    return {
        "checked": "simulated" if found.simulated else "predicted",
        "schedules": list(found.schedules),
        "us": list(found.us),
        "loss": found.loss,
        "overlap_pays": found.overlap_pays,
        "changes": [_change_document(found, change) for change in found.changes],
        "robust": None if found.robust is None else _robust_document(found, found.robust),
    }


def draws_document(found: RoutingDraws) -> JsonObject:
    """Return the times of schedules over draws of the routing, the answer first, and in how many it stays the best."""
    spreads = zip(found.schedules, map(spread_of, found.us), strict=True)
    return {
        "seeds": list(found.seeds),
        "answer_stays": found.stays,
        "schedules": [{"schedule": name, "us": spread} for name, spread in spreads],
    }


def _change_document(found: Sensitivity, change: ChangedNumber) -> JsonObject:
    return {
        **_named(change),
        "paths": list(change.paths),
        "us": list(change.us),
        "simulated": list(change.simulated),
        "fastest": found.schedules[change.fastest],
        "loss": change.loss(),
        "holds": change not in found.exceptions,
        "overlap_pays": change.overlap_pays,
    }


def _robust_document(found: Sensitivity, robust: RobustChoice) -> JsonObject:
    return {
        "schedule": found.schedules[robust.schedule],
        "max_loss": robust.max_loss,
        "worst": None if robust.worst is None else _named(robust.worst),
        "answer_max_loss": robust.answer_max_loss,
        "answer_worst": _named(robust.answer_worst),
        "price": robust.price,
    }


def _named(change: ChangedNumber) -> JsonObject:
    return {"number": change.name, "factor": change.factor}
