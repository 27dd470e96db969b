"""The servers and pools of a GPU and its fabric, and the routes between them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag, auto

from ...compiler.ir import Edge, EngineKind, EngineMode, FabricKind, Scenario, Schedule, Topology, topology_of
from ..kernels.gemm import ticks_for
from ..program.builder import ProgramBuilder
from ..program.program import TrafficClass

Hop = tuple[int, int]  # server id, absolute rank


class Idealization(Flag):
    """What a what-if run leaves out; the loss waterfall is made of differences between such runs."""

    NONE = 0
    FREE_LAUNCH = auto()  # launch, event, engine setup cost nothing
    PRIVATE_SERVERS = auto()  # compute and communication have servers of their own
    WHOLE_KERNEL = auto()  # parts of a kernel run as efficiently as the whole


@dataclass(frozen=True, slots=True)
class Memory:
    """L2 and HBM as one class of traffic sees them; ``hbm`` is the first of ``channels`` servers, numbered in a row.

    ``mall`` is the cache in front of memory, None without one.
    """

    l2: int
    hbm: int
    channels: int = 1
    mall: int | None = None

    @property
    def last_cache(self) -> int:
        """The cache that holds what peers have written."""
        return self.l2 if self.mall is None else self.mall


@dataclass(frozen=True, slots=True)
class Machine:
    """Server and pool ids of one rank; every rank has the same, addressed as (id, rank).

    On a symmetric fabric ``links[k]`` is the route from rank r to r + k as server ids with the rank offset of each. On
    others ``servers`` says for the ends of each edge of ``topology`` which server stands for it. ``issue`` is the pool
    of the one queue from which commands go to copy engines, None where issuing costs nothing.
    """

    num_ranks: int
    memory: tuple[Memory, Memory]  # by TrafficClass.COMPUTE, TrafficClass.COMM
    links: tuple[tuple[Hop, ...], ...]
    sms: int
    engines: int
    issue: int | None = None
    topology: Topology | None = None
    servers: Mapping[tuple[int, int], Hop] = field(default_factory=dict)

    def route(self, source: int, destination: int) -> tuple[Hop, ...]:
        """Servers between two absolute ranks."""
        n = self.num_ranks
        if self.topology is not None:
            return tuple(self.servers[edge.ends] for edge in self.topology.route(source % n, destination % n))
        return tuple((server, source + offset) for server, offset in self.links[(destination - source) % n])

    def num_links(self, source: int, destination: int) -> int:
        """Links between two absolute ranks."""
        return len(self.route(source, destination))

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
    fabric, n = scenario.system.fabric, scenario.num_ranks
    topology = None if fabric.kind.symmetric else topology_of(fabric, n)
    sms = builder.pool("sms", schedule.compute_sms)
    issues = schedule.engine.kind is EngineKind.DMA and scenario.gpu.dma.issue_interval_ticks > 0
    return Machine(
        num_ranks=n,
        memory=(shared, copies),
        links=_links(builder, scenario, unit_bytes) if topology is None else (),
        sms=sms,
        engines=sms if schedule.engine.mode is EngineMode.SHARED else _engines(builder, schedule),
        issue=builder.pool("dma_issue", 1) if issues else None,
        topology=topology,
        servers={} if topology is None else _edge_servers(builder, topology, unit_bytes),
    )


def distance_ticks(scenario: Scenario, peer: int, rank: int = 0) -> int:
    """Time a request takes from ``rank`` to the rank ``peer`` further, nothing else on the way.

    ``rank`` makes a difference only where the fabric is not symmetric.
    """
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
        case _:
            return topology_of(fabric, n).latency_ticks(rank % n, (rank + peer) % n)


def _engines(builder: ProgramBuilder, schedule: Schedule) -> int:
    return builder.pool("dma" if schedule.engine.kind is EngineKind.DMA else "copy_sms", schedule.engine.count)


def _memory(builder: ProgramBuilder, scenario: Scenario, unit: int, suffix: str) -> Memory:
    gpu, channels = scenario.gpu, scenario.gpu.hbm.channels
    l2_rate = gpu.l2.instances * gpu.l2.bytes_per_s
    l2 = builder.server(f"l2{suffix}", max(1, ticks_for(unit, l2_rate)), gpu.l2.latency_ticks)
    service = max(1, ticks_for(unit * channels, gpu.hbm.achieved_bytes_per_s))
    names = [f"hbm{suffix}"] if channels == 1 else [f"hbm{suffix} {channel}" for channel in range(channels)]
    hbm = [builder.server(name, service, gpu.hbm.latency_ticks) for name in names]
    mall = None
    if gpu.mall is not None:
        mall = builder.server(f"mall{suffix}", max(1, ticks_for(unit, gpu.mall.bytes_per_s)), gpu.mall.latency_ticks)
    return Memory(l2, hbm[0], channels, mall)


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


def _edge_servers(builder: ProgramBuilder, topology: Topology, unit: int) -> dict[tuple[int, int], Hop]:
    """A server for each edge. One declared server stands on every rank, so it serves an edge of the same name for each.

    Edges between switches have no rank of their own and are dealt to the ranks.
    """
    placed: Counter[tuple[str, int]] = Counter()
    declared: dict[tuple[str, int], int] = {}
    servers: dict[tuple[int, int], Hop] = {}
    for edge in topology.edges:
        home = _home(edge, topology.num_ranks)
        slot = placed[edge.name, home]
        placed[edge.name, home] += 1
        if (edge.name, slot) not in declared:
            service = max(1, ticks_for(unit, edge.bytes_per_s))
            declared[edge.name, slot] = builder.server(f"link {edge.name} {slot}", service, edge.latency_ticks)
        servers[edge.ends] = (declared[edge.name, slot], home)
    return servers


def _home(edge: Edge, num_ranks: int) -> int:
    """The rank at which the server of ``edge`` stands: an end that is a GPU, the source before the target."""
    gpus = [end for end in edge.ends if end < num_ranks]
    return gpus[0] if gpus else sum(edge.ends) % num_ranks
