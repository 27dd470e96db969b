"""Transfers that a switch copies to all ranks, or sums from all (NVIDIA NVLink SHARP: multimem stores and loads).

A multicast put leaves its rank once and every other rank's port once. A sum leaves every rank, the one that asks for it
included, and reaches that one once. Data is passed on slice by slice: what comes down begins when all of its slice is
at the switch.
"""

from collections.abc import Sequence
from itertools import pairwise

from ...compiler.ir import Direction, Transfer
from ..program.program import Flow, Op, OpKind, Stage, TrafficClass
from .commands import begun_by
from .machine import Hop, distance_ticks
from .state import Lowering, Waiters, deal, moved_bytes

MAX_SLICES = 8
"""A choice, not a measurement: what comes down ends an eighth of the copy after what goes up."""

_Routes = Sequence[tuple[Hop, ...]]


def multicast(state: Lowering, rank: int, step: Transfer, workers: int, setup: int, gap: int) -> None:
    """A put to all other ranks: up once, down to each of them."""
    memory, peers = state.machine.memory_for(TrafficClass.COMM), range(1, state.scenario.num_ranks)
    up, _ = _ports(state, rank, rank + 1)
    down = [(*_ports(state, rank, rank + peer)[1], (memory.hbm, rank + peer)) for peer in peers]
    _sliced(state, rank, step, [(*_read(state, rank), *up)], down, workers, setup, gap)


def sum_in_switch(state: Lowering, rank: int, step: Transfer, workers: int, setup: int, gap: int) -> None:
    """A get of the sum of all ranks' copies: up from each of them, down once. The request travels first."""
    memory, n = state.machine.memory_for(TrafficClass.COMM), state.scenario.num_ranks
    up = [(*_read(state, rank + k), *_ports(state, rank + k, rank + k + 1)[0]) for k in range(n)]
    down = [(*_ports(state, rank - 1, rank)[1], (memory.hbm, rank))]
    _sliced(state, rank, step, up, down, workers, setup + distance_ticks(state.scenario, 1, rank), gap)


def _ports(state: Lowering, source: int, target: int) -> tuple[tuple[Hop, ...], tuple[Hop, ...]]:
    """The way into the switch and the way out of it."""
    route = state.machine.route(source, target)
    if len(route) != 2:
        raise ValueError(f"{state.scenario.system.name} has no switch that all its GPUs share, to copy or to sum in")
    return route[:1], route[1:]


def _read(state: Lowering, rank: int) -> tuple[Hop, ...]:
    memory = state.machine.memory_for(TrafficClass.COMM)
    return ((memory.hbm, rank), (memory.l2, rank)) if state.by_sms else ((memory.hbm, rank),)


def _sliced(
    state: Lowering, rank: int, step: Transfer, up: _Routes, down: _Routes, workers: int, setup: int, gap: int
) -> None:
    """The ops of every worker, which has its part of the bytes."""
    line = state.scenario.gpu.line_bytes
    first: list[int] = []
    last = 0
    for count, lines in deal(-(-moved_bytes(state.scenario, step.region) // line), workers):
        for _ in range(count):
            ops = _worker(state, rank, step, up, down, state.units(lines * line), setup, gap)
            first.append(ops.start)
            last = ops.stop
    waiting = begun_by(state, rank, step, first)
    if state.one_kernel and step.direction is Direction.PUT:
        last = _flags(state, rank, step, range(first[0], last)).stop
    state.finish(rank, step, range(first[0], last), Waiters(waiting, waiting))


def _flags(state: Lowering, rank: int, step: Transfer, copied: range) -> range:
    """The flag that the switch copies to all when the data is known to be there, as one put to a peer has it."""
    memory, n = state.machine.memory_for(TrafficClass.COMM), state.scenario.num_ranks
    up, _ = _ports(state, rank, rank + 1)
    ways = [
        (*_ports(state, rank, peer)[1], state.flag_hop(memory, step.signal, peer)) for peer in range(rank + 1, rank + n)
    ]
    ordered = all(link.ordered for link in state.scenario.system.fabric.links)
    back = 0 if ordered else distance_ticks(state.scenario, 1, rank)
    rises, falls = ([Flow(way, 1, traffic=TrafficClass.FLAGS) for way in part] for part in ((up,), ways))
    flag = state.builder.op(
        rank, Op(OpKind.TRANSFER, step.name, (Stage(back), Stage(0, tuple(rises)), Stage(0, tuple(falls))))
    )
    state.builder.after(flag, copied)
    return flag


def _worker(
    state: Lowering, rank: int, step: Transfer, up: _Routes, down: _Routes, units: int, setup: int, gap: int
) -> range:
    """The ops of one worker, the one that waits for others first.

    It holds an engine for the setup and then slice by slice for as long as it takes to send one.
    """
    slices = min(MAX_SLICES, max(1, units))
    sizes = [high - low for low, high in pairwise(units * i // slices for i in range(slices + 1))]
    engine, add = state.machine.engines, state.builder
    begin = before = add.op(rank, Op(OpKind.TRANSFER, step.name, pool=engine, setup_ticks=setup))
    for size in sizes:
        risen = add.op(rank, Op(OpKind.TRANSFER, step.name, (Stage(0, _flows(state, up, size, gap)),)))
        fallen = add.op(rank, Op(OpKind.TRANSFER, step.name, (Stage(0, _flows(state, down, size, 0)),)))
        sent = add.op(rank, Op(OpKind.TRANSFER, step.name, (Stage(size * gap),), pool=engine))
        add.after(risen, before)
        add.after(sent, before)
        add.after(fallen, risen)
        before = sent
    return range(begin.start, before.stop)


def _flows(state: Lowering, routes: _Routes, units: int, gap: int) -> tuple[Flow, ...]:
    return tuple(flow for route in routes for flow in state.spread(Flow(route, units, gap, gap, TrafficClass.COMM)))
