"""The order in which the parts of a graph are issued: that of the schedule, and each after what it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..codes import Code
from ..ir import Graph, GraphChoice, Rejection
from .build import ScheduleError


class GraphPlanError(ScheduleError):
    """A schedule of a graph that cannot be, and why; ``at`` is the word or the op that says it."""

    def __init__(self, rejection: Rejection, at: str) -> None:
        super().__init__(rejection)
        self.at = at


def issue_order(graph: Graph, choice: GraphChoice) -> tuple[str, ...]:
    """Names of ops in issue order; of an op that is apart ``op.kernel`` and ``op.collective``.

    What the schedule does not list comes right before what first needs it, and at last in the order of the file. What
    stands beside the kernel of an op comes right behind it.

    Raises
    ------
    GraphPlanError
        If an op is listed before one that it needs.
    """
    return _Order(graph, choice).names()


@dataclass(slots=True)
class _Order:
    graph: Graph
    choice: GraphChoice
    issued: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)  # ops
    asked: list[str] = field(default_factory=list)  # ops that wait for each other, from the first on

    def names(self) -> tuple[str, ...]:
        """Issue everything."""
        listed = self.choice.order
        for place, name in enumerate(listed):
            earlier = next((other for other in listed[:place] if other in self._needing(name)), None)
            if earlier is not None:
                message = f"{earlier} is in the order before {name}, which it needs"
                raise GraphPlanError(Rejection(Code.MGS503, message, f"say {name} before {earlier}"), "order")
            self._issue(name)
        for op in self.graph.ops:
            self._issue(op.name)
        return tuple(self.issued)

    def _needing(self, name: str) -> set[str]:
        """The ops that need ``name``, directly or through others, or stand beside it."""
        found: set[str] = set()
        todo = [name]
        while todo:
            here = todo.pop()
            for op in self.graph.ops:
                if op.name not in found and here in self._needs(op.name):
                    found.add(op.name)
                    todo.append(op.name)
        return found

    def _needs(self, name: str) -> tuple[str, ...]:
        reads = (read.made_by for read in self.graph.op(name).reads if read.made_by)
        beside = self._beside.get(name)
        return tuple(dict.fromkeys((*reads, *((beside,) if beside else ()))))

    @property
    def _beside(self) -> Mapping[str, str]:
        return dict(self.choice.beside)

    def _issue(self, name: str) -> None:
        """Issue an op behind what it needs, then what stands beside its kernel."""
        if name in self.done:
            return
        if name in self.asked:
            circle = " needs ".join((*self.asked[self.asked.index(name) :], name))
            raise GraphPlanError(Rejection(Code.MGS503, f"ops wait for each other: {circle}"), "beside")
        self.asked.append(name)
        for other in self._needs(name):
            self._issue(other)
        self.asked.pop()
        if name in self.done:  # with what it stands beside
            return
        self.done.add(name)
        op = self.graph.op(name)
        apart = any(mode.op == name and mode.apart is not None for mode in self.choice.modes)
        if not apart:
            self.issued.append(name)
        elif op.workload.pattern.produces:
            self.issued.append(f"{name}.kernel")
        else:
            self.issued += [f"{name}.collective", f"{name}.kernel"]
        for other, first in self.choice.beside:
            if first == name and all(need in self.done for need in self._needs(other)):
                self._issue(other)
        if apart and op.workload.pattern.produces:
            self.issued.append(f"{name}.collective")
