"""JSON documents of results and advice: plain dicts with a ``schema`` field; null stands for a missing value."""

from dataclasses import asdict

from ...compiler.ir import TICKS_PER_US, JsonObject, OpCase, Plan, Scenario
from ...compiler.planning.build import expression_of
from ...simcore import CriticalOp, Result, ServerLoad
from ...simcore.figures.result import Waterfall
from ..bounds.lower_bound import Bound
from ..candidates.advice import Advice, Threshold
from ..candidates.candidate import Candidate, SearchProvenance
from ..candidates.predicted import LibraryTime, library_time
from ..implementations.offers import Offer, OpSetting
from ..implementations.predict import Promise
from ..solver import Space
from .explain import headline_of
from .export_members import (
    candidate_members,
    draws_document,
    ops_members,
    result_members,
    sensitivity_document,
    several_members,
)

RESULT_SCHEMA = "magus-result/1"
ADVICE_SCHEMA = "magus-advice/1"
SPACE_SCHEMA = "magus-schedules/1"


def result_document(result: Result, workload: str) -> JsonObject:
    """Return the document of ``magus simulate --json``."""
    return {
        "schema": RESULT_SCHEMA,
        "scenario": result.scenario,
        "workload": workload,
        "schedule": result.schedule.expression,
        "granularity": result.granularity,
        "unit_bytes": result.unit_bytes,
        "outcome": result.outcome.name.lower(),
        "outcome_text": result.outcome.value,
        "makespan_us": result.makespan_us,
        "makespan_cycles": result.makespan_cycles,
        "makespan_ticks": result.makespan_ticks,
        "compute_us": _us(result.compute_ticks),
        "comm_us": _us(result.comm_ticks),
        "exposed_comm_us": _us(result.exposed_ticks),
        "overlap_efficiency": result.overlap_efficiency,
        "dil": result.dil,
        "cil": result.cil,
        "waterfall": _waterfall_document(result.waterfall),
        "line_hops": result.line_hops,
        "line_hops_represented": result.line_hops_represented,
        "traffic": asdict(result.traffic),
        "utilization": asdict(result.utilization),
        "staging_bytes": result.schedule.staging_bytes,
        "ranks": result.num_ranks,
        "ranks_represented": result.num_ranks,
        "ranks_simulated": result.ranks_simulated,
        "unfolded_because": result.not_alike,
        "core": result.core,
        "servers": [_server_document(server) for server in result.servers],
        "critical_path": [_critical_document(op) for op in result.critical_path],
        "deadlock": list(result.deadlock),
    }


def _waterfall_document(waterfall: Waterfall | None) -> JsonObject | None:
    if waterfall is None:
        return None
    return {
        "unit_bytes": waterfall.unit_bytes,
        "makespan_us": _us(waterfall.makespan_ticks),
        "launch_sync_us": _us(waterfall.launch_sync_ticks),
        "contention_us": _us(waterfall.contention_ticks),
        "decomposition_us": _us(waterfall.decomposition_ticks),
        "exposed_us": _us(waterfall.exposed_ticks),
        "bound_us": _us(waterfall.bound_ticks),
        "layers": waterfall.layers,
    }


def _server_document(server: ServerLoad) -> JsonObject:
    return {
        "name": server.name,
        "rank": server.rank,
        "busy_us": {
            "compute": _us(server.compute_ticks),
            "comm": _us(server.comm_ticks),
            "flags": _us(server.flags_ticks),
        },
        "units": server.units,
        "mean_wait_us": None if server.wait_ticks is None else server.wait_ticks / TICKS_PER_US,
    }


def _critical_document(op: CriticalOp) -> JsonObject:
    return {
        "step": op.label,
        "rank": op.rank,
        "kind": op.kind.name.lower(),
        "waited_for": op.cause.name.lower(),
        "resource": op.resource or None,
        "since_us": _us(op.since_ticks),
        "start_us": _us(op.start_ticks),
        "done_us": _us(op.done_ticks),
        "queued_at": op.queued_at or None,
        "queued_us": _us(op.queued_ticks),
    }


def bound_document(bound: Bound) -> JsonObject:
    """Return a lower bound with its terms and assumptions."""
    return {
        "us": _us(bound.ticks),
        "binding": bound.binding,
        "terms": [{"name": name, "us": _us(ticks), "text": text} for name, ticks, text in bound.terms],
        "assumptions": list(bound.assumptions),
    }


def schedules_document(scenario: Scenario, bound: Bound) -> JsonObject:
    """Return the document of ``magus schedules --json`` where a search and no enumeration finds schedules."""
    return {
        "schema": SPACE_SCHEMA,
        "scenario": scenario.name,
        "workload": scenario.title,
        **ops_members(scenario),
        "bound": bound_document(bound),
        "schedules": [choice.name for choice in scenario.schedules],
    }


def space_document(scenario: OpCase, space: Space, bound: Bound) -> JsonObject:
    """Return the document of ``magus schedules --json`` on one op."""
    return {
        "schema": SPACE_SCHEMA,
        "scenario": scenario.name,
        "workload": scenario.shape.name,
        "complete": space.complete,
        "size": space.size,
        "knobs": {word: list(values) for word, values in space.knobs.items()},
        "dominance": [asdict(assumed) for assumed in space.assumed],
        "absent": [{"schedule": absence.template, "reasons": list(absence.reasons)} for absence in space.absent],
        "bound": bound_document(bound),
        "schedules": [expression_of(choice) for choice in space.shown()],
    }


def advice_document(advice: Advice, *, how: bool = False, results: bool = False) -> JsonObject:
    """Return the document of ``magus advise --json``; ``how`` adds how to carry the recommended schedule out.

    Of several ops ``results`` adds the run of every candidate.
    """
    case, recommended = advice.scenario.only_case, advice.recommended
    steps: JsonObject | None = None
    if how:
        from ..how.parts import how_of_plan, parts_document  # who does not ask how does not wait for it

        plan = advice.plan_of(recommended)
        steps = parts_document(recommended.expression, how_of_plan(advice.scenario.system, plan))
    document = {
        "schema": ADVICE_SCHEMA,
        "scenario": advice.scenario.name,
        "workload": advice.scenario.title,
        "pattern": None if case is None else case.shape.label,
        "recommended": recommended.expression,
        "verdict": advice.verdict.value,
        "headline": headline_of(advice) or None,
        "speedup_vs_serial": advice.speedup,
        **promise_document(advice.promise),
        "serial": advice.serial.expression,
        "baseline": {"name": advice.baseline_text, "us": advice.serial.best_us},
        "library": None if case is None else _library_document(library_time(case)),
        "implementations": offers_document(advice),
        "lower_bound_us": None if advice.bound is None else _us(advice.bound.ticks),
        "bound": None if advice.bound is None else bound_document(advice.bound),
        "gap_to_bound": advice.gap_to_bound,
        "confidence": advice.confidence.value,
        "confidence_reason": advice.confidence_reason,
        "sensitivity": None if advice.sensitivity is None else sensitivity_document(advice.sensitivity),
        "routing_draws": None if advice.draws is None else draws_document(advice.draws),
        "threshold": None if advice.threshold is None else _threshold_document(advice.threshold),
        "reasons": list(advice.reasons),
        "how": steps,
        "ties": list(advice.ties),
        "given_up": _given_up_document(advice),
        "marks": list(advice.marks),
        "outside_calibration": list(advice.outside_calibration),
        "interrupted": advice.interrupted,
        "notes": list(advice.notes),
        "num_feasible": advice.num_feasible,
        "candidates": [_candidate_document(advice, candidate, results) for candidate in advice.candidates],
        "result": _run_document(advice, advice.result, recommended),
        "serial_result": _run_document(advice, advice.serial_result, advice.serial),
        "timing": asdict(advice.timing),
    }
    return document if case is not None else document | several_members(advice)


def _run_document(advice: Advice, result: Result | None, candidate: Candidate) -> JsonObject | None:
    """The run of the one op, or of the several ops of ``candidate``."""
    scenario, several = advice.scenario, candidate.result
    if several is not None:
        return several_result_document(scenario, advice.plan_of(candidate), several)
    return None if result is None else result_document(result, scenario.title)


def several_result_document(scenario: Scenario, plan: Plan, result: Result) -> JsonObject:
    """Return the document of ``magus simulate --json`` on several ops: that of one, with layers and ops."""
    return result_document(result, scenario.title) | result_members(scenario, plan, result)


def _threshold_document(threshold: Threshold) -> JsonObject:
    return {
        "rows": threshold.rows,
        "pays_above": threshold.pays_above,
        "checked": "simulated" if threshold.simulated else "predicted",
        "tried": list(threshold.tried),
        **({"param": threshold.param} if threshold.param else {}),
    }


def promise_document(promise: Promise | None) -> JsonObject:
    """The interval of a predicted speedup; all None without one."""
    if promise is None:
        return dict.fromkeys(("promised", "in_graph", "on_host", "error", "interval", "outside"))
    return {
        "promised": promise.speedup,
        "in_graph": promise.in_graph,
        "on_host": promise.on_host,
        "error": promise.error,
        "interval": promise.interval,
        "outside": promise.outside or None,
    }


def offers_document(advice: Advice) -> JsonObject | None:
    """Return what can be switched on today; of several ops with what is switched on, None if nothing is known."""
    found = advice.offers
    if found is None:
        return None
    return {
        "library": found.library,
        "library_us": found.library_us,
        "offers": [
            {
                "name": offer.name,
                "us": offer.us,
                "speedup_vs_library": offer.promise.speedup,
                **promise_document(offer.promise),
                "verdict": offer.promise.verdict.value,
                "requested": offer.requested,
                "kernels": offer.about or None,
                **(_switched_on(advice, offer) if len(advice.scenario.cases) > 1 else {}),
            }
            for offer in found.offers
        ],
        "unknown": [asdict(unknown) for unknown in found.unknown],
    }


def _switched_on(advice: Advice, offer: Offer) -> JsonObject:
    """What an implementation does with several ops, and how far it is behind the recommended schedule."""
    order = offer.order
    return {
        "ops": list(offer.ops),
        "loss": offer.us / advice.recommended.best_us - 1,
        "about": None if order is None else order.about,
        "schedule": None if order is None else order.schedule,
        "flags": [] if order is None else list(order.table.flags),
        "settings": [] if order is None else [_setting(each) for each in order.table.settings],
    }


def _setting(setting: OpSetting) -> JsonObject:
    return {
        "layer": setting.layer,
        "op": setting.op,
        "method": setting.method,
        "num_sm": setting.num_sm or None,
        "num_splits": setting.num_splits or None,
        "copy_engine": setting.copy_engine,
    }


def _candidate_document(advice: Advice, candidate: Candidate, results: bool) -> JsonObject:
    simulated = candidate.simulated_us
    granularity = None
    if candidate.unit_bytes is not None:
        granularity = "line" if candidate.unit_bytes == advice.scenario.gpu.line_bytes else "packet"
    document = {
        "schedule": candidate.expression,
        "name": advice.name_of(candidate.expression),
        "what": advice.what_of(candidate),
        "predicted_us": candidate.predicted_us,
        "interval_us": candidate.interval_us,
        "simulated_us": simulated,
        "granularity": granularity,
        "speedup_vs_serial": None if simulated is None else advice.serial.best_us / simulated,
        "staging_bytes": candidate.staging_bytes,
        "is_serial": candidate.is_serial,
        "provenance": None if candidate.provenance is None else _provenance_document(candidate.provenance),
    }
    if candidate.several is None:
        return document
    runs = {"result": _run_document(advice, None, candidate)} if results else {}
    return document | candidate_members(candidate) | runs


def _given_up_document(advice: Advice) -> JsonObject | None:
    """What is faster than the simpler schedule that is recommended, None up to 1 %."""
    if advice.given_up is None:
        return None
    fastest, faster = advice.given_up
    return {"schedule": fastest.expression, "us": fastest.best_us, "faster_by": faster}


def _library_document(library: LibraryTime | None) -> JsonObject | None:
    """The library's collective, alone."""
    if library is None:
        return None
    time = library.time
    return {
        "collective": library.operation.value,
        "us": library.us,
        "from": "closed form",
        "error": library.error,
        "scaled": library.scaled or None,
        "protocol": time.protocol.value,
        "start_us": _us(time.start_ticks),
        "steps_us": _us(time.step_ticks),
        "transfer_us": _us(time.transfer_ticks),
        "own_us": _us(time.own_ticks),
    }


def _provenance_document(provenance: SearchProvenance) -> JsonObject:
    return {
        "found_by": provenance.found_by,
        "seed": provenance.seed,
        "evaluations": provenance.evaluations,
        "simulations": provenance.simulations,
        "reproducible": provenance.reproducible,
        "ortools": provenance.solver,
        "why": [{"what": what, "slower_without": loss} for what, loss in provenance.why],
    }


def _us(ticks: int) -> float:
    return ticks / TICKS_PER_US
