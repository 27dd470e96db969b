"""Look up policy tables without Magus: copy this file into a runtime. Python 3.8 or later, no dependencies.

A table is about pairs, or about whole layers, ``magus-layer-policy/1``.

policy = Policy.load("policy.json")
rule = policy.rule(pattern="AG+GEMM", gpu="H100", ranks=8, topology="switch",
                       dtype="bf16", n=3584, k=8192, m=4096)
chunks = rule["chunks"] if rule else None  # None: keep what the runtime does without advice
layer = layers.rule(workload="layer_back", gpu="H100", ranks=8, topology="switch", model="Llama-3.1-70B", tokens=4096)
for step in layer["steps"] if layer else (): ...  # in the order in which they are issued
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

SCHEMAS = ("magus-policy/1", "magus-layer-policy/1")
MAX_BYTES = 1 << 24
KEYS = ("pattern", "workload", "model", "gpu", "ranks", "topology", "dtype", "n", "k")


class PolicyError(ValueError):
    """A file that is no policy table, or one that was altered."""


class Policy:
    """The rules of a table. The first that matches wins; where none does there is no advice."""

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict) or document.get("schema") not in SCHEMAS:
            raise PolicyError(f"no {' or '.join(SCHEMAS)}")
        rules = document.get("rules")
        text = json.dumps(rules, sort_keys=True, separators=(",", ":"))
        if document.get("hash") != "sha256:" + hashlib.sha256(text.encode()).hexdigest():
            raise PolicyError("the rules are not those that were written: the hash differs")
        names = ("pattern", "dtype") if document["schema"] == SCHEMAS[0] else ("workload",)
        if not isinstance(rules, list) or not all(_is_rule(rule, names) for rule in rules):
            raise PolicyError("a rule has no axis, no range, no schedule or no system")
        self.rules: list[dict[str, Any]] = rules

    @classmethod
    def load(cls, path: str) -> Policy:
        """Read a file; PolicyError if it is no sound table, OSError if it cannot be read."""
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise PolicyError(f"larger than {MAX_BYTES} bytes")
        try:
            return cls(json.loads(data.decode("utf-8"), object_pairs_hook=_once))
        except (ValueError, RecursionError) as error:
            raise PolicyError(f"no JSON: {error}") from None

    def rule(self, **asked: Any) -> dict[str, Any] | None:
        """Return the first rule that matches, None without one; ``asked`` has the KEYS and the size."""
        for rule in self.rules:
            size = asked.get(rule["axis"])
            if (
                hasattr(size, "__index__")
                and rule["min"] <= size <= rule["max"]
                and size % rule["multiple_of"] == 0
                and all(rule[key] == asked.get(key) for key in KEYS if key in rule)
            ):
                return rule
        return None


def _is_rule(rule: object, said: tuple[str, ...]) -> bool:
    numbers, names = ("ranks", "min", "max", "multiple_of"), ("gpu", "topology", *said)
    return (
        isinstance(rule, dict)
        and all(isinstance(rule.get(key), str) for key in names)
        and isinstance(rule.get("axis"), str)
        and isinstance(rule.get("schedule"), str)
        and all(type(rule.get(key)) is int for key in numbers)
        and rule["multiple_of"] > 0
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
