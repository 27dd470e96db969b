"""The constant costs of the steps of a graph: setups, flags, earliest begins, and the engines that share a copy."""

from dataclasses import dataclass

from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Gpu,
    Reach,
    Scenario,
    Schedule,
    Transfer,
)
from ...simcore.lower.machine import distance_ticks
from ...simcore.lower.one_kernel import is_one_kernel, launch_ticks, peers_to_be_ready
from ...simcore.lower.waits import poll_ticks
from .graph import StepGraph


def copy_setup_ticks(gpu: Gpu, engine: EngineChoice, protocol: CopyProtocol = CopyProtocol.SIMPLE) -> int:
    """Return the time of a copy before its first byte, as in the simulator."""
    if engine.kind is EngineKind.DMA:
        return gpu.dma.prelaunch_ticks if engine.mode is EngineMode.PRELAUNCHED else gpu.dma.setup_ticks
    return gpu.sm_copy.setup_ticks if protocol is CopyProtocol.SIMPLE else 0


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs in ticks of the steps of ``graph`` by their index ``i``.

    ``one_kernel`` says that SMs do a lone collective in one kernel; then ``awaited[r]`` are the offsets of the ranks
    for which the kernel of rank r waits.
    """

    scenario: Scenario
    schedule: Schedule
    graph: StepGraph
    one_kernel: bool
    awaited: tuple[set[int], ...]

    @classmethod
    def of(cls, scenario: Scenario, schedule: Schedule, graph: StepGraph) -> "StepCosts":
        """Return the costs of the steps of a schedule."""
        one_kernel = is_one_kernel(scenario, schedule)
        awaited: tuple[set[int], ...] = tuple(set() for _ in range(graph.num_ranks))
        for rank, step in zip(graph.rank, graph.steps, strict=True) if one_kernel else ():
            if isinstance(step, Transfer):
                awaited[rank].update(peers_to_be_ready(scenario, schedule, step))
        return cls(scenario, schedule, graph, one_kernel, awaited)

    def earliest(self, i: int) -> float:
        """Return when step i may begin at the earliest: see ``simcore/lower/one_kernel.py``."""
        scenario, step, gpu = self.scenario, self.graph.steps[i], self.scenario.gpu
        launched = float(launch_ticks(gpu, self.schedule)) if self.one_kernel else 0.0
        if not scenario.workload.is_collective or not isinstance(step, Transfer):
            return launched
        rank, offsets = self.graph.rank[i], set(peers_to_be_ready(scenario, self.schedule, step))
        if not offsets:
            return launched
        if self.one_kernel:
            offsets = self.awaited[rank]
        distance = max(distance_ticks(scenario, -offset, rank + offset) for offset in offsets)
        return launched + distance + gpu.hbm.latency_ticks + poll_ticks(gpu)

    def notice_ticks(self, i: int) -> float:
        """Return the time from the end of step i until its successors know of it: one kernel polls flags of puts."""
        step = self.graph.steps[i]
        polled = self.one_kernel and isinstance(step, Transfer) and step.direction is Direction.PUT
        return float(poll_ticks(self.scenario.gpu)) if polled else 0.0

    def workers(self, i: int) -> int:
        """Return the engines that share a copy: one for DMA, all SMs in a lane or to all, else equal parts by peer."""
        step, count = self.graph.steps[i], self.schedule.engine.count
        if self.schedule.engine.kind is EngineKind.DMA:
            return 1
        if i in self.graph.work:  # a sum by the SMs that copy
            return min(count, self.graph.work[i][0].num_units)
        alone = isinstance(step, Transfer) and (step.lane is not None or step.reach is Reach.ALL)
        return count if alone else max(1, count // self.graph.num_peers[self.graph.rank[i]])

    def setup_ticks(self, i: int) -> float:
        """Return the time of a copy before its first byte; a get sends its request first."""
        step, protocol = self.graph.steps[i], self.schedule.tactics.protocol
        assert isinstance(step, Transfer), "only transfers are copies"
        if step.reach is Reach.ALL:  # a switch does not forward flags between the data
            request = distance_ticks(self.scenario, 1) if step.reduce else 0
            return float(copy_setup_ticks(self.scenario.gpu, self.schedule.engine) + request)
        is_get = step.direction is Direction.GET
        if is_get and self.one_kernel:
            protocol = CopyProtocol.SIMPLE  # data that is read has no flags
        request = distance_ticks(self.scenario, step.peer, self.graph.rank[i]) if is_get else 0
        return float(copy_setup_ticks(self.scenario.gpu, self.schedule.engine, protocol)) + request

    def flag_ticks(self, i: int) -> float:
        """Return the time of the flag after a copy by SMs: a round trip, or 0 if links keep the order."""
        step = self.graph.steps[i]
        if i not in self.graph.flagged or not isinstance(step, Transfer):
            return 0.0
        if self.scenario.system.fabric.in_order:
            return 0.0
        rank, gpu = self.graph.rank[i], self.scenario.gpu
        back = distance_ticks(self.scenario, -step.peer, rank + step.peer)
        return float(back + distance_ticks(self.scenario, step.peer, rank) + gpu.hbm.latency_ticks)
