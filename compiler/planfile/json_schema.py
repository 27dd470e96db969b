"""The JSON Schema of ``magus-plan/1``, draft 2020-12.

docs/plan.schema.json holds it, ``magus plan --schema`` prints it. It describes the form alone. Known names, regions
within their shards and complete transfers depend on the scenario; the reader checks them.
"""

from ..ir import PLAN_MODES, DType, EngineKind, Pattern
from ..planning.execution import OPTIONS
from ..planning.knobs import words_of
from ..text.json_items import MAX_NAME
from ..text.schema_parts import DIALECT, list_of, object_of, one_of, whole_number
from ..text.vocabulary import MAX_EXTENT, MAX_RANKS, MAX_STREAMS
from .fingerprint import Json
from .from_json import MAX_ENGINES, MAX_KERNELS, MAX_STEPS, SCENARIO_KEYS, TRANSFER_KINDS
from .to_json import SCHEMA

TITLE: dict[str, Json] = {
    "expression": {"type": "string"},
    "hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
}
STEPS_OR_RANKS: Json = [{"required": ["steps"]}, {"required": ["ranks"], "not": {"required": ["overrides"]}}]


def plan_schema() -> dict[str, Json]:
    """The schema as a JSON object."""
    properties: dict[str, Json] = {"schema": {"const": SCHEMA}, **TITLE, **body_properties()}
    return {
        "$schema": DIALECT,
        "title": "A chunk plan of Magus",
        **object_of(properties, ("schema", "scenario", "engine")),
        "oneOf": STEPS_OR_RANKS,
        "$defs": definitions(),
    }


def body_properties() -> dict[str, Json]:
    """The keys of a plan, beside its schema and hash; they refer to ``definitions``."""
    steps = list_of({"$ref": "#/$defs/step"}, MAX_STEPS)
    override = object_of({"rank": whole_number(0, MAX_RANKS - 1), "step": {"$ref": "#/$defs/step"}}, ("rank", "step"))
    return {
        "expression": {"type": "string"},
        "scenario": {"$ref": "#/$defs/scenario"},
        "engine": {"$ref": "#/$defs/engine"},
        "tactics": object_of({word: one_of(knob.words) for word, knob in OPTIONS.items()}, ()),
        "overlaps": {"type": "boolean"},
        "steps": steps,
        "overrides": list_of(override, MAX_STEPS),
        "ranks": {"type": "array", "items": steps, "minItems": 1, "maxItems": MAX_RANKS},
    }


def definitions() -> dict[str, Json]:
    """What the keys of a plan refer to."""
    return {
        "scenario": _scenario(),
        "engine": object_of(
            {
                "kind": one_of(words_of(EngineKind)),
                "count": whole_number(1, MAX_ENGINES),
                "mode": one_of(tuple(mode.name.lower() for mode in PLAN_MODES)),
            },
            ("kind", "count"),
        ),
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME},
        "names": list_of({"$ref": "#/$defs/name"}, MAX_STEPS),
        "span": {"type": "array", "items": whole_number(0, MAX_EXTENT), "minItems": 2, "maxItems": 2},
        "region": object_of(
            {
                "owner": whole_number(0, MAX_RANKS - 1),
                "rows": {"$ref": "#/$defs/span"},
                "cols": {"$ref": "#/$defs/span"},
            },
            ("owner", "rows", "cols"),
        ),
        "step": {"oneOf": [_transfer(), _tiles(), _reduction()]},
    }


def _scenario() -> Json:
    """Return the schema of the fingerprint; shapes of kernels are not described further."""
    counts = list_of(whole_number(0, MAX_EXTENT), MAX_RANKS)
    shape: Json = {"type": "object"}
    tensor = object_of(
        {
            "rows": whole_number(1, MAX_EXTENT),
            "cols": whole_number(1, MAX_EXTENT),
            "dtype": one_of(words_of(DType)),
        },
        ("rows", "cols", "dtype"),
    )
    fits = (
        whole_number(1, MAX_RANKS),
        one_of(words_of(Pattern)),
        tensor,
        shape,
        shape,
        shape,
        *(counts, list_of(counts, MAX_RANKS), list_of(counts, MAX_RANKS)),
    )
    return object_of(dict(zip(SCENARIO_KEYS, fits, strict=True)), ("ranks", "pattern"))


def _transfer() -> Json:
    peer: Json = {"oneOf": [{"const": "all"}, whole_number(1, MAX_RANKS - 1)]}
    required: dict[str, Json] = {"region": {"$ref": "#/$defs/region"}, "peer": peer, "signal": {"$ref": "#/$defs/name"}}
    optional: dict[str, Json] = {"lane": whole_number(0, MAX_ENGINES - 1), "reduce": {"type": "boolean"}}
    return _step(TRANSFER_KINDS, required, optional)


def _tiles() -> Json:
    regions: Json = {
        "type": "array",
        "items": {"$ref": "#/$defs/region"},
        "minItems": 1,
        "maxItems": MAX_STEPS,
    }
    optional: dict[str, Json] = {"stream": whole_number(0, MAX_STREAMS - 1), "accumulate": {"type": "boolean"}}
    optional["kernel"] = whole_number(0, MAX_KERNELS - 1)
    return _step(("tiles",), {"regions": regions, "k": {"$ref": "#/$defs/span"}}, optional)


def _reduction() -> Json:
    required: dict[str, Json] = {"region": {"$ref": "#/$defs/region"}, "parts": whole_number(2, MAX_RANKS)}
    return _step(("reduction",), required, {"stream": whole_number(0, MAX_STREAMS - 1)})


def _step(kinds: tuple[str, ...], required: dict[str, Json], optional: dict[str, Json]) -> Json:
    head: dict[str, Json] = {"kind": one_of(kinds), "name": {"$ref": "#/$defs/name"}}
    return object_of({**head, **required, "after": {"$ref": "#/$defs/names"}, **optional}, (*head, *required))
