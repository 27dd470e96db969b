"""What joint schedules of a graph are searched in: its ops in so many batches, by one copier, with the ways of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...compiler.ir import Graph
from .copiers import Copier
from .modes import Way


@dataclass(frozen=True, slots=True)
class Space:
    """The ops of a graph in so many batches, by one copier.

    ``ways`` and the times of ``kernels`` alone, in ticks, are by the names of ops.
    """

    copier: Copier
    batches: int
    graph: Graph
    ways: Mapping[str, tuple[Way, ...]] = field(hash=False)
    kernels: Mapping[str, int] = field(hash=False)

    @property
    def kernels_ticks(self) -> int:
        """All kernels of a layer alone, one after the other."""
        return sum(self.kernels.values())
