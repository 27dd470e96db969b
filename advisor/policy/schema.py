"""The JSON Schema of ``magus-policy/2``; docs/policy.schema.json holds it."""

from ...compiler.ir import DType, JsonObject, Seams
from ...compiler.ir.topologies import TOPOLOGIES
from ...compiler.request.request import PATTERNS
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.schema_parts import DIALECT, list_of, object_of, one_of, whole_number
from ...compiler.text.vocabulary import MAX_BATCHES, MAX_EXTENT, MAX_RANKS
from ..candidates.advice import Confidence
from .table import SCHEMA

MAX_RULES = 65_536
MAX_BYTES = 1 << 50


def policy_schema() -> JsonObject:
    """Return the schema as a JSON object."""
    text = {"type": "string"}
    properties = {
        "schema": {"const": SCHEMA},
        "magus": text,
        "hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "times": one_of(("simulated", "predicted")),
        "confidence": one_of([each.value for each in Confidence]),
        "marks": list_of(text, MAX_RULES),
        "rules": list_of(_rule(), MAX_RULES),
    }
    return {"$schema": DIALECT, "title": "A policy table of Magus", **object_of(properties, tuple(properties))}


def _rule() -> JsonObject:
    word, or_null = {"type": "string"}, {"type": ["string", "null"]}
    size, gain = whole_number(1, MAX_BYTES), {"type": "number", "minimum": 0}
    properties = {
        "pattern": one_of([each.value for each in PATTERNS]),
        "workload": word,
        "model": word,
        "gpu": word,
        "ranks": whole_number(1, MAX_RANKS),
        "topology": one_of([topology.name for topology in TOPOLOGIES]),
        "dtype": one_of([each.value for each in DType]),
        "n": whole_number(1, MAX_EXTENT),
        "k": whole_number(1, MAX_EXTENT),
        "axis": word,
        "min": size,
        "max": size,
        "multiple_of": size,
        "verdict": one_of([each.value for each in Verdict]),
        "schedule": word,
        "together": {"oneOf": [{"type": "null"}, _together()]},
        "ops": {**list_of(_op(), MAX_RULES), "minItems": 1},
        "gain": {"type": "array", "items": gain, "minItems": 2, "maxItems": 2},
        "loss": gain,
        "sizes": list_of(size, MAX_RULES),
        "implementation": or_null,
    }
    of_one_kind = ("pattern", "workload", "model", "dtype", "n", "k")
    return object_of(properties, [key for key in properties if key not in of_one_kind])


def _together() -> JsonObject:
    properties = {
        "expression": {"type": ["string", "null"]},
        "batches": whole_number(1, MAX_BATCHES),
        "ahead": whole_number(0, MAX_EXTENT),
        "seams": one_of([each.value for each in Seams]),
        "sums_first": {"type": "boolean"},
    }
    return object_of(properties, tuple(properties))


def _op() -> JsonObject:
    word, or_null, count = {"type": "string"}, {"type": ["string", "null"]}, whole_number(0, MAX_EXTENT)
    properties = {
        "part": word,
        "op": word,
        "schedule": or_null,
        "template": or_null,
        "algorithm": or_null,
        "protocol": or_null,
        "chunks": {"type": ["integer", "null"], "minimum": 1},
        "copy_engines": count,
        "copy_sms": count,
        "stream": {"type": "integer"},
        "priority": {"type": "integer"},
        "beside": or_null,
    }
    return object_of(properties, tuple(properties))
