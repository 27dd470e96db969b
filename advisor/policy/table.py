"""Policy tables as data and as JSON, ``magus-policy/1``: rules of which the first that matches wins.

``reader.py`` reads them without Magus. What no rule matches has no answer: a runtime then does what it did before.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from ... import __version__
from ...compiler.ir import JsonObject

SCHEMA = "magus-policy/1"
KEYS = ("pattern", "gpu", "ranks", "topology", "dtype", "n", "k")
"""What a rule compares for equality, as far as it says it; the size on its axis lies in a range."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One schedule for a range of sizes.

    ``n`` and ``k`` are None for a collective alone. The rule holds for sizes of ``axis`` (``m`` or ``num_bytes``) from
    ``least`` to ``most`` that are multiples of ``multiple_of``. ``gain`` are the lowest and the highest predicted
    speedup over the baseline at ``sizes``, all that were looked at, ``loss`` the most by which it is behind the fastest
    schedule there. ``copy_engines`` and ``copy_sms`` are what the schedule moves data with, per GPU. ``implementation``
    is one that is faster than the library at all these sizes, beyond its error; empty if none is known. ``nodes``
    counts the nodes of the system; the JSON does not say it.
    """

    pattern: str
    gpu: str
    ranks: int
    topology: str
    dtype: str
    n: int | None
    k: int | None
    axis: str
    least: int
    most: int
    multiple_of: int
    verdict: str
    schedule: str
    template: str
    algorithm: str
    protocol: str
    chunks: int
    copy_engines: int
    copy_sms: int
    gain: tuple[float, float]
    loss: float
    sizes: tuple[int, ...]
    implementation: str = ""
    nodes: int = 1

    def document(self) -> JsonObject:
        """Return the rule as JSON; what it does not compare is left out."""
        keys = {key: getattr(self, key) for key in KEYS if getattr(self, key) is not None}
        return {
            **keys,
            "axis": self.axis,
            "min": self.least,
            "max": self.most,
            "multiple_of": self.multiple_of,
            "verdict": self.verdict,
            "schedule": self.schedule,
            "template": self.template,
            "algorithm": self.algorithm or None,
            "protocol": self.protocol,
            "chunks": self.chunks,
            "copy_engines": self.copy_engines,
            "copy_sms": self.copy_sms,
            "gain": [round(each, 4) for each in self.gain],
            "loss": round(self.loss, 4),
            "sizes": list(self.sizes),
            "implementation": self.implementation or None,
        }


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Rules in their order; ``simulated`` is whether their times are, ``marks`` are warnings for the reader."""

    rules: tuple[PolicyRule, ...]
    simulated: bool
    confidence: str
    marks: tuple[str, ...] = ()

    def document(self) -> JsonObject:
        """Return the table as JSON, with the hash of its rules."""
        evidence = {"times": "simulated" if self.simulated else "predicted", "confidence": self.confidence}
        return table_document(SCHEMA, [rule.document() for rule in self.rules], self.marks, evidence)


def table_document(
    schema: str, rules: list[JsonObject], marks: Sequence[str], evidence: JsonObject | None = None
) -> JsonObject:
    """Return a table as JSON: what made it, the hash of its ``rules``, ``evidence`` and marks."""
    head = {"schema": schema, "magus": __version__, "hash": rules_hash(rules)}
    return {**head, **(evidence or {}), "marks": list(marks), "rules": rules}


def rules_hash(rules: list[JsonObject]) -> str:
    """Return ``sha256:`` and the hash of the canonical JSON of ``rules``."""
    text = json.dumps(rules, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def policy_text(document: JsonObject) -> str:
    """Return the document with one rule per line, as a reader compares files."""
    head = {key: value for key, value in document.items() if key != "rules"}
    rules = ",\n".join(f"    {json.dumps(rule)}" for rule in document["rules"])
    lines = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{lines},\n  "rules": [\n{rules}\n  ]\n}}\n'
