"""The collective of a library as ops: its closed form, simulated, so that it can meet other traffic.

The steps of the plan say what is moved and what waits for it; one call at each rank carries them all out, and begins
when every rank has called. Terms that the closed form (``kernels/nccl.py``) does not split further stay fixed: start
and steps are the setup of the ops that hold the library's SMs. The bytes that pass a port go from memory over the links
to memory, at the rate of the protocol and with its flags, and then the own part through memory. The latencies of both
are in the fitted start, and are taken out of it.
"""

from dataclasses import replace
from fractions import Fraction

from ...compiler.ir import TICKS_PER_SECOND, OpCase, Pattern, ProtocolModel, Reduction, System, Transfer
from ...compiler.planning.knobs.library import exchange_on, library_on, links_out
from ...compiler.templates.collective import collective_in
from ..kernels.dispatch import split_by_weight
from ..kernels.gemm import ticks_for
from ..kernels.nccl import CollectiveTime, NcclCollective, NcclProtocol, collective_time, routed_time
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .machine import LL128_BYTES, LL128_PAYLOAD, distance_ticks
from .state import LibraryCall, Lowering, StepOps, Waiters

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
        everybody = state.join(rank, label, [op for begins in called.values() for op in begins])
        state.builder.after(work, (everybody,))
        state.calls[rank] = LibraryCall(called[rank], work, state.join(rank, label, work))


def lower_called(state: Lowering, rank: int, step: Transfer | Reduction) -> None:
    """Register a step of the collective as done by the call, which waits for what its first step waits for."""
    call = state.calls[rank]
    first = not any(ops.done == call.done for (at, _), ops in state.step_ops.items() if at == rank)
    state.step_ops[rank, step.name] = StepOps(rank, step, call.work, call.done)
    state.waiters[rank, step.name] = Waiters(call.begin if first else ())


def _channels(state: Lowering, rank: int, time: CollectiveTime, label: str) -> range:
    """The ops of the library's SMs at ``rank``, one for each channel."""
    scenario, unit_bytes, channels = state.scenario, state.unit_bytes, state.schedule.engine.count
    everybody = range(1, scenario.num_ranks)
    to_all = library_operation(scenario) is NcclCollective.ALL_TO_ALL or links_out(scenario.system) > 1
    peers = everybody if to_all else everybody[:1]
    units = split_by_weight(-(-_sent_bytes(time) // (unit_bytes * len(peers))), [1] * channels)
    own = -(-time.own_bytes // (unit_bytes * channels)) if time.own_ticks else 0
    setup = state.setup(max(0, time.start_ticks + time.step_ticks - _latency(scenario, time, peers)))
    ops: list[int] = []
    for channel, share in enumerate(units):
        stages = (_transfer(state, rank, time, peers, share, channel), _own(state, rank, time, own))
        ops += state.builder.op(
            rank, OpSpec(OpKind.TRANSFER, label, stages, pool=state.machine.engines, setup_ticks=setup)
        )
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


def _transfer(state: Lowering, rank: int, time: CollectiveTime, peers: range, units: int, channel: int) -> Stage:
    """``units`` to each of ``peers``, spread over the time of the transfer.

    Flows take turns: by ``channel``, and by peer. Together they feed a link evenly.
    """
    memory, own = state.machine.memory_for(TrafficClass.COMM), _over_links(state.scenario, time)
    turns, flows = state.schedule.engine.count * len(peers), list[Flow]()
    for peer in peers:
        place = channel * len(peers) + peer - peers.start
        crossing = -(-units * own.numerator // own.denominator)
        begin, end = ((memory.hbm, rank), (memory.l2, rank)), ((memory.hbm, rank + peer),)
        for way, share in ((state.machine.route(rank, rank + peer), crossing), ((), units - crossing)):
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
