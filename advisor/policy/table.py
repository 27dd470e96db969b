"""Policy tables as data and as JSON, ``magus-policy/2``: rules of which the first that matches wins.

A rule says what each op of a workload does, of one op or of several. ``reader.py`` reads them without Magus. What no
rule matches has no answer: a runtime then does what it did before.
"""

import hashlib
import json
from dataclasses import dataclass, field

from ... import __version__
from ...compiler.ir import GraphChoice, JsonObject
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_expression import graph_expression_of
from ..candidates.advice import Advice

SCHEMA = "magus-policy/2"
KEYS = ("pattern", "workload", "model", "gpu", "ranks", "topology", "dtype", "n", "k")
"""What a rule compares for equality, as far as it says it; the size on its axis lies in a range."""


@dataclass(frozen=True, slots=True)
class OpRule:
    """A part of a schedule, in the order of issue: an op, or its kernel or collective where it is apart.

    ``schedule`` is that of the part alone, None for a kernel that is whole; ``template``, ``algorithm``, ``protocol``
    and ``chunks`` are what it says, empty or 0 where it is written out. ``copy_engines`` and ``copy_sms`` move its
    data, per GPU. Kernels of ``stream`` 0 run one after the other, lone collectives in a stream of theirs. ``beside``
    is the op with whose kernel a collective begins, empty where it begins when what it needs is there.
    """

    part: str
    op: str
    schedule: str | None
    template: str = ""
    algorithm: str = ""
    protocol: str = ""
    chunks: int = 0
    copy_engines: int = 0
    copy_sms: int = 0
    stream: int = 0
    priority: int = 0
    beside: str = ""

    def document(self) -> JsonObject:
        """Return the part as JSON."""
        return {
            "part": self.part,
            "op": self.op,
            "schedule": self.schedule,
            "template": self.template or None,
            "algorithm": self.algorithm or None,
            "protocol": self.protocol or None,
            "chunks": self.chunks or None,
            "copy_engines": self.copy_engines,
            "copy_sms": self.copy_sms,
            "stream": self.stream,
            "priority": self.priority,
            "beside": self.beside or None,
        }


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One schedule for a range of sizes, by what each op does in it.

    Of one op ``pattern``, ``dtype``, ``n`` and ``k`` are compared, of several ``workload`` and ``model``; what is empty
    or None is not. The rule holds for sizes of ``axis`` (``m``, ``num_bytes``, ``tokens`` or a parameter of the file)
    from ``least`` to ``most`` that are multiples of ``multiple_of``. ``gain`` are the lowest and the highest predicted
    speedup over the baseline at ``sizes``, all that were looked at, ``loss`` the most by which it is behind the fastest
    schedule there. ``implementation`` is one that is faster than the library at all these sizes, beyond its error;
    empty if none is known. ``choice`` is the schedule of several ops, None of one. ``nodes`` counts the nodes of the
    system; the JSON does not say it.
    """

    gpu: str
    ranks: int
    topology: str
    axis: str
    least: int
    most: int
    multiple_of: int
    verdict: str
    schedule: str
    ops: tuple[OpRule, ...]
    gain: tuple[float, float]
    loss: float
    sizes: tuple[int, ...]
    pattern: str = ""
    workload: str = ""
    model: str = ""
    dtype: str = ""
    n: int | None = None
    k: int | None = None
    implementation: str = ""
    choice: GraphChoice | None = None
    nodes: int = 1

    @property
    def op(self) -> OpRule:
        """What the one op does."""
        (op,) = self.ops
        return op

    def document(self) -> JsonObject:
        """Return the rule as JSON; what it does not compare is left out."""
        keys = {key: getattr(self, key) for key in KEYS if getattr(self, key)}
        return {
            **keys,
            "axis": self.axis,
            "min": self.least,
            "max": self.most,
            "multiple_of": self.multiple_of,
            "verdict": self.verdict,
            "schedule": self.schedule,
            "together": None if self.choice is None else _together(self.choice),
            "ops": [op.document() for op in self.ops],
            "gain": [round(each, 4) for each in self.gain],
            "loss": round(self.loss, 4),
            "sizes": list(self.sizes),
            "implementation": self.implementation or None,
        }


def _together(choice: GraphChoice) -> JsonObject:
    """What a schedule says of all ops together."""
    return {
        "expression": _expression(choice),
        "batches": choice.batches,
        "ahead": choice.ahead,
        "seams": choice.seams.value,
        "sums_first": choice.sums_first,
    }


def _expression(choice: GraphChoice) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return graph_expression_of(choice)
    except ScheduleError:
        return None


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Rules in their order; ``simulated`` is whether their times are, ``marks`` are warnings for the reader.

    ``points`` are the answers for the sizes that were asked, which the JSON does not say.
    """

    rules: tuple[PolicyRule, ...]
    simulated: bool
    confidence: str
    marks: tuple[str, ...] = ()
    points: tuple[tuple[int, Advice], ...] = field(default=(), repr=False, compare=False)

    def document(self) -> JsonObject:
        """Return the table as JSON, with the hash of its rules."""
        rules = [rule.document() for rule in self.rules]
        return {
            "schema": SCHEMA,
            "magus": __version__,
            "hash": rules_hash(rules),
            "times": "simulated" if self.simulated else "predicted",
            "confidence": self.confidence,
            "marks": list(self.marks),
            "rules": rules,
        }


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
