"""The JSON Schema of ``magus-graph-plan/1``, draft 2020-12.

docs/graph_plan.schema.json holds it, ``magus plan FILE --schema`` prints it where FILE has a graph. As that of plans it
describes the form alone.
"""

from ..text.json_items import MAX_NAME
from ..text.schema_parts import DIALECT, list_of, object_of, one_of, whole_number
from ..text.vocabulary import MAX_BATCHES, MAX_RANKS, MAX_STREAMS
from .fingerprint import Json
from .from_json import MAX_STEPS
from .graph_from_json import AWAITED, MAX_LAYERS, MAX_PARTS, MAX_PRIORITY, MAX_WAITS
from .json_schema import STEPS_OR_RANKS, TITLE, body_properties, definitions
from .to_json import GRAPH_SCHEMA

_OP: Json = {"type": "string", "maxLength": MAX_NAME}
"""An op or a part: of a layer beyond the first ``dh@2``, of a collective apart ``dx.reduce_scatter``."""


def graph_plan_schema() -> dict[str, Json]:
    """The schema as a JSON object."""
    plan: Json = {**object_of(body_properties(), ("scenario", "engine")), "oneOf": STEPS_OR_RANKS}
    properties: dict[str, Json] = {
        "schema": {"const": GRAPH_SCHEMA},
        **TITLE,
        "scenario": _graph(),
        "sums_priority": whole_number(-MAX_PRIORITY, MAX_PRIORITY),
        "plans": list_of(plan, MAX_PARTS),
        "parts": {"type": "array", "items": _part(), "minItems": 1, "maxItems": MAX_PARTS},
    }
    return {
        "$schema": DIALECT,
        "title": "A plan of a graph of Magus",
        **object_of(properties, ("schema", "scenario", "plans", "parts")),
        "$defs": definitions(),
    }


def _graph() -> Json:
    """Return the schema of the fingerprint; the shapes of ops are those of plans."""
    scenario = definitions()["scenario"]
    assert isinstance(scenario, dict), "a schema is an object"
    shapes = scenario["properties"]
    assert isinstance(shapes, dict), "properties are an object"
    read = object_of(
        {
            "from": {"type": ["string", "null"]},
            "what": one_of(("moved",)),
            "by_rows": {"type": "boolean"},
            "moves": {"type": "boolean"},
        },
        ("from",),
    )
    keys = {key: value for key, value in shapes.items() if key != "ranks"}
    op = object_of({"name": _OP, **keys, "reads": list_of(read, MAX_PARTS)}, ("name", "pattern", "reads"))
    return object_of(
        {
            "ranks": whole_number(1, MAX_RANKS),
            "batches": whole_number(1, MAX_BATCHES),
            "layers": whole_number(1, MAX_LAYERS),
            "ops": list_of(op, MAX_PARTS),
        },
        ("ranks", "batches", "layers", "ops"),
    )


def _part() -> Json:
    wait = object_of(
        {"on": _OP, "what": one_of(tuple(AWAITED)), "kernels_only": {"type": "boolean"}},
        ("on", "what"),
    )
    step = object_of(
        {"step": {"$ref": "#/$defs/name"}, "on": _OP, "of": {"$ref": "#/$defs/name"}}, ("step", "on", "of")
    )
    staging = object_of(
        {"bytes": {"type": "integer", "minimum": 0}, "until": list_of(_OP, MAX_PARTS)}, ("bytes", "until")
    )
    properties: dict[str, Json] = {
        "name": _OP,
        "op": _OP,
        "layer": whole_number(1, MAX_LAYERS),
        "plan": whole_number(0, MAX_PARTS - 1),
        "stream": whole_number(-1, MAX_STREAMS - 1),
        "priority": whole_number(-MAX_PRIORITY, MAX_PRIORITY),
        "behind_kernels": {"type": "boolean"},
        "staging": staging,
        "waits": list_of(wait, MAX_STEPS),
        "step_waits": list_of(step, MAX_WAITS),
    }
    return object_of(properties, ("name", "op", "plan"))
