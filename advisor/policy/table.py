"""Policy tables as data and as JSON, ``magus-policy/2``: rules of which the first that matches wins.

A rule says what each op of a workload does, of one op or of several. ``reader.py`` reads them without Magus. What no
rule matches has no answer: a runtime then does what it did before.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar

from ... import __version__
from ...compiler.ir import TICKS_PER_US, DType, HandOff, JsonObject, Schedule, Settings
from ...compiler.ir.topologies import TOPOLOGIES
from ...compiler.ir.topologies import base as part
from ...compiler.planning.build import ScheduleError, expression_of_schedule
from ...compiler.request.request import PATTERNS
from ...compiler.resolve.expect.expectation import ON_OVERLAP, Verdict
from ...compiler.text.json_forms import DIALECT, list_of, object_of, one_of, whole_number
from ...compiler.text.records import Tabular
from ...compiler.text.vocabulary import MAX_BATCHES, MAX_EXTENT, MAX_GROUPS, MAX_RANKS
from ..candidates.advice import Advice, Confidence
from ..implementations.offers import Offer

SCHEMA = "magus-policy/2"
KEYS = ("pattern", "workload", "model", "gpu", "ranks", "topology", "dtype", "n", "k")
"""What a rule compares for equality, as far as it says it; the size on its axis lies in a range."""


PADDING = "a size is padded to the next multiple of multiple_of, by pad at most; the first rule that takes it so wins"


@dataclass(frozen=True, slots=True)
class OpRule:
    """A part of a schedule, in the order of issue: an op, or its kernel or collective where it is separated.

    ``schedule`` is that of the part alone, None for a kernel that is whole; ``template``, ``algorithm``, ``protocol``
    and ``chunks`` are what it says, empty or 0 where it is written out. ``copy_engines`` and ``copy_sms`` move its
    data, per GPU. Kernels of ``stream`` 0 run one after the other, lone collectives in a stream of theirs.
    ``starts_with`` is the op with whose kernel a collective begins, empty where it begins when what it needs is there.
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
    starts_with: str = ""

    def document(self) -> JsonObject:
        """Return the part as JSON."""
        empty = ("template", "algorithm", "protocol", "chunks", "starts_with")
        return asdict(self) | {name: getattr(self, name) or None for name in empty}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One schedule for a range of sizes, by what each op does in it.

    Of one op ``pattern``, ``dtype``, ``n`` and ``k`` are compared, of several ``workload`` and ``model``; what is empty
    or None is not. The rule holds for sizes of ``axis`` (``m``, ``num_bytes``, ``tokens`` or a parameter of the file)
    from ``least`` to ``most`` that are multiples of ``multiple_of`` once at most ``pad`` is added (``PADDING``).
    ``gain`` are the lowest and the highest predicted speedup over the baseline at ``sizes``, all that were looked at,
    ``loss`` the most by which it is behind the fastest schedule there. ``implementation`` is one that pays
    over the library at all these sizes (``Promise.pays``); empty if none is known. ``choice`` is the schedule of
    several ops, None of one. ``nodes`` counts the nodes of the system; the JSON does not say it.
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
    choice: Schedule | None = None
    nodes: int = 1
    pad: int = 0

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
            "pad": self.pad,
            "verdict": self.verdict,
            "schedule": self.schedule,
            "together": None if self.choice is None else _together(self.choice),
            "ops": [op.document() for op in self.ops],
            "gain": [round(each, 4) for each in self.gain],
            "loss": round(self.loss, 4),
            "sizes": list(self.sizes),
            "implementation": self.implementation or None,
        }


def _together(choice: Schedule) -> JsonObject:
    """What a schedule says of all ops together."""
    return {
        "expression": _expression(choice),
        "batches": choice.batches,
        "groups": list(choice.groups),
        "prefetch": choice.prefetch,
        "handoff": choice.handoff.value,
        "sums_first": choice.sums_first,
    }


def _expression(choice: Schedule) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return expression_of_schedule(choice)
    except ScheduleError:
        return None


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The advice at one size, with the settings of the file's parameters.

    Of several ops ``choice`` is the recommended schedule by its name in the sweep, and ``ticks`` has the times of all
    schedules of the sweep that can be carried out here, by name. Of one op they are None and empty.
    """

    settings: Settings
    advice: Advice
    choice: Schedule | None = None
    ticks: Mapping[str, int] = field(default_factory=dict)

    @property
    def offer(self) -> Offer | None:
        """The fastest implementation that pays, None if none is known to."""
        offers = self.advice.offers
        return next(iter(() if offers is None else offers.paying), None)

    @property
    def schedule(self) -> str:
        """The recommended schedule: its name in the sweep, or what it says."""
        return self.advice.recommended.expression if self.choice is None else self.choice.name

    def document(self) -> JsonObject:
        """Return the point as JSON: ``gain`` is of times, the interval is of what is ``promised`` as a kernel."""
        advice, interval = self.advice, self.advice.interval
        times = {name: ticks / TICKS_PER_US for name, ticks in self.ticks.items()}
        return {
            "settings": dict(self.settings),
            "verdict": advice.verdict.value,
            "schedule": self.schedule,
            "us": advice.recommended.best_us,
            "baseline": advice.serial.expression,
            "baseline_us": advice.serial.best_us,
            "gain": advice.speedup,
            "promised": None if advice.promise is None else advice.promise.speedup,
            "gain_low": None if interval is None else interval[0],
            "gain_high": None if interval is None else interval[1],
            "confidence": advice.confidence.value,
            "implementation": None if self.offer is None else self.offer.name,
            **({} if self.choice is None else {"schedules_us": times}),
        }


@dataclass(frozen=True, slots=True, repr=False)
class PolicyTable(Tabular):
    """Rules in their order; ``simulated`` is whether their times are, ``marks`` are warnings for the reader.

    ``points`` are the answers that the rules follow from, which the JSON does not say. Of several ops there are points
    without rules too, where more than one parameter varies.
    """

    rules: tuple[PolicyRule, ...]
    simulated: bool
    confidence: str
    marks: tuple[str, ...] = ()
    points: tuple[SweepPoint, ...] = field(default=(), repr=False, compare=False)

    ROWS: ClassVar[str] = "rules"

    @property
    def summary(self) -> str:
        """The number of rules, and how sure they are."""
        times = "simulated" if self.simulated else "predicted"
        return f"{len(self.rules)} rules, the first that matches wins; {times}, confidence {self.confidence}"

    @property
    def is_several(self) -> bool:
        """Whether it is about several ops."""
        return any(point.advice.scenario.only_case is None for point in self.points)

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
            "padding": PADDING,
            "rules": rules,
        }


_LEAST_FIRST = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def table_of(
    rules: Iterable[PolicyRule], advices: Sequence[Advice], points: Sequence[SweepPoint] = (), *, simulated: bool
) -> PolicyTable:
    """Return a table with the marks and the least confidence of the ``advices`` that its rules follow from."""
    confidence = min((advice.confidence for advice in advices), key=_LEAST_FIRST.index)
    marks = tuple(dict.fromkeys(mark for advice in advices for mark in advice.marks))
    return PolicyTable(tuple(rules), simulated, confidence.value, marks, tuple(points))


def rule_verdict(verdicts: Iterable[Verdict], *, is_serial: bool) -> Verdict:
    """Return the verdict on a schedule for sizes with these ``verdicts``: the least, a promise holds at all or is none.

    It is serial of one in which nothing overlaps.
    """
    if is_serial:
        return Verdict.SERIAL
    known = set(verdicts)
    least = next(verdict for verdict in reversed(ON_OVERLAP) if verdict in known)
    return Verdict.WORTH_TRYING if least is Verdict.SERIAL else least


def implementation_at_all(advices: Sequence[Advice]) -> str:
    """Return the implementation that pays in all ``advices``, empty if there is none.

    One whose error is measured in all comes first, then that with the least sum of times.
    """
    found: dict[str, list[Offer]] = {}
    for advice in advices:
        for offer in () if advice.offers is None else advice.offers.paying:
            found.setdefault(offer.name, []).append(offer)
    ranks = {
        name: (any(each.promise.verdict is not Verdict.OVERLAP for each in offers), sum(each.us for each in offers))
        for name, offers in found.items()
        if len(offers) == len(advices)
    }
    return min(ranks, key=ranks.__getitem__, default="")


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
        "padding": {"const": PADDING},
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
        "topology": one_of([topology.name for topology in (*TOPOLOGIES, part.TOPOLOGY)]),
        "dtype": one_of([each.value for each in DType]),
        "n": whole_number(1, MAX_EXTENT),
        "k": whole_number(1, MAX_EXTENT),
        "axis": word,
        "min": size,
        "max": size,
        "multiple_of": size,
        "pad": whole_number(0, MAX_BYTES),
        "verdict": one_of([each.value for each in Verdict]),
        "schedule": word,
        "together": {"oneOf": [{"type": "null"}, _with_keys_together()]},
        "ops": {**list_of(_op(), MAX_RULES), "minItems": 1},
        "gain": {"type": "array", "items": gain, "minItems": 2, "maxItems": 2},
        "loss": gain,
        "sizes": list_of(size, MAX_RULES),
        "implementation": or_null,
    }
    of_one_kind = ("pattern", "workload", "model", "dtype", "n", "k")
    return object_of(properties, [key for key in properties if key not in of_one_kind])


def _with_keys_together() -> JsonObject:
    properties = {
        "expression": {"type": ["string", "null"]},
        "batches": whole_number(1, MAX_BATCHES),
        "groups": list_of(whole_number(1, MAX_EXTENT), MAX_GROUPS),
        "prefetch": whole_number(0, MAX_EXTENT),
        "handoff": one_of([each.value for each in HandOff]),
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
        "starts_with": or_null,
    }
    return object_of(properties, tuple(properties))
