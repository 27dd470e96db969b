"""The resolved scenario of a graph: hardware, graph, and the schedules that its file declares."""

from dataclasses import dataclass, field

from .explore import Explore
from .scenario import System
from .schedules.graph_choice import GraphChoice
from .workloads.graph import Graph


@dataclass(frozen=True, slots=True)
class GraphScenario:
    """One graph on one system, with the schedules that its file declares and the space to search."""

    name: str
    system: System
    graph: Graph
    schedules: tuple[GraphChoice, ...] = field(default=(), hash=False)
    explore: Explore = field(default_factory=Explore, hash=False)

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks
