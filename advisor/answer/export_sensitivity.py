"""The sensitivity of an answer as a JSON document: the table of times, and what follows from it."""

from ...compiler.ir import JsonObject
from ..candidates.sensitivity import ChangedNumber, RobustChoice, Sensitivity


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
