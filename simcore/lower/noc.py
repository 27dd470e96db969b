"""Traffic of tiles and copies in the network on chip, which they share.

Lines of a copy pass it where they meet a memory: at the source when they are read, at the destination when they are
written. One line in each packet of ``NOC_PACKET_BYTES`` passes for all, at the service of the packet.
"""

from dataclasses import replace

from ..kernels.work import KernelWork
from ..program.program import Flow, TrafficClass
from .machine import Hop, noc_packet_bytes, noc_packet_ticks
from .state import Lowering


def copied(state: Lowering, flow: Flow) -> tuple[Flow, ...]:
    """``flow`` of a copy, divided into what passes the network on chip and the rest, over the channels of memories."""
    noc = state.machine.memory_for(TrafficClass.COMM).noc
    passing = 0 if noc is None else flow.units * state.unit_bytes // noc_packet_bytes(state.unit_bytes)
    if noc is None or not passing:
        return state.spread(flow)
    through = _part(replace(flow, route=_through(state, flow.route, noc)), passing)
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
    return replace(
        flow,
        units=units,
        gap_ticks=gap,
        offset_ticks=max(0, flow.offset_ticks - flow.gap_ticks) + gap,
        window_units=-(-flow.window_units * units // flow.units),
    )
