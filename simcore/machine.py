"""The servers and pools of a GPU and its fabric, and the routes between them."""

from dataclasses import dataclass
from enum import Flag, auto

from ..compiler.scenario import FabricKind, Scenario
from ..compiler.schedule import EngineKind, Schedule
from .builder import ProgramBuilder
from .kernels.gemm import ticks_for
from .program import TrafficClass

Hop = tuple[int, int]  # server id, absolute rank


class Idealization(Flag):
    """What a what-if run leaves out; the loss waterfall is made of differences between such runs."""

    NONE = 0
    FREE_LAUNCH = auto()  # launch, event, engine setup cost nothing
    PRIVATE_SERVERS = auto()  # compute and communication have servers of their own
    WHOLE_KERNEL = auto()  # parts of a kernel run as efficiently as the whole


@dataclass(frozen=True, slots=True)
class Memory:
    """L2 and HBM as one class of traffic sees them."""

    l2: int
    hbm: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Server and pool ids of one rank; every rank has the same, addressed as (id, rank).

    ``links[k]`` is the route from rank r to r + k as server ids with the rank offset of each.
    """

    num_ranks: int
    memory: tuple[Memory, Memory]  # by TrafficClass.COMPUTE, TrafficClass.COMM
    links: tuple[tuple[Hop, ...], ...]
    sms: int
    engines: int

    def route(self, source: int, destination: int) -> tuple[Hop, ...]:
        """Servers between two absolute ranks."""
        steps = self.links[(destination - source) % self.num_ranks]
        return tuple((server, source + offset) for server, offset in steps)

    def memory_for(self, traffic: TrafficClass) -> Memory:
        """L2 and HBM for that class."""
        return self.memory[0 if traffic is TrafficClass.COMPUTE else 1]


def build_machine(
    builder: ProgramBuilder, scenario: Scenario, schedule: Schedule, unit_bytes: int, ideal: Idealization
) -> Machine:
    """Declare the servers and pools of ``scenario`` as ``schedule`` divides them, serving units of ``unit_bytes``."""
    shared = _memory(builder, scenario, unit_bytes, "")
    private = Idealization.PRIVATE_SERVERS in ideal
    copies = _memory(builder, scenario, unit_bytes, "_comm") if private else shared
    return Machine(
        num_ranks=scenario.num_ranks,
        memory=(shared, copies),
        links=_links(builder, scenario, unit_bytes),
        sms=builder.pool("sms", schedule.compute_sms),
        engines=builder.pool("dma" if schedule.engine.kind is EngineKind.DMA else "copy_sms", schedule.engine.count),
    )


def distance_ticks(scenario: Scenario, peer: int) -> int:
    """Time a request takes to the rank ``peer`` further, nothing else on the way."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    switched = fabric.switch.latency_ticks if fabric.switch is not None else 0
    match fabric.kind:
        case FabricKind.FULL_MESH:
            return fabric.link.latency_ticks
        case FabricKind.SWITCH:
            return 2 * fabric.link.latency_ticks + switched
        case FabricKind.RING:
            forward = peer % n
            hops = min(forward, n - forward) if fabric.both_ways else forward
            return hops * fabric.link.latency_ticks


def _memory(builder: ProgramBuilder, scenario: Scenario, unit: int, suffix: str) -> Memory:
    gpu = scenario.gpu
    l2_rate = gpu.l2.instances * gpu.l2.bytes_per_s
    return Memory(
        l2=builder.server(f"l2{suffix}", max(1, ticks_for(unit, l2_rate)), gpu.l2.latency_ticks),
        hbm=builder.server(
            f"hbm{suffix}", max(1, ticks_for(unit, gpu.hbm.achieved_bytes_per_s)), gpu.hbm.latency_ticks
        ),
    )


def _links(builder: ProgramBuilder, scenario: Scenario, unit: int) -> tuple[tuple[Hop, ...], ...]:
    """For each relative peer the servers on the way, ``()`` for the rank itself."""
    fabric, n = scenario.system.fabric, scenario.num_ranks
    link = fabric.link
    service = max(1, ticks_for(unit, link.achieved_bytes_per_s))
    if fabric.kind is FabricKind.FULL_MESH:
        servers = [builder.server(f"link+{peer}", service, link.latency_ticks) for peer in range(1, n)]
        return ((), *(((server, 0),) for server in servers))
    if fabric.kind is FabricKind.SWITCH:
        assert fabric.switch is not None, "the compiler gives every switch fabric its switch"
        port = max(1, ticks_for(unit, min(fabric.switch.bytes_per_s, link.achieved_bytes_per_s)))
        up = builder.server("up", service, link.latency_ticks)
        down = builder.server("down", port, link.latency_ticks + fabric.switch.latency_ticks)
        return ((), *(((up, 0), (down, peer)) for peer in range(1, n)))
    right = builder.server("right", service, link.latency_ticks)
    if not fabric.both_ways:
        return tuple(tuple((right, hop) for hop in range(peer)) for peer in range(n))
    left = builder.server("left", service, link.latency_ticks)
    return tuple(
        tuple((right, hop) for hop in range(peer)) if peer <= n // 2 else tuple((left, -hop) for hop in range(n - peer))
        for peer in range(n)
    )
