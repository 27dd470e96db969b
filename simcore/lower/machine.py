"""The servers and pools of a GPU and its fabric, and the routes between them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Flag, auto
from fractions import Fraction
from types import MappingProxyType

from ...compiler.ir import (
    Arbitration,
    CopyProtocol,
    Direction,
    EngineKind,
    GroupKernel,
    Kernels,
    Network,
    Noc,
    OpCase,
    OpPlan,
    Transfer,
)
from ..kernels.gemm import ticks_for
from ..program.builder import ProgramBuilder
from ..program.program import TrafficClass

Hop = tuple[int, int]  # server id, absolute rank

NOC_PACKET_BYTES = 2048
"""A choice, not a measurement: so many bytes of a copy pass the network on chip as one, which costs few units."""


class Idealization(Flag):
    """Losses that a what-if run leaves out; the loss waterfall is made of differences between such runs."""

    NONE = 0
    FREE_LAUNCH = auto()  # launch, event, engine setup cost nothing
    PRIVATE_SERVERS = auto()  # compute and communication have servers of their own
    WHOLE_KERNEL = auto()  # parts of a kernel run as efficiently as the whole


@dataclass(frozen=True, slots=True)
class Memory:
    """L2 and HBM as one class of traffic sees them; ``hbm`` is the first of ``channels`` servers, numbered in a row.

    ``mall`` is the cache in front of memory, ``noc`` the network on chip; None without one.
    """

    l2: int
    hbm: int
    channels: int = 1
    mall: int | None = None
    noc: int | None = None

    @property
    def last_cache(self) -> int:
        """The cache that holds what peers have written."""
        return self.l2 if self.mall is None else self.mall


@dataclass(frozen=True, slots=True)
class Groups:
    """Work-groups of a kernel: the pool of their wavefronts' turns, and the server that is the SM of the first of them.

    ``requests`` carry requests where these take turns with data on the links, else there are none: each holds such a
    server as long as its bytes would hold the link. Where a plan says which group does what, ``waves`` is the pool of
    the first group, and ``sums`` that of its sums: each has its own, which it goes through in order.
    """

    waves: int
    first_sm: int
    requests: tuple[Hop, ...] = ()
    sums: int | None = None

    def waves_of(self, group: int) -> int:
        """The pool of a work-group's wavefronts."""
        return self.waves if self.sums is None else self.waves + group


@dataclass(frozen=True, slots=True)
class Machine:
    """Server and pool ids of one rank; every rank has the same, addressed as (id, rank).

    ``links`` has the server of each edge in ``network.own``; that of a shifted edge is so many ranks further. ``issue``
    is the pool of the one queue from which commands go to copy engines, None where issuing costs nothing. ``groups``
    are the work-groups of a kernel that is written so, None without one.
    """

    network: Network
    memory: tuple[Memory, Memory]  # by TrafficClass.COMPUTE, TrafficClass.COMM
    links: tuple[Hop, ...]
    sms: int
    engines: int
    issue: int | None = None
    groups: Groups | None = None

    def route(self, source: int, destination: int, links: tuple[Hop, ...] = ()) -> tuple[Hop, ...]:
        """Servers between two absolute ranks, on ``links`` of the same network if they are given."""
        n, links = self.network.num_ranks, links or self.links
        way = self.network.way(source % n, destination % n)
        return tuple((links[number][0], links[number][1] + ranks) for number, ranks in way)

    @property
    def link_servers(self) -> frozenset[int]:
        """Servers of all links."""
        return frozenset(server for server, _ in self.links)

    @property
    def memory_servers(self) -> frozenset[int]:
        """Memories and caches of all classes of traffic."""
        servers = (
            {each.l2, *range(each.hbm, each.hbm + each.channels)} | ({each.mall} if each.mall is not None else set())
            for each in self.memory
        )
        return frozenset().union(*servers)

    def memory_for(self, traffic: TrafficClass) -> Memory:
        """L2 and HBM for that class."""
        return self.memory[0 if traffic is TrafficClass.COMPUTE else 1]


def build_machine(
    builder: ProgramBuilder,
    scenario: OpCase,
    schedule: OpPlan,
    unit_bytes: int,
    ideal: Idealization,
    shared_with: Machine | None = None,
) -> Machine:
    """Declare the servers and pools of ``scenario`` as ``schedule`` divides them, serving units of ``unit_bytes``.

    Of a machine that is ``shared_with`` other plans only the engines are declared anew.
    """
    if shared_with is not None:
        return replace(
            shared_with,
            engines=_engines(builder, schedule, shared_with.sms),
            issue=_issue(builder, scenario, schedule),
            groups=_groups(builder, scenario, schedule, unit_bytes),
        )
    private = Idealization.PRIVATE_SERVERS in ideal
    shared = _memory(builder, scenario, unit_bytes, "", noc=not private)
    copies = _memory(builder, scenario, unit_bytes, "_comm", noc=False) if private else shared
    sms = builder.pool("sms", schedule.compute_sms)
    return Machine(
        network=scenario.network,
        memory=(shared, copies),
        links=_links(builder, scenario.network, unit_bytes),
        sms=sms,
        engines=_engines(builder, schedule, sms),
        issue=_issue(builder, scenario, schedule),
        groups=_groups(builder, scenario, schedule, unit_bytes),
    )


def issues_commands(scenario: OpCase, schedule: OpPlan) -> bool:
    """Whether issuing a copy takes time."""
    return schedule.engine.kind is EngineKind.DMA and scenario.gpu.dma.issue_interval_ticks > 0


def distance_ticks(scenario: OpCase, peer: int, rank: int = 0) -> int:
    """Time a request takes from ``rank`` to the rank ``peer`` further, nothing else on the way.

    ``rank`` makes a difference only where the fabric does not look the same from every rank.
    """
    n = scenario.num_ranks
    return scenario.network.latency_ticks(rank % n, (rank + peer) % n)


def _issue(builder: ProgramBuilder, scenario: OpCase, schedule: OpPlan) -> int | None:
    return builder.pool("dma_issue", 1) if issues_commands(scenario, schedule) else None


def _engines(builder: ProgramBuilder, schedule: OpPlan, sms: int) -> int:
    if schedule.engine.on_kernels_sms:
        return sms
    return builder.pool("dma" if schedule.engine.kind is EngineKind.DMA else "copy_sms", schedule.engine.count)


def _groups(builder: ProgramBuilder, scenario: OpCase, schedule: OpPlan, unit: int) -> Groups | None:
    kernel = schedule.engine.kernel
    if kernel is None:
        return None
    service = max(1, ticks_for(unit, scenario.gpu.sm_copy.bytes_per_s))
    first, *_ = [builder.server(f"{kernel.name} {group}", service, 0) for group in range(kernel.groups)]
    fair = kernel.arbitration is Arbitration.FAIR and kernel.request_bytes
    requests = _links(builder, scenario.network, kernel.request_bytes, prefix="requests ") if fair else ()
    if not any(isinstance(step, Transfer) and step.lane is not None for step in schedule.steps_of(0)):
        return Groups(builder.pool("waves", kernel.chains), first, requests)
    numbers = range(kernel.groups)
    chains = kernel.waves * max(_copies_at_once(scenario, schedule, kernel, each) for each in Direction)
    waves, *_ = [builder.pool(f"waves {group}", chains) for group in numbers]
    sums, *_ = [builder.pool(f"sums {group}", 1) for group in numbers]
    return Groups(waves, first, requests, sums)


def _copies_at_once(scenario: OpCase, schedule: OpPlan, kernel: GroupKernel, direction: Direction) -> int:
    """How many copies a wavefront has under way: it goes on to the next one as long as its lines are not all so."""
    loop, moved, line = kernel.loop(direction), scenario.shape.moved, scenario.gpu.line_bytes
    copies = [step for step in schedule.steps_of(0) if isinstance(step, Transfer) and step.direction is direction]
    if loop is None or moved is None or not copies:
        return 1
    most = max(moved.dtype.bytes_of(step.region.elements) for step in copies)
    return max(loop.turns, loop.load // max(1, math.ceil(most / line / kernel.waves)))


def noc_of(scenario: OpCase) -> Noc | None:
    """The network on chip as a server of ``scenario``; None without one in the profile, or a kernel that shares it."""
    return None if scenario.shape.is_collective else scenario.gpu.noc


def noc_packet_bytes(unit_bytes: int) -> int:
    """Bytes of a copy for which one unit passes the network on chip."""
    return max(NOC_PACKET_BYTES, unit_bytes)


def noc_packet_ticks(noc: Noc, unit_bytes: int) -> int:
    """Time for which such a unit holds the network on chip."""
    return max(1, ticks_for(noc_packet_bytes(unit_bytes), noc.copy_bytes_per_s))


def _memory(builder: ProgramBuilder, scenario: OpCase, unit: int, suffix: str, *, noc: bool) -> Memory:
    gpu, channels = scenario.gpu, scenario.gpu.hbm.channels
    l2_rate = gpu.l2.instances * gpu.l2.bytes_per_s
    l2 = builder.server(f"l2{suffix}", max(1, ticks_for(unit, l2_rate)), gpu.l2.latency_ticks)
    service = max(1, ticks_for(unit * channels, gpu.hbm.achieved_bytes_per_s))
    names = [f"hbm{suffix}"] if channels == 1 else [f"hbm{suffix} {channel}" for channel in range(channels)]
    hbm = [builder.server(name, service, gpu.hbm.latency_ticks) for name in names]
    mall = None
    if gpu.mall is not None:
        mall = builder.server(f"mall{suffix}", max(1, ticks_for(unit, gpu.mall.bytes_per_s)), gpu.mall.latency_ticks)
    network = noc_of(scenario) if noc else None
    if network is None:
        return Memory(l2, hbm[0], channels, mall)
    return Memory(l2, hbm[0], channels, mall, builder.server("noc", noc_packet_ticks(network, unit), 0))


PORTS = frozenset(("up", "down", "nic-out", "nic-in"))
"""Edges that a rank has one of, whichever ranks it sends to: those to and from switches."""


def ports_shared(machine: Machine) -> dict[tuple[str, int], int]:
    """Return the servers of the ports of a machine, by name."""
    edges = zip(machine.network.own, machine.links, strict=True)
    return {(edge.name, 0): server for edge, (server, _) in edges if edge.name in PORTS}


def with_network(
    builder: ProgramBuilder, machine: Machine, network: Network, unit: int, shared: Mapping[tuple[str, int], int]
) -> Machine:
    """Return the machine on another network, some of whose ports are ``shared`` with others."""
    return replace(machine, network=network, links=_links(builder, network, unit, shared))


def _links(
    builder: ProgramBuilder,
    network: Network,
    unit: int,
    shared: Mapping[tuple[str, int], int] = MappingProxyType({}),
    prefix: str = "",
) -> tuple[Hop, ...]:
    """Declare the servers of ``network.own``: the number of each, and the rank at which it stands for that edge.

    A declared server stands on every rank, so it serves an edge of the same name for each; ``prefix`` is part of its.
    """
    slots: Counter[tuple[str, int]] = Counter()
    declared = dict(shared)
    links: list[Hop] = []
    ends = {(edge.name, network.home(number)) for number, edge in enumerate(network.own)}
    plain = network.symmetric and len(ends) == len(network.own)
    for number, edge in enumerate(network.own):
        home = network.home(number)
        kind = edge.name, slots[edge.name, home]
        slots[edge.name, home] += 1
        if kind not in declared:
            name = edge.name if plain else f"link {edge.name} {kind[1]}"
            declared[kind] = builder.server(
                prefix + name, max(1, ticks_for(unit, edge.bytes_per_s)), edge.latency_ticks
            )
        links.append((declared[kind], home))
    return tuple(links)


LL128_BYTES, LL128_PAYLOAD = 128, 120


def is_one_kernel(scenario: OpCase, schedule: OpPlan) -> bool:
    """Whether the plan is one kernel at each rank: a collective alone, by SMs."""
    engine = schedule.engine
    return engine.kind is EngineKind.SM and not engine.by_library and scenario.shape.is_collective


def looks_for_parts(scenario: OpCase, schedule: OpPlan) -> bool:
    """Whether the sums of a lone collective by copy engines are one kernel, which looks for what arrives."""
    engine, persistent = schedule.engine, schedule.tactics.kernel is Kernels.PERSISTENT
    by_engines = engine.kind is EngineKind.DMA and not engine.by_library
    return persistent and by_engines and scenario.shape.is_collective and scenario.shape.pattern.sums


def sent_per_byte(schedule: OpPlan) -> Fraction | int:
    """Bytes that copies put on a link, and write at the destination, for each byte of data."""
    if schedule.engine.kind is EngineKind.DMA:
        return 1
    match schedule.tactics.protocol:
        case CopyProtocol.SIMPLE:
            return 1
        case CopyProtocol.LL:
            return 2
        case CopyProtocol.LL128:
            return Fraction(LL128_BYTES, LL128_PAYLOAD)
