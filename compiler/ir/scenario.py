"""The resolved scenario: hardware, workload and what to explore, as integers in base units.

Nothing here refers to source text. Times are ticks of 10 fs, sizes are bytes, rates are bytes or operations per second.
Fractions are exact. A Scenario is the input of every later stage.
"""

from dataclasses import dataclass, field, replace

from .devices.hardware import Gpu
from .devices.replay import Replay
from .devices.variability import Variability
from .explore import Explore
from .schedules.schedule import NamedSchedule
from .topologies import Fabric, Network, network_of
from .workloads.workload import Workload

TICKS_PER_SECOND = 10**14
TICKS_PER_US = 10**8


@dataclass(frozen=True, slots=True)
class System:
    """``num_ranks`` equal GPUs behind one fabric.

    ``variability`` describes how their times differ; with ``replay`` only rank 0 is simulated, and the writes of the
    others into its memory are taken from a profile.
    """

    name: str
    num_ranks: int
    gpu: Gpu
    fabric: Fabric
    variability: Variability | None = None
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """The place of one op: its workload on a system, with the schedules its file declares and the space to explore."""

    name: str
    system: System
    workload: Workload
    schedules: tuple[NamedSchedule, ...] = field(default=(), hash=False)
    explore: Explore = field(default_factory=Explore, hash=False)

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def gpu(self) -> Gpu:
        """The GPU, the same on every rank."""
        return self.system.gpu

    @property
    def is_algorithm_choice(self) -> bool:
        """Whether it is a collective alone: the question is which algorithm, not whether to overlap."""
        return self.workload.is_collective

    @property
    def resolution(self) -> float:
        """The least relative difference of two times that the hardware profile resolves.

        All kernels that multiply matrices have the resolution of the GEMM: experts and attention are known no better.
        Times of collectives alone are compared as simulated: 0.
        """
        compute = self.workload.compute
        return float(self.gpu.gemm.resolution) if compute is not None and compute.tiled else 0.0

    @property
    def network(self) -> Network:
        """The graph of the fabric."""
        return network_of(self.system.fabric, self.num_ranks)

    @property
    def stages(self) -> tuple["Scenario", ...]:
        """The scenario of each kernel; none for a lone collective."""
        return tuple(map(self.stage, range(self.workload.num_kernels)))

    def at(self, rank: int) -> "Scenario":
        """Return the scenario of the absolute ``rank``; see ``Workload.at``."""
        rank %= self.num_ranks
        return self if self.workload.at(rank) is self.workload else replace(self, workload=self.workload.at(rank))

    def stage(self, kernel: int) -> "Scenario":
        """Return the scenario of the kernel with that number; see ``Workload.stage``."""
        return self if self.workload.then is None else replace(self, workload=self.workload.stage(kernel))
