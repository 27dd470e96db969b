"""The view of a schedule from which features are computed: plan of rank 0, estimate, and ways to the peers.

Nothing here knows a template or a topology: a view is of the steps that were built and of the links that they take.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from ...compiler.ir import EngineKind, Network, Scenario, Schedule, Step, TileGroup, Transfer
from ..estimate.makespan import Estimate


@dataclass(frozen=True)
class View:
    """A built schedule with its estimate; ``whole_ticks`` is the undivided kernel alone on all SMs."""

    scenario: Scenario
    schedule: Schedule
    estimate: Estimate
    whole_ticks: int

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of rank 0."""
        return self.schedule.steps_of(0)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Transfers that rank 0 issues."""
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    @cached_property
    def kernels(self) -> tuple[TileGroup, ...]:
        """Kernels over tiles; sums are none of them."""
        return tuple(step for step in self.steps if isinstance(step, TileGroup))

    @cached_property
    def computed(self) -> frozenset[str]:
        """Names of all kernels, sums among them."""
        return frozenset(step.name for step in self.steps if not isinstance(step, Transfer))

    @cached_property
    def peers(self) -> tuple[int, ...]:
        """Distinct peers of the transfers, relative to rank 0."""
        return tuple(dict.fromkeys(transfer.peer for transfer in self.transfers))

    @cached_property
    def network(self) -> Network:
        """The links between the ranks."""
        return self.scenario.network

    @cached_property
    def links(self) -> dict[int, int]:
        """Number of links to each peer."""
        return {peer: self.network.num_links(0, peer) for peer in self.peers}

    @cached_property
    def latency_ticks(self) -> dict[int, int]:
        """Latency of the links to each peer."""
        return {peer: self.network.latency_ticks(0, peer) for peer in self.peers}

    @property
    def makespan(self) -> float:
        """The estimate in ticks, at least one."""
        return max(1.0, self.estimate.makespan_ticks)

    @property
    def by_sm(self) -> bool:
        """Whether SMs copy."""
        return self.schedule.engine.kind is EngineKind.SM

    @property
    def engines(self) -> int:
        """Number of engines, or of SMs, that copy."""
        return self.schedule.engine.count

    @property
    def engine_rate(self) -> float:
        """Bytes per second of one engine of the pool."""
        gpu = self.scenario.gpu
        return float(gpu.sm_copy.bytes_per_s if self.by_sm else gpu.dma.bytes_per_s)

    @property
    def setup_ticks(self) -> int:
        """Setup of one transfer."""
        gpu = self.scenario.gpu
        return gpu.sm_copy.setup_ticks if self.by_sm else gpu.dma.setup_ticks

    @cached_property
    def transfer_bytes(self) -> float:
        """Mean bytes of a transfer, 0 without any."""
        moved = self.scenario.workload.moved
        if moved is None:
            return 0.0
        return mean(step.region.rows.size * step.region.cols.size for step in self.transfers) * moved.dtype.num_bytes

    def share(self, ticks: float) -> float:
        """``ticks`` as a share of the estimate."""
        return ticks / self.makespan

    @cached_property
    def waiting(self) -> tuple[TileGroup, ...]:
        """Kernels that wait for a transfer: for one of this rank, or for what lands here."""
        return tuple(each for each in self.kernels if any(name not in self.computed for name in each.after))


def mean(values: Iterable[float]) -> float:
    """The mean, 0 of nothing."""
    counted: Collection[float] = list(values)
    return fmean(counted) if counted else 0.0
