"""Policy tables of whole layers as data and as JSON, ``magus-layer-policy/1``: per range of a size, what each op does.

``reader.py`` reads them without Magus. The first rule that matches wins; what none matches has no answer.
"""

from dataclasses import dataclass

from ...compiler.ir import Graph, GraphChoice, JsonObject, System
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.planning.graph_expression import graph_expression_of
from .table import table_document

SCHEMA = "magus-layer-policy/1"
KEYS = ("workload", "model", "gpu", "ranks", "topology")
"""What a rule compares for equality, as far as it says it; the size on its axis lies in a range."""


@dataclass(frozen=True, slots=True)
class LayerStep:
    """A part of a layer, in the order in which they are issued: an op, or its kernel or collective where it is apart.

    ``schedule`` is that of the part alone, None for a kernel that is whole. ``copy_engines`` and ``copy_sms`` move its
    data, per GPU. Kernels of ``stream`` 0 run one after the other, lone collectives in a stream of theirs. ``beside``
    is the op with whose kernel a collective begins, empty where it begins when what it needs is there.
    """

    part: str
    op: str
    schedule: str | None
    copy_engines: int
    copy_sms: int
    stream: int
    priority: int
    beside: str = ""

    def document(self) -> JsonObject:
        """Return the step as JSON."""
        return {
            "part": self.part,
            "op": self.op,
            "schedule": self.schedule,
            "copy_engines": self.copy_engines,
            "copy_sms": self.copy_sms,
            "stream": self.stream,
            "priority": self.priority,
            "beside": self.beside or None,
        }


def steps_of(system: System, graph: Graph, choice: GraphChoice) -> tuple[LayerStep, ...]:
    """Return what ``choice`` does in one layer.

    Raises
    ------
    ScheduleError
        If it cannot be carried out.
    """
    plan, beside = build_graph_plan(system, graph, choice, 1), dict(choice.beside)
    return tuple(
        LayerStep(
            part.name,
            part.op,
            part.schedule.expression if part.workload.moved is not None or part.op in choice.along else None,
            part.schedule.engine.copy_engines if part.workload.moved is not None else 0,
            part.schedule.engine.copy_sms if part.workload.moved is not None else 0,
            part.stream,
            part.priority,
            beside.get(part.op, "") if part.workload.is_collective else "",
        )
        for part in plan.parts
    )


@dataclass(frozen=True, slots=True)
class LayerRule:
    """One schedule of a layer for a range of a size.

    It holds for sizes of ``axis``, a parameter of the file or ``tokens``, from ``least`` to ``most`` that are multiples
    of ``multiple_of``. ``gain`` are the lowest and the highest speedup over no overlap at the ``sizes`` that were
    looked at, ``loss`` the most that another schedule gains there.
    """

    workload: str
    model: str
    gpu: str
    ranks: int
    topology: str
    axis: str
    least: int
    most: int
    multiple_of: int
    verdict: str
    choice: GraphChoice
    steps: tuple[LayerStep, ...]
    gain: tuple[float, float]
    loss: float
    sizes: tuple[int, ...]

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
            "schedule": self.choice.name,
            "expression": _expression(self.choice),
            "batches": self.choice.batches,
            "ahead": self.choice.ahead,
            "seams": self.choice.seams.value,
            "sums_first": self.choice.sums_first,
            "steps": [step.document() for step in self.steps],
            "gain": [round(each, 4) for each in self.gain],
            "loss": round(self.loss, 4),
            "sizes": list(self.sizes),
        }


def _expression(choice: GraphChoice) -> str | None:
    """The schedule on one line; None where an op has a plan written out."""
    try:
        return graph_expression_of(choice)
    except ScheduleError:
        return None


@dataclass(frozen=True, slots=True)
class LayerPolicy:
    """Rules in their order; ``marks`` are warnings for the reader."""

    rules: tuple[LayerRule, ...]
    marks: tuple[str, ...] = ()

    def document(self) -> JsonObject:
        """Return the table as JSON, with the hash of its rules."""
        return table_document(SCHEMA, [rule.document() for rule in self.rules], self.marks)
