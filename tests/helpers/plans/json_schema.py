"""What JSON Schema, draft 2020-12, says of a value, for the keywords that schemas of Magus have, no others."""

import re
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "null": type(None),
}
_NO_RULES = {"$schema", "$defs", "title"}


def is_valid(value: object, schema: dict[str, Any], root: dict[str, Any] | None = None) -> bool:
    """Whether ``value`` satisfies ``schema``."""
    whole = schema if root is None else root
    return all(_holds(word, rule, value, schema, whole) for word, rule in schema.items() if word not in _NO_RULES)


def _holds(word: str, rule: Any, value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    match word:
        case "$ref":
            return is_valid(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            return any(
                isinstance(value, _TYPES[kind]) and isinstance(value, bool) is (kind == "boolean") for kind in kinds
            )
        case "const" | "enum":
            return any(type(value) is type(each) and value == each for each in ([rule] if word == "const" else rule))
        case "oneOf":
            return sum(is_valid(value, each, root) for each in rule) == 1
        case "not":
            return not is_valid(value, rule, root)
        case "minimum" | "maximum":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return not number or bool(value >= rule if word == "minimum" else value <= rule)
        case "pattern" | "maxLength":
            if not isinstance(value, str):
                return True
            return re.search(rule, value) is not None if word == "pattern" else bool(len(value) <= rule)
        case "minItems" | "maxItems" | "items":
            return not isinstance(value, list) or _items_hold(word, rule, value, root)
        case "required":
            return not isinstance(value, dict) or all(key in value for key in rule)
        case "properties":
            known = [key for key in rule if isinstance(value, dict) and key in value]
            return all(is_valid(value[key], rule[key], root) for key in known)
        case "additionalProperties":
            assert rule is False
            return not isinstance(value, dict) or all(key in schema["properties"] for key in value)
    raise AssertionError(f"the schema says {word}, which is not known here")


def _items_hold(word: str, rule: Any, value: list[Any], root: dict[str, Any]) -> bool:
    if word == "items":
        return all(is_valid(each, rule, root) for each in value)
    return bool(len(value) >= rule if word == "minItems" else len(value) <= rule)
