"""The resolved scenario of a graph: hardware, graph, and the schedules that its file declares."""

from dataclasses import dataclass, field

from .devices.hardware import Gpu
from .explore import Explore
from .scenario import Scenario, System
from .schedules.graph_choice import GraphChoice, OpMode
from .schedules.schedule import NamedSchedule
from .workloads.graph import Graph


@dataclass(frozen=True, slots=True)
class GraphScenario:
    """A question: one workload on one system, with the schedules that its file declares and the space to search."""

    name: str
    system: System
    graph: Graph
    schedules: tuple[GraphChoice, ...] = field(default=(), hash=False)
    explore: Explore = field(default_factory=Explore, hash=False)

    @classmethod
    def of_one(cls, case: Scenario) -> "GraphScenario":
        """The question about one op alone."""
        graph = Graph.of_one(case.workload)
        (op,) = graph.ops
        schedules = tuple(GraphChoice(each.name, (OpMode(op.name, each.body),)) for each in case.schedules)
        return cls(case.name, case.system, graph, schedules, case.explore)

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def case(self) -> Scenario:
        """The one op that there is, where ``pair`` says so.

        Raises
        ------
        ValueError
            If there are several, or more is said of the one.
        """
        case = self.pair
        if case is None:
            raise ValueError(f"{self.name} is no op by itself")
        return case

    @property
    def pair(self) -> Scenario | None:
        """The scenario of a lone op that says all there is, with a body for each of its schedules; else None."""
        workload, bodies = self.graph.pair, tuple(choice.body for choice in self.schedules)
        if workload is None or None in bodies:
            return None
        named = zip(self.schedules, bodies, strict=True)
        schedules = tuple(NamedSchedule(choice.name, body) for choice, body in named if body is not None)
        return Scenario(self.name, self.system, workload, schedules, self.explore)

    @property
    def gpu(self) -> Gpu:
        """The GPU, the same on every rank."""
        return self.system.gpu

    @property
    def title(self) -> str:
        """The name of the workload."""
        return self.graph.name

    @property
    def cases(self) -> tuple[Scenario, ...]:
        """Each op on this system, by itself."""
        pair = self.pair
        if pair is not None:
            return (pair,)
        return tuple(Scenario(op.name, self.system, op.workload) for op in self.graph.ops)

    @property
    def sole(self) -> Scenario | None:
        """The op that alone has a choice: the others are kernels without tiles that cannot run beside it; None if more.

        Such kernels read what it makes, or make what it reads.
        """
        graph, pair = self.graph, self.pair
        if pair is not None:
            return pair
        moving = [op for op in graph.ops if op.workload.moved is not None]
        if len(moving) != 1 or (graph.batch is not None and graph.batch.cuts):
            return None
        others = [op for op in graph.ops if op is not moving[0]]
        if any(op.workload.compute is None or op.workload.compute.tiled for op in others):
            return None
        before = graph.made_from(moving[0].name)
        behind = {op.name for op in others if moving[0].name in graph.made_from(op.name)}
        if any(op.name not in before | behind for op in others):
            return None
        return Scenario(moving[0].name, self.system, moving[0].workload, explore=self.explore)

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return self.graph.num_layers

    @property
    def is_algorithm_choice(self) -> bool:
        """Whether a collective is all that has a choice: the question is which algorithm, not whether to overlap."""
        return self.sole is not None and self.sole.is_algorithm_choice

    @property
    def resolution(self) -> float:
        """The least relative difference of two times that the hardware profile resolves."""
        return max((case.resolution for case in self.cases), default=0.0)
