"""Look up policy tables without Magus: copy this file into a runtime. Python 3.8 or later, no dependencies.

A rule is about one op, or about all ops of a layer: ``ops`` says what each does.

policy = Policy.load("policy.json")
rule = policy.rule(pattern="AG+GEMM", gpu="H100", ranks=8, topology="switch",
                       dtype="bf16", n=3584, k=8192, m=4093)
m = rule["size"] if rule else 4093  # 4096: rows to add are what the table allows
chunks = rule["ops"][0]["chunks"] if rule else None  # None: keep what the runtime does without advice
layer = layers.rule(workload="layer_back", gpu="H100", ranks=8, topology="switch", model="Llama-3.1-70B", tokens=4096)
for op in layer["ops"] if layer else (): ...  # in the order in which they are issued
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

SCHEMA = "magus-policy/2"
OLDER = ("magus-policy/1", "magus-layer-policy/1")
MAX_BYTES = 1 << 24
KEYS = ("pattern", "workload", "model", "gpu", "ranks", "topology", "dtype", "n", "k")


class PolicyError(ValueError):
    """A file that is no policy table, or one that was altered."""


class Policy:
    """The rules of a table. The first that matches wins; where none does there is no advice."""

    def __init__(self, document: Any) -> None:
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema in OLDER:
            raise PolicyError(f"{schema} is of an older Magus: write it again, magus export FILE --to policy")
        if schema != SCHEMA:
            raise PolicyError(f"no {SCHEMA}")
        rules = document.get("rules")
        text = json.dumps(rules, sort_keys=True, separators=(",", ":"))
        if document.get("hash") != "sha256:" + hashlib.sha256(text.encode()).hexdigest():
            raise PolicyError("the rules are not those that were written: the hash differs")
        if not isinstance(rules, list) or not all(_is_rule(rule) for rule in rules):
            raise PolicyError("a rule has no axis, no range, no schedule, no ops, no system or no workload")
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

    def rule(self, **requested: Any) -> dict[str, Any] | None:
        """Return the first rule that matches, with the padded ``size`` to run; None without one."""
        for rule in self.rules:
            size: Any = requested.get(rule["axis"])
            if not hasattr(size, "__index__") or size <= 0:
                continue
            added = -size % rule["multiple_of"]
            fits = added <= rule.get("pad", 0) and rule["min"] <= size + added and size <= rule["max"]
            if fits and all(rule[key] == requested.get(key) for key in KEYS if key in rule):
                return {**rule, "size": size + added}
        return None


def _is_rule(rule: object) -> bool:
    if not isinstance(rule, dict):
        return False
    numbers, names = ("ranks", "min", "max", "multiple_of"), ("gpu", "topology", "axis", "schedule")
    about, ops = ("workload",) if "workload" in rule else ("pattern", "dtype"), rule.get("ops")
    return (
        all(isinstance(rule.get(key), str) for key in (*names, *about))
        and isinstance(ops, list)
        and len(ops) > 0
        and all(isinstance(op, dict) and isinstance(op.get("op"), str) for op in ops)
        and all(type(rule.get(key)) is int for key in numbers)
        and type(rule.get("pad", 0)) is int
        and rule["multiple_of"] > 0
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
