"""The JSON Schema of ``magus-layer-policy/1``; docs/layer_policy.schema.json holds it."""

from ...compiler.ir import JsonObject, Seams
from ...compiler.ir.topologies import TOPOLOGIES
from ...compiler.resolve.expect.expectation import ON_OVERLAP
from ...compiler.text.schema_parts import DIALECT, list_of, object_of, one_of, whole_number
from ...compiler.text.vocabulary import MAX_BATCHES, MAX_EXTENT, MAX_RANKS
from .layer_table import SCHEMA
from .schema import MAX_BYTES, MAX_RULES


def layer_policy_schema() -> JsonObject:
    """Return the schema as a JSON object."""
    text = {"type": "string"}
    properties = {
        "schema": {"const": SCHEMA},
        "magus": text,
        "hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "marks": list_of(text, MAX_RULES),
        "rules": list_of(_rule(), MAX_RULES),
    }
    return {"$schema": DIALECT, "title": "A policy table of Magus for layers", **object_of(properties, [*properties])}


def _rule() -> JsonObject:
    word, size, gain = {"type": "string"}, whole_number(1, MAX_BYTES), {"type": "number", "minimum": 0}
    properties = {
        "workload": word,
        "model": word,
        "gpu": word,
        "ranks": whole_number(1, MAX_RANKS),
        "topology": one_of([topology.name for topology in TOPOLOGIES]),
        "axis": word,
        "min": size,
        "max": size,
        "multiple_of": size,
        "verdict": one_of([each.value for each in ON_OVERLAP]),
        "schedule": word,
        "expression": {"type": ["string", "null"]},
        "batches": whole_number(1, MAX_BATCHES),
        "ahead": whole_number(0, MAX_EXTENT),
        "seams": one_of([each.value for each in Seams]),
        "sums_first": {"type": "boolean"},
        "steps": list_of(_step(), MAX_RULES),
        "gain": {"type": "array", "items": gain, "minItems": 2, "maxItems": 2},
        "loss": gain,
        "sizes": list_of(size, MAX_RULES),
    }
    return object_of(properties, [key for key in properties if key != "model"])


def _step() -> JsonObject:
    word, count = {"type": "string"}, whole_number(0, MAX_EXTENT)
    properties = {
        "part": word,
        "op": word,
        "schedule": {"type": ["string", "null"]},
        "copy_engines": count,
        "copy_sms": count,
        "stream": {"type": "integer"},
        "priority": {"type": "integer"},
        "beside": {"type": ["string", "null"]},
    }
    return object_of(properties, tuple(properties))
