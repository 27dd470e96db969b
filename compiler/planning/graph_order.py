"""The order in which the parts of a graph are issued: that of the schedule, and each after what it reads."""

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

    What the schedule does not list comes right before what first needs it, and at last in the order of the file, layer
    by layer. What stands beside the kernel of an op comes right behind it.

    Raises
    ------
    GraphPlanError
        If an op is listed before one that it needs.
    """
    return _Order(graph, choice).names()


class _Order:
    def __init__(self, graph: Graph, choice: GraphChoice) -> None:
        self._graph, self._choice = graph, choice
        self._ops = {op.name: op for op in graph.ops}
        self._places = {name: place for place, name in enumerate(choice.order)}
        self._stands_beside = dict(choice.beside)
        self._beside: dict[str, list[str]] = {}  # what stands beside the kernel of each op
        for name, kernel in choice.beside:
            self._beside.setdefault(kernel, []).append(name)
        self._apart = {mode.op for mode in choice.modes if mode.apart is not None}
        self._issued: list[str] = []
        self._done: set[str] = set()  # ops
        self._asked: list[str] = []  # ops that wait for each other, from the first on

    def names(self) -> tuple[str, ...]:
        """Issue everything."""
        names = (*self._choice.order, *self._ops)
        for name in sorted(names, key=lambda name: self._ops[name].layer):  # stable: else as they are listed
            self._issue(name)
        return tuple(self._issued)

    def _needs(self, name: str) -> tuple[str, ...]:
        reads = (read.made_by for read in self._ops[name].reads if read.made_by)
        beside = self._stands_beside.get(name)
        return tuple(dict.fromkeys((*reads, *((beside,) if beside else ()))))

    def _issue(self, name: str) -> None:
        """Issue an op behind what it needs, then what stands beside its kernel."""
        if name in self._done:
            return
        if name in self._asked:
            circle = " needs ".join((*self._asked[self._asked.index(name) :], name))
            raise GraphPlanError(Rejection(Code.MGS503, f"ops wait for each other: {circle}"), "beside")
        self._asked.append(name)
        for other in self._needs(name):
            self._check_order(other)
            self._issue(other)
        self._asked.pop()
        if name not in self._done:  # or it came with what it stands beside
            self._done.add(name)
            self._issue_parts(name)

    def _check_order(self, needed: str) -> None:
        """Refuse what is listed behind the listed op that needs it."""
        first = self._asked[0]
        if needed not in self._done and self._places.get(first, len(self._places)) < self._places.get(needed, -1):
            message = f"{first} is in the order before {needed}, which it needs"
            raise GraphPlanError(Rejection(Code.MGS503, message, f"say {needed} before {first}"), "order")

    def _issue_parts(self, name: str) -> None:
        apart, kernel_first = name in self._apart, self._ops[name].workload.pattern.produces
        if not apart:
            self._issued.append(name)
        elif kernel_first:
            self._issued.append(f"{name}.kernel")
        else:
            self._issued += [f"{name}.collective", f"{name}.kernel"]
        for other in self._beside.get(name, ()):
            if self._done.issuperset(self._needs(other)):
                self._issue(other)
        if apart and kernel_first:
            self._issued.append(f"{name}.collective")
