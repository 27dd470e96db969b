"""How to carry out a plan: each part step by step, in the order of issue, and what it waits for in others."""

from dataclasses import dataclass

from ...compiler.ir import COLLECTIVES_STREAM, Awaited, GraphOp, GraphPlan, JsonObject, Part, Scenario, System
from .document import how_document
from .how import How, how_of


@dataclass(frozen=True, slots=True)
class PartHow:
    """One part of a plan told step by step."""

    part: Part
    how: How

    @property
    def label(self) -> str:
        """What it is, for people."""
        return GraphOp(self.part.op, self.part.workload).label

    @property
    def stream(self) -> str:
        """Where its kernels run."""
        if self.part.stream == COLLECTIVES_STREAM:
            return "in the stream of collectives"
        return f"in stream {self.part.stream}" if self.part.stream else "in the main stream"

    @property
    def waits(self) -> tuple[str, ...]:
        """What it waits for in other parts, in words."""
        whole = [f"{_awaited(each.what, each.on)}{_KERNELS * each.kernels_only}" for each in self.part.waits]
        makers = dict.fromkeys(each.on for each in self.part.step_waits)
        return (*whole, *(f"the rows of {maker} that each step takes" for maker in makers))


_KERNELS = ", its kernels alone"


def _awaited(what: Awaited, on: str) -> str:
    match what:
        case Awaited.END:
            return f"all of {on}"
        case Awaited.LANDED:
            return f"what {on} gathers"
        case Awaited.BEGUN:
            return f"the begin of the first kernel of {on}"


def how_of_plan(system: System, plan: GraphPlan) -> tuple[PartHow, ...]:
    """Return how to carry out each part of ``plan``, in the order of issue."""
    return tuple(
        PartHow(part, how_of(Scenario(part.name, system, part.workload), part.schedule)) for part in plan.parts
    )


def parts_document(name: str, parts: tuple[PartHow, ...]) -> JsonObject:
    """Return the document: that of the one part there is, else of each with its stream and what it waits for."""
    if len(parts) == 1:
        return how_document(parts[0].how)
    return {"schedule": name, "parts": [_part_document(each) for each in parts]}


def _part_document(told: PartHow) -> JsonObject:
    part = told.part
    return {
        "part": part.name,
        "op": part.op,
        "pattern": told.label,
        "stream": told.stream,
        "priority": part.priority,
        "waits": [{"on": each.on, "what": each.what.value, "kernels_only": each.kernels_only} for each in part.waits],
        "step_waits": [{"step": each.step, "on": each.on, "of": each.of} for each in part.step_waits],
        **how_document(told.how),
    }
