"""A library collective as a program: its closed form, simulated, so that it can meet other traffic.

Terms that the closed form (``kernels/nccl.py``) does not split further stay fixed: start and steps are the setup of the
ops that hold the library's SMs. The bytes that pass a port go from memory over the links to memory, at the rate of the
protocol and with its flags, and then the own part through memory. The latencies of both are in the fitted start, and
are taken out of it.
"""

from dataclasses import replace
from fractions import Fraction

from ...compiler.ir import (
    TICKS_PER_SECOND,
    EngineChoice,
    EngineKind,
    EngineMode,
    Pattern,
    Scenario,
    Schedule,
    System,
    Workload,
)
from ..kernels.gemm import ticks_for
from ..kernels.nccl import CollectiveTime, NcclCollective, NcclProtocol, collective_time
from ..program.builder import ProgramBuilder
from ..program.program import Flow, OpKind, OpSpec, Program, Stage, TrafficClass
from .kernels import split_by_weight
from .machine import Idealization, Machine, build_machine, distance_ticks
from .protocols import LL128_BYTES, LL128_PAYLOAD

_SENT_PER_BYTE = {NcclProtocol.LL: Fraction(2), NcclProtocol.LL128: Fraction(LL128_BYTES, LL128_PAYLOAD)}


def collective_program(
    system: System, operation: NcclCollective, num_bytes: int, *, channels: int, unit_bytes: int
) -> Program:
    """The collective on all ranks of ``system``, of which one is simulated.

    Parameters
    ----------
    num_bytes
        As nccl-tests counts them, see ``NcclCollective``.
    channels
        SMs that the library takes on each GPU, one for each of its channels.

    Raises
    ------
    ValueError
        As ``collective_time``, or if the fabric is not the same from every rank, or there are fewer SMs than channels.
    """
    if not 1 <= channels <= system.gpu.sms:
        raise ValueError(f"a collective takes 1 to {system.gpu.sms} SMs of {system.gpu.name}, got {channels}")
    if not system.fabric.symmetric:
        raise ValueError(f"in {system.name} no rank stands for all: the fabric is not the same from each of them")
    time = collective_time(system.gpu, operation, num_bytes, system.num_ranks)
    sent = int(time.moved_bytes * _SENT_PER_BYTE.get(time.protocol, Fraction(1)))
    scenario = _alone(_fast_enough(system, sent, time.transfer_ticks))
    engine = EngineChoice(EngineKind.SM, channels, EngineMode.SHARED)
    schedule = Schedule(operation.value, (), engine, system.gpu.sms, 0)
    builder = ProgramBuilder(system.num_ranks, folded=True, unit_bytes=unit_bytes)
    machine = build_machine(builder, scenario, schedule, unit_bytes, Idealization.NONE)
    peers = range(1, system.num_ranks) if operation is NcclCollective.ALL_TO_ALL else range(1, 2)
    units = split_by_weight(-(-sent // (unit_bytes * len(peers))), [1] * channels)
    own = -(-time.own_bytes // (unit_bytes * channels)) if time.own_ticks else 0
    setup = max(0, time.start_ticks + time.step_ticks - _latency(scenario, time, peers))
    for channel, share in enumerate(units):
        stages = (
            _transfer(machine, time, peers, share, (channel, channels)),
            _own(scenario, machine, time, own, channels, unit_bytes),
        )
        builder.op(0, OpSpec(OpKind.TRANSFER, operation.value, stages, pool=machine.engines, setup_ticks=setup))
    return builder.build()


def _alone(system: System) -> Scenario:
    return Scenario("collective", system, Workload("collective", "", Pattern.KERNEL, (), None, None, ""))


def _fast_enough(system: System, sent: int, transfer_ticks: int) -> System:
    """``system`` with links as fast as the library was measured to send: ``achieved`` may be that of a single copy."""
    link = system.fabric.link
    rate = max(link.achieved_bytes_per_s, -(-sent * TICKS_PER_SECOND // max(1, transfer_ticks)))
    return replace(system, fabric=replace(system.fabric, link=replace(link, achieved_bytes_per_s=rate)))


def _latency(scenario: Scenario, time: CollectiveTime, peers: range) -> int:
    """Latency of the last bytes of the transfer, and of the own part where that is short."""
    gpu = scenario.gpu
    trip = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    way = trip + gpu.hbm.latency_ticks + max(distance_ticks(scenario, peer) for peer in peers)
    return way + (max(0, trip - time.own_ticks) if time.own_ticks else 0)


def _transfer(machine: Machine, time: CollectiveTime, peers: range, units: int, turn: tuple[int, int]) -> Stage:
    """``units`` to each of ``peers``, spread over the time of the transfer.

    Flows take turns: by channel, of which this is ``turn[0]`` of ``turn[1]``, and by peer. Together they feed a link
    evenly.
    """
    memory, gap = machine.memory_for(TrafficClass.COMM), time.transfer_ticks // max(1, units)
    flows = []
    for peer in peers:
        route = ((memory.hbm, 0), (memory.l2, 0), *machine.route(0, peer), (memory.hbm, peer))
        place = turn[0] * len(peers) + peer - peers.start
        offset = gap * (place + 1) // (turn[1] * len(peers))
        flows.append(Flow(route, units, gap, offset, TrafficClass.COMM))
    return Stage(time.transfer_ticks, tuple(flows))


def _own(
    scenario: Scenario, machine: Machine, time: CollectiveTime, units: int, workers: int, unit_bytes: int
) -> Stage:
    """``units`` read and written by each of ``workers``, as long as the own part takes."""
    if not units:
        return Stage(0)
    gpu, memory = scenario.gpu, machine.memory_for(TrafficClass.COMM)
    burst = 2 * workers * ticks_for(unit_bytes, gpu.hbm.achieved_bytes_per_s)
    gap = max(0, time.own_ticks - gpu.l2.latency_ticks - gpu.hbm.latency_ticks - burst) // units
    routes = (((memory.hbm, 0), (memory.l2, 0)), ((memory.l2, 0), (memory.hbm, 0)))
    return Stage(time.own_ticks, tuple(Flow(route, units, gap, 0, TrafficClass.COMM) for route in routes))
