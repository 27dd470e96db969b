"""Transfers that a switch copies to all ranks, or sums from all (NVIDIA NVLink SHARP: multimem stores and loads).

A multicast put leaves its rank once and every other rank's port once. A sum leaves every rank, the one that asks for it
included, and reaches that one once. Data is passed on slice by slice: what comes down begins when all of its slice is
at the switch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...compiler.ir import Direction, Transfer
from ..kernels.work import KernelWork
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .machine import Hop, distance_ticks, noc_packet_bytes, noc_packet_ticks
from .state import Lowering, Waiters, begun_by, moved_bytes, split_evenly


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


MAX_SLICES = 8
"""A choice, not a measurement: what comes down ends an eighth of the copy after what goes up."""
SLICE_BYTES = 32 << 10
"""The least part that a worker copies at a time: sent in a few times what it takes to reach the switch."""

_Routes = Sequence[tuple[Hop, ...]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How SMs copy: ``workers`` of them, each with its setup time and the time from one unit to the next."""

    workers: int
    setup_ticks: int
    gap_ticks: int


@dataclass(frozen=True, slots=True)
class _Ways:
    """Routes into the switch and out of it."""

    up: _Routes
    down: _Routes


@dataclass(frozen=True, slots=True)
class _Slice:
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
    _sliced(state, rank, step, _Ways(up, down), replace(pace, setup_ticks=pace.setup_ticks + request_ticks))


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
    ordered = state.scenario.system.fabric.in_order
    back = 0 if ordered else distance_ticks(state.scenario, 1, rank)
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
