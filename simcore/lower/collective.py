"""The collective of a library as ops: its closed form, simulated, so that it can meet other traffic.

The steps of the plan say what is moved and what waits for it; one call at each rank carries them all out, and begins
when every rank has called. Terms that the closed form (``kernels/nccl.py``) does not split further stay fixed: start
and steps are the setup of the ops that hold the library's SMs. The bytes that pass a port go from memory over the links
to memory, at the rate of the protocol and with its flags, and then the own part through memory. The latencies of both
are in the fitted start, and are taken out of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ...compiler.ir import (
    TICKS_PER_SECOND,
    Direction,
    EngineKind,
    OpCase,
    OpPlan,
    Pattern,
    ProtocolModel,
    Reduction,
    System,
    Transfer,
)
from ...compiler.planning.knobs.library import exchange_on, library_on, links_out
from ...compiler.templates.collective import collective_in
from ..kernels.dispatch import split_by_weight
from ..kernels.gemm import ticks_for
from ..kernels.nccl import CollectiveTime, NcclCollective, NcclProtocol, collective_time, routed_time
from ..kernels.work import KernelWork
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .machine import LL128_BYTES, LL128_PAYLOAD, Hop, distance_ticks, noc_packet_bytes, noc_packet_ticks
from .state import LibraryCall, Lowering, StepOps, Waiters, begun_by, moved_bytes, split_evenly

_SENT_PER_BYTE = {NcclProtocol.LL: Fraction(2), NcclProtocol.LL128: Fraction(LL128_BYTES, LL128_PAYLOAD)}


def library_operation(scenario: OpCase) -> NcclCollective:
    """The collective of the library that ``scenario`` is or has as a part.

    Raises
    ------
    ValueError
        If the library has none.
    """
    collective = collective_in(scenario.shape.pattern) or Pattern.KERNEL
    return NcclCollective(collective.value)


def library_collective_time(scenario: OpCase) -> CollectiveTime:
    """The time of the library's collective by its closed form, alone; scaled to the links that there are.

    Raises
    ------
    ValueError
        As ``collective_time``, or if the library has no such collective.
    """
    moved, operation = scenario.shape.moved, library_operation(scenario)
    assert moved is not None, "a collective moves a tensor"
    routed, routing = exchange_on(scenario.system, scenario.shape), scenario.shape.routing
    if routed is not None and routing is not None:
        return routed_time(routed, scenario.num_ranks, moved.num_bytes, *routing.counts)
    gpu = replace(scenario.gpu, collectives=library_on(scenario.system))
    return collective_time(gpu, operation, moved.num_bytes, scenario.num_ranks)


def _over_links(scenario: OpCase, time: CollectiveTime) -> Fraction:
    """The share of the library's bytes for which the links of ``scenario`` are held.

    Less than 1 where the library was measured to send faster than single copies achieve: links serve all parts at the
    rate of copies, so fewer of its units take as long there as all of them at its own rate.
    """
    achieved = scenario.system.fabric.link.achieved_bytes_per_s
    rate = -(-_sent_bytes(time) * TICKS_PER_SECOND // (links_out(scenario.system) * max(1, time.transfer_ticks)))
    rate = min(rate, with_fastest_links(scenario.system).fabric.link.achieved_bytes_per_s)
    return Fraction(achieved, max(achieved, rate))


def with_fastest_links(system: System) -> System:
    """``system`` with links as fast as its library was measured to send over them, where a copy achieves less."""
    library = library_on(system)
    if library is None:
        return system
    link, exchange, summed = system.fabric.link, library.all_to_all, min(library.reduce_factor, Fraction(1))
    rates = [library.simple.bytes_per_s / summed, _over_link(library.ll128)]
    if exchange is not None:
        rates += [Fraction(exchange.simple.bytes_per_s), _over_link(exchange.ll128)]
    fastest = int(max(rates)) // links_out(system)
    link = replace(link, achieved_bytes_per_s=min(link.peak_bytes_per_s, max(link.achieved_bytes_per_s, fastest)))
    return replace(system, fabric=replace(system.fabric, link=link))


def _over_link(ll128: ProtocolModel) -> Fraction:
    """What passes a link at the rate of LL128, with its flags."""
    return ll128.bytes_per_s * _SENT_PER_BYTE[NcclProtocol.LL128]


def begin_calls(state: Lowering, ranks: range) -> None:
    """Add the call of the library at each of ``ranks``; its channels begin when all ranks have called."""
    if not state.by_library:
        return
    label, time = library_operation(state.scenario).value, library_collective_time(state.scenario)
    called = {rank: state.builder.op(rank, OpSpec(OpKind.LAUNCH, label)) for rank in ranks}
    for rank in ranks:
        state.gate(rank, called[rank])
        work = _channels(state, rank, time, label)
        state.builder.after(work, (state.join(rank, label, [op for begins in called.values() for op in begins]),))
        state.calls[rank] = LibraryCall(called[rank], work, state.join(rank, label, work))


def lower_called(state: Lowering, rank: int, step: Transfer | Reduction) -> None:
    """Register a step of the collective as done by the call, which waits for what its first step waits for."""
    call = state.calls[rank]
    state.step_ops[rank, step.name] = StepOps(rank, step, call.work, call.done)
    state.waiters[rank, step.name] = Waiters(call.begin)
    state.calls[rank] = replace(call, begin=range(0))


def _channels(state: Lowering, rank: int, time: CollectiveTime, label: str) -> range:
    """The ops of the library's SMs at ``rank``, one for each channel."""
    scenario, unit_bytes, channels = state.scenario, state.unit_bytes, state.schedule.engine.count
    everybody = range(1, scenario.num_ranks)
    to_all = library_operation(scenario) is NcclCollective.ALL_TO_ALL or links_out(scenario.system) > 1
    peers = everybody if to_all else everybody[:1]
    sent, over_links = -(-_sent_bytes(time) // (unit_bytes * len(peers))), _over_links(scenario, time)
    own = -(-time.own_bytes // (unit_bytes * channels)) if time.own_ticks else 0
    setup = state.setup(max(0, time.start_ticks + time.step_ticks - _latency(scenario, time, peers)))
    ops: list[int] = []
    for channel, share in enumerate(split_by_weight(sent, [1] * channels)):
        crossing = -(-share * over_links.numerator // over_links.denominator)
        transfer = _transfer(state, rank, time, peers, (crossing, share - crossing), channel)
        stages = (transfer, _own(state, rank, time, own))
        spec = OpSpec(OpKind.TRANSFER, label, stages, pool=state.machine.engines, setup_ticks=setup)
        ops += state.builder.op(rank, spec)
    return range(ops[0], ops[-1] + 1)


def _sent_bytes(time: CollectiveTime) -> int:
    """Bytes that pass a port, flags included."""
    return int(time.moved_bytes * _SENT_PER_BYTE.get(time.protocol, Fraction(1)))


def _latency(scenario: OpCase, time: CollectiveTime, peers: range) -> int:
    """Latency of the last bytes of the transfer, and of the own part where that is short."""
    gpu = scenario.gpu
    trip = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    way = trip + gpu.hbm.latency_ticks + max(distance_ticks(scenario, peer) for peer in peers)
    return way + (max(0, trip - time.own_ticks) if time.own_ticks else 0)


def _transfer(
    state: Lowering, rank: int, time: CollectiveTime, peers: range, units: tuple[int, int], channel: int
) -> Stage:
    """``units`` to each of ``peers``, over links and beside them, spread over the time of the transfer.

    Flows take turns: by ``channel``, and by peer. Together they feed a link evenly.
    """
    memory = state.machine.memory_for(TrafficClass.COMM)
    turns, flows = state.schedule.engine.count * len(peers), list[Flow]()
    for peer in peers:
        place = channel * len(peers) + peer - peers.start
        begin, end = ((memory.hbm, rank), (memory.l2, rank)), ((memory.hbm, rank + peer),)
        for way, share in zip((state.machine.route(rank, rank + peer), ()), units, strict=True):
            gap = time.transfer_ticks // max(1, share)
            if share or way:
                flows.append(Flow((*begin, *way, *end), share, gap, gap * (place + 1) // turns, TrafficClass.COMM))
    return Stage(time.transfer_ticks, tuple(flows))


def _own(state: Lowering, rank: int, time: CollectiveTime, units: int) -> Stage:
    """``units`` read and written by each channel, as long as the own part takes."""
    if not units:
        return Stage(0)
    gpu, memory = state.scenario.gpu, state.machine.memory_for(TrafficClass.COMM)
    burst = 2 * state.schedule.engine.count * ticks_for(state.unit_bytes, gpu.hbm.achieved_bytes_per_s)
    gap = max(0, time.own_ticks - gpu.l2.latency_ticks - gpu.hbm.latency_ticks - burst) // units
    hbm, l2 = (memory.hbm, rank), (memory.l2, rank)
    return Stage(time.own_ticks, tuple(Flow(way, units, gap, 0, TrafficClass.COMM) for way in ((hbm, l2), (l2, hbm))))


def counts_ticks(scenario: OpCase, schedule: OpPlan) -> int:
    """The time before the first copy of rows whose number GPUs decide; 0 where the host knows, or the library copies.

    The host reads how many its copy engines are to copy: an event tells it that the counts are there, a copy brings
    them, and then it issues: what each takes is the profile's, of a host that does nothing else. Where a framework's
    dispatch or combine is known, anybody prepares as long as that takes beside sending, but for a launch and one way of
    a flag, which a schedule of one's own has too: counting, laying out and packing rows.
    """
    gpu, shape = scenario.gpu, scenario.shape
    if not shape.counts_on_device or schedule.engine.by_library:
        return 0
    kernel, prepared = exchange_on(scenario.system, shape), 0
    if kernel is not None and shape.routing is not None and shape.moved is not None:
        fixed, _ = kernel.split(scenario.num_ranks, shape.moved.num_bytes, *shape.routing.counts)
        own = gpu.launch.kernel_ticks + distance_ticks(scenario, 1) + 2 * gpu.hbm.latency_ticks
        prepared = max(0, kernel.start_ticks + fixed - own)
    if schedule.engine.kind is not EngineKind.DMA:
        return prepared
    return max(prepared, gpu.launch.event_ticks + gpu.dma.setup_ticks + gpu.launch.kernel_ticks)


def after_counts(state: Lowering, rank: int, ops: Sequence[int]) -> None:
    """Let copies begin once the host has read the counts, which are there when the plan begins."""
    ticks = counts_ticks(state.scenario, state.schedule)
    if not ticks:
        return
    if rank not in state.counts:
        read = state.builder.op(rank, OpSpec(OpKind.JOIN, "counts", setup_ticks=state.setup(ticks)))
        state.counts[rank] = read.start
        state.gate(rank, read)
    state.builder.after(ops, (state.counts[rank],))


# Transfers that a switch copies to all ranks, or sums from all (NVIDIA NVLink SHARP: multimem stores and loads).
#
# A multicast put leaves its rank once and every other rank's port once. A sum leaves every rank, the one that asks for
# it included, and reaches that one once. Data is passed on slice by slice: what comes down begins when all of its slice
# is at the switch.


def copied(state: Lowering, flow: Flow) -> tuple[Flow, ...]:
    """``flow`` of a copy, divided into what passes the network on chip and the rest, over the channels of memories."""
    noc = state.machine.memory_for(TrafficClass.COMM).noc
    passing = 0 if noc is None else flow.units * state.unit_bytes // noc_packet_bytes(state.unit_bytes)
    if noc is None or not passing:
        return state.spread(flow)
    through = _part(flow._replace(route=_through(state, flow.route, noc)), passing)
    rest = _part(flow, flow.units - passing)
    return tuple(each for part in (through, rest) if part.units for each in state.spread(part))


def tiled(state: Lowering, rank: int, work: KernelWork, window_ticks: int) -> tuple[Flow, ...]:
    """The network's time that a unit of ``work`` takes, spread over ``window_ticks``; nothing if no tile takes any."""
    noc, network = state.machine.memory_for(TrafficClass.COMPUTE).noc, state.scenario.gpu.noc
    packets = 0 if noc is None or network is None else work.noc_ticks // noc_packet_ticks(network, state.unit_bytes)
    if noc is None or not packets:
        return ()
    return (Flow(((noc, rank),), packets, window_ticks // packets, 0, TrafficClass.COMPUTE),)


def _through(state: Lowering, route: tuple[Hop, ...], noc: int) -> tuple[Hop, ...]:
    """``route`` with the network on chip between memory and links, at both ends where it meets memory."""
    memories = state.machine.memory_servers
    links = [index for index, (server, _) in enumerate(route) if server not in memories]
    read, way, written = route[: links[0]], route[links[0] : links[-1] + 1], route[links[-1] + 1 :]
    source, target = (((noc, end[0][1]),) if end else () for end in (read, written))
    return (*read, *source, *way, *target, *written)


def _part(flow: Flow, units: int) -> Flow:
    """``units`` of ``flow`` at its pace, with their part of its window: the first leaves when it is whole."""
    gap = flow.gap_ticks * flow.units // max(1, units)
    return flow._replace(
        units=units,
        gap_ticks=gap,
        offset_ticks=max(0, flow.offset_ticks - flow.gap_ticks) + gap,
        window_units=-(-flow.window_units * units // flow.units),
    )


MAX_SLICES = 8
"""A choice, not a measurement: what comes down ends an eighth of the copy after what goes up."""
SLICE_BYTES = 32 << 10
"""The least part that a worker copies at a time: sent in a few times what it takes to reach the switch."""

_Routes = Sequence[tuple[Hop, ...]]


class Pace(NamedTuple):
    """How SMs copy: ``workers`` of them, each with its setup time and the time from one unit to the next."""

    workers: int
    setup_ticks: int
    gap_ticks: int


class _Ways(NamedTuple):
    """Routes into the switch and out of it."""

    up: _Routes
    down: _Routes


class _Slice(NamedTuple):
    """Stages of the ops of one slice: up to the switch, the last units behind the others, and all down from there."""

    rises: tuple[Stage, ...]
    follows: tuple[Stage, ...]
    falls: tuple[Stage, ...]


def multicast(state: Lowering, rank: int, step: Transfer, pace: Pace) -> None:
    """A put to all other ranks: up once, down to each of them."""
    memory, peers = state.machine.memory_for(TrafficClass.COMM), range(1, state.scenario.num_ranks)
    up, _ = _ports(state, rank, rank + 1)
    down = [(*_ports(state, rank, rank + peer)[1], (memory.hbm, rank + peer)) for peer in peers]
    _sliced(state, rank, step, _Ways([(*_read(state, rank), *up)], down), pace)


def sum_in_switch(state: Lowering, rank: int, step: Transfer, pace: Pace) -> None:
    """A get of the sum of all ranks' copies: up from each of them, down once. The request travels first."""
    memory, n = state.machine.memory_for(TrafficClass.COMM), state.scenario.num_ranks
    up = [(*_read(state, rank + k), *_ports(state, rank + k, rank + k + 1)[0]) for k in range(n)]
    down = [(*_ports(state, rank - 1, rank)[1], (memory.hbm, rank))]
    request_ticks = distance_ticks(state.scenario, 1, rank)
    _sliced(state, rank, step, _Ways(up, down), pace._replace(setup_ticks=pace.setup_ticks + request_ticks))


def _ports(state: Lowering, source: int, target: int) -> tuple[tuple[Hop, ...], tuple[Hop, ...]]:
    """The way into the switch and the way out of it."""
    route = state.machine.route(source, target)
    if len(route) != 2:
        raise ValueError(f"{state.scenario.system.name} has no switch that all its GPUs share, to copy or to sum in")
    return route[:1], route[1:]


def _read(state: Lowering, rank: int) -> tuple[Hop, ...]:
    memory = state.machine.memory_for(TrafficClass.COMM)
    return ((memory.hbm, rank), (memory.l2, rank)) if state.by_sms else ((memory.hbm, rank),)


def _sliced(state: Lowering, rank: int, step: Transfer, ways: _Ways, pace: Pace) -> None:
    """Add the ops of all workers; each has its part of the bytes."""
    line = state.scenario.gpu.line_bytes
    shares = split_evenly(-(-moved_bytes(state.scenario, step.region) // line), pace.workers)
    workers = list[range]()
    for count, lines in shares:
        slices = _slices(state, ways, pace, state.units(lines * line))
        workers += [_worker(state, rank, step, pace, slices) for _ in range(count)]
    first, copied = [ops.start for ops in workers], range(workers[0].start, workers[-1].stop)
    waiting = begun_by(state, rank, step, first)
    if state.one_kernel and step.direction is Direction.PUT:
        copied = range(copied.start, _flags(state, rank, step, copied).stop)
    state.register(rank, step, copied, Waiters(waiting, waiting))


def _flags(state: Lowering, rank: int, step: Transfer, copied: range) -> range:
    """The flag that the switch copies to all when the data is known to be there, as one put to a peer has it."""
    memory, n = state.machine.memory_for(TrafficClass.COMM), state.scenario.num_ranks
    up, _ = _ports(state, rank, rank + 1)
    ways = [
        (*_ports(state, rank, peer)[1], state.flag_hop(memory, step.signal, peer)) for peer in range(rank + 1, rank + n)
    ]
    back = 0 if state.scenario.system.fabric.in_order else distance_ticks(state.scenario, 1, rank)
    rises, falls = ([Flow(way, 1, traffic=TrafficClass.FLAGS) for way in part] for part in ((up,), ways))
    flag = state.builder.op(
        rank, OpSpec(OpKind.TRANSFER, step.name, (Stage(back), Stage(0, tuple(rises)), Stage(0, tuple(falls))))
    )
    state.builder.after(flag, copied)
    return flag


def _slice(state: Lowering, ways: _Ways, units: int, gap: int) -> _Slice:
    """A slice of ``units``: as many follow the others as are sent while those reach the switch."""
    lag = sum(state.builder.passing_ticks(server) for server, _ in ways.up[0])
    last = min(units // 2, lag // gap)
    return _Slice(
        rises=(Stage(0, _flows(state, ways.up, units - last, gap)),),
        follows=(Stage((units - last) * gap, _flows(state, ways.up, last, gap)),) if last else (),
        falls=(Stage(0, _flows(state, ways.down, units, 0)),),
    )


def num_slices(num_bytes: int) -> int:
    """The slices of what one worker copies."""
    return min(MAX_SLICES, max(1, num_bytes // SLICE_BYTES))


def _slices(state: Lowering, ways: _Ways, pace: Pace, units: int) -> tuple[_Slice, ...]:
    """The parts of what a worker copies; equal ones are the same object."""
    count, gap = num_slices(units * state.unit_bytes), pace.gap_ticks
    sizes = [high - low for low, high in pairwise(units * i // count for i in range(count + 1))]
    slices = {size: _slice(state, ways, size, gap) for size in set(sizes)}
    return tuple(slices[size] for size in sizes)


def _worker(state: Lowering, rank: int, step: Transfer, pace: Pace, slices: Sequence[_Slice]) -> range:
    """The ops of one worker, the one that waits for others first.

    It holds an engine for the setup, then slice by slice until each is at the switch but for what it sends meanwhile.
    So slow links hold it up, and what began is not interrupted by copies that are ready later.
    """
    engine, builder = state.machine.engines, state.builder
    begin = risen = builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, pool=engine, setup_ticks=pace.setup_ticks))
    for part in slices:
        before = risen
        risen = builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, part.rises, pool=engine, priority=-1))
        followed = builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, part.follows)) if part.follows else range(0)
        fallen = builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, part.falls))
        builder.after((*risen, *followed), before)
        builder.after(fallen, (*risen, *followed))
    return range(begin.start, fallen.stop)


def _flows(state: Lowering, routes: _Routes, units: int, gap: int) -> tuple[Flow, ...]:
    return tuple(flow for route in routes for flow in copied(state, Flow(route, units, gap, gap, TrafficClass.COMM)))
