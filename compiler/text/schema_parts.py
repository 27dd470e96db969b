"""Parts of JSON Schemas, draft 2020-12."""

from collections.abc import Mapping, Sequence

from ..ir import JsonObject

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def object_of(properties: Mapping[str, object], required: Sequence[str]) -> JsonObject:
    """Return the schema of an object that has no other keys than ``properties``."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(items: object, most: int) -> JsonObject:
    """Return the schema of an array of at most ``most`` items."""
    return {"type": "array", "items": items, "maxItems": most}


def one_of(words: Sequence[str]) -> JsonObject:
    """Return the schema of one of ``words``."""
    return {"enum": list(words)}


def whole_number(low: int, high: int) -> JsonObject:
    """Return the schema of a whole number from ``low`` to ``high``."""
    return {"type": "integer", "minimum": low, "maximum": high}
