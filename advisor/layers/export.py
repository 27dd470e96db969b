"""Advice on a graph as a JSON document."""

from ...compiler.ir import TICKS_PER_US, JsonObject
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_expression import graph_choice_text, graph_expression_of
from ..answer.export import bound_document
from .advice import GraphAdvice, GraphCandidate, OpAdvice
from .offers.offer import LayerOffer

SCHEMA = "magus-graph-advice/1"


def graph_advice_document(advice: GraphAdvice) -> JsonObject:
    """Return the document of ``magus advise --json`` on a graph; times are in us."""
    serial = advice.serial
    return {
        "schema": SCHEMA,
        "scenario": advice.scenario.name,
        "workload": advice.scenario.name,
        "verdict": advice.verdict.value,
        "layers": advice.layers,
        "speedup": advice.speedup,
        "recommended": _candidate(advice.recommended, serial) | {"block": _block(advice)},
        "serial": _candidate(serial, serial),
        "candidates": [_candidate(each, serial) for each in advice.candidates],
        "ops": [_op(op) for op in advice.ops],
        "reasons": list(advice.reasons),
        "bound": None if advice.bound is None else bound_document(advice.bound),
        "gap_to_bound": advice.gap_to_bound,
        "kernels_us": advice.kernels_ticks / TICKS_PER_US,
        "copier": advice.copier,
        "searched": advice.searched,
        "seconds": advice.seconds,
        "marks": list(advice.marks),
        "interrupted": advice.interrupted,
        "outside_calibration": list(advice.outside_calibration),
        "implementations": [_offer(advice, offer) for offer in advice.offers],
    }


def _candidate(candidate: GraphCandidate, serial: GraphCandidate) -> JsonObject:
    whole = None if candidate.result is None else candidate.result.simulated.whole
    return {
        "name": candidate.name,
        "what": candidate.what,
        "expression": _expression(candidate),
        "batches": candidate.choice.batches,
        "us": candidate.us,
        "ticks": candidate.ticks,
        "gain": serial.ticks / candidate.ticks,
        "simulated": candidate.result is not None,
        "estimated": candidate.is_estimate,
        "unit_bytes": candidate.unit_bytes,
        "staging_bytes": None if whole is None else whole.schedule.staging_bytes,
        "baseline": candidate.is_baseline,
        "outside": candidate.is_outside,
        "side_by_side": candidate.side_by_side,
    }


def _offer(advice: GraphAdvice, offer: LayerOffer) -> JsonObject:
    """What can be switched on today: its settings, and how far it is behind the recommended schedule."""
    return {
        "name": offer.implementation,
        "about": offer.about,
        "schedule": offer.schedule,
        "verdict": advice.verdict_on(offer).value,
        "us": offer.all_ticks / TICKS_PER_US,
        "extra_us": offer.extra_ticks / TICKS_PER_US,
        "gain": advice.gain_of(offer),
        "loss": advice.loss_of(offer),
        "unknown": offer.unknown or None,
        "flags": list(offer.table.flags),
        "settings": [
            {
                "layer": each.layer,
                "op": each.op,
                "method": each.method,
                "num_sm": each.num_sm or None,
                "num_splits": each.num_splits or None,
                "copy_engine": each.copy_engine,
            }
            for each in offer.table.settings
        ],
    }


def _expression(candidate: GraphCandidate) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return graph_expression_of(candidate.choice)
    except ScheduleError:
        return None


def _block(advice: GraphAdvice) -> str | None:
    """The schedule as a block for the file; None where an op has a plan written out."""
    try:
        return graph_choice_text(advice.recommended.choice, advice.scenario.name)
    except ScheduleError:
        return None


def _op(op: OpAdvice) -> JsonObject:
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
