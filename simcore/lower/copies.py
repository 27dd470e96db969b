"""Transfers as ops: commands of copy engines, and copies by SMs in one of three protocols.

Copies by SMs, by how the other side learns that data is there (NVIDIA NCCL, protocols Simple, LL and LL128):

    SIMPLE   the bytes; where a kernel or a copy looks for the signal also a one-way latency back, until the writes are
             known to have arrived, and one line with the flag; the flag follows at once where links keep order
    LL       8 bytes for every 4: twice the bytes on the links and at the destination, no setup and no second message
    LL128    128 bytes for every 120, likewise

An SM is paced by what it sends, flags included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise

from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineMode,
    Gpu,
    OpCase,
    Reach,
    Transfer,
    Wait,
    Write,
)
from ..kernels.gemm import ticks_for
from ..program.program import PACKET_BYTES, Flow, OpKind, OpSpec, Stage, TrafficClass
from . import collective as noc
from .collective import Pace, after_counts, multicast, sum_in_switch
from .machine import Hop, distance_ticks, sent_per_byte
from .state import Lowering, Waiters, begun_by, issue_ticks, moved_bytes, split_evenly

PEERS_PER_BROADCAST = 2
"""Destinations of one command (AMD-DMA-Latte, arXiv 2511.06605)."""


def lower_transfer(state: Lowering, rank: int, step: Transfer) -> None:
    """One op per engine, or one per SM that shares the copy, each with its part of the bytes."""
    if (rank, step.name) in state.step_ops:
        return  # the other half of a broadcast
    if step.reach is Reach.ALL:
        lower = sum_in_switch if step.reduce else multicast
        gap = _gap(state, rank, step, state.units(moved_bytes(state.scenario, step.region)))
        lower(state, rank, step, Pace(copy_workers(state, rank, step), copy_setup(state, rank, step), gap))
        return
    if (rank, step.name) in state.writes:
        _replayed(state, rank, step, state.writes[rank, step.name])
        return
    gpu, num_bytes = state.scenario.gpu, moved_bytes(state.scenario, step.region)
    other = state.pairs.get((rank, step.name))
    ops, by_sms = list[int](), state.sms_move(rank, step)
    issued = 0 if state.by_sms else state.issued(rank)
    # Dealt in lines, so that as many SMs take part at any granularity.
    for count, lines in split_evenly(-(-num_bytes // gpu.line_bytes), copy_workers(state, rank, step)):
        stages = copy_stages(state, rank, step, other, lines * gpu.line_bytes)
        spec = OpSpec(
            OpKind.TRANSFER,
            step.name,
            stages,
            # A network card reads and writes memory itself.
            pool=state.machine.engines if by_sms is state.by_sms else None,
            setup_ticks=0 if state.prepares(step) else copy_setup(state, rank, step),
            release_ticks=issued,
        )
        ops += state.builder.op(rank, spec, count=count)
    work, waiting = range(ops[0], ops[-1] + 1), begun_by(state, rank, step, ops)
    if state.prepares(step):
        waiting = _prepared(state, rank, step, work, waiting)
    after_counts(state, rank, waiting)
    done = state.register(rank, step, work, Waiters(waiting, waiting))
    if other is not None:
        state.step_ops[rank, other.name] = replace(done, step=other)
        state.waiters[rank, other.name] = Waiters(())


def _prepared(state: Lowering, rank: int, step: Transfer, work: range, issue: Sequence[int]) -> Sequence[int]:
    """The op that waits where a channel prepares a copy, which holds no engine: its setup, behind what issues it."""
    setup = state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, setup_ticks=copy_setup(state, rank, step)))
    source, target = (node % state.scenario.num_ranks for node in ends_of(rank, step))
    if (source, target) not in state.rates:
        slowest = state.machine.network.slowest_bytes_per_s(source, target)
        state.rates[source, target] = min(state.scenario.gpu.dma.bytes_per_s, slowest)
    sending = ticks_for(moved_bytes(state.scenario, step.region), state.rates[source, target])
    sent = state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, setup_ticks=sending))
    state.builder.after((*sent, *work), setup)
    state.sent[rank, step.name] = sent.start
    if not issue_ticks(state):
        return setup
    state.builder.after(setup, issue)
    return issue


def _replayed(state: Lowering, rank: int, step: Transfer, writes: Sequence[Write]) -> None:
    """A copy that a profile describes: its parts begin when that says, and the engines that they had are not modelled.

    The parts share the workers that the copy would have. A part without bytes is a flag; where tiles store, the others
    are data alone, and in the order of ops flags stand with the data: a sum may wait for the first so many tiles.
    """
    line, workers = state.scenario.gpu.line_bytes, max(1, copy_workers(state, rank, step) // len(writes))
    ops: list[int] = []

    @cache  # thousands of writes of a step are as large
    def stages_of(lines: int) -> tuple[Stage, ...]:
        if not lines:
            return _flag_alone(state, rank, step)
        if state.by_tiles:
            return (Stage(0, data_flows(state, rank, step, lines * line)),)
        return copy_stages(state, rank, step, None, lines * line)

    for write in _flags_with_data(writes):
        for count, lines in split_evenly(-(-write.num_bytes // line), workers):
            stages = stages_of(lines)
            ops += state.builder.op(
                rank, OpSpec(OpKind.TRANSFER, step.name, stages, release_ticks=write.ticks), count=count
            )
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops))


def _flags_with_data(writes: Sequence[Write]) -> list[Write]:
    """Data and flags each in order, the first so many of the one with as large a part of the other."""
    kinds = [[write for write in writes if bool(write.num_bytes) is data] for data in (True, False)]
    placed = [(Fraction(place, len(kind)), write) for kind in kinds for place, write in enumerate(kind, 1)]
    return [write for _, write in sorted(placed, key=lambda each: each[0])]


def _flag_alone(state: Lowering, rank: int, step: Transfer) -> tuple[Stage, ...]:
    """The flag of ``step`` from when it leaves; nothing where none is sent."""
    flag = _flag(state, rank, step)
    if flag is None:
        return (Stage(0),)
    if _as_time(state):
        return (Stage(_flag_ticks(state, rank, step) - flag_lead_ticks(state.scenario, rank, step)),)
    return (Stage(0, (flag,)),)


def flag_lead_ticks(scenario: OpCase, rank: int, step: Transfer) -> int:
    """Time from the end of data until its flag leaves: until it is known to be there, where links keep no order."""
    return 0 if scenario.system.fabric.in_order else distance_ticks(scenario, -step.peer, rank + step.peer)


def copy_setup(state: Lowering, rank: int, step: Transfer) -> int:
    """Time before the first byte of a copy leaves; the request of a get travels first."""
    gpu = state.scenario.gpu
    if not state.sms_move(rank, step):
        prelaunched = state.schedule.engine.mode is EngineMode.PRELAUNCHED
        setup = gpu.dma.prelaunch_ticks if prelaunched else max(0, gpu.dma.setup_ticks - issue_ticks(state))
    else:
        # A switch passes on no flags between the data, so that there the other protocols save nothing.
        # Nor are there any in what a get reads.
        flags_between = state.schedule.tactics.protocol is not CopyProtocol.SIMPLE and step.reach is Reach.PEER
        flags_between = flags_between and step.direction is Direction.PUT
        setup = 0 if flags_between else gpu.sm_copy.setup_ticks
    setup = state.setup(setup)
    if step.direction is Direction.GET and step.reach is Reach.PEER:
        setup += distance_ticks(state.scenario, step.peer, rank)
    return setup


def copy_workers(state: Lowering, rank: int, step: Transfer) -> int:
    """SMs per copy: all of them, or an even share (``EngineChoice.sms_of``).

    A copy engine works alone. Between tiles as many SMs copy as feed the link.
    """
    count = state.schedule.engine.count
    if not state.sms_move(rank, step):
        return 1
    if step.reach is Reach.ALL and state.by_tiles:
        rate = state.scenario.system.fabric.link.achieved_bytes_per_s
        return min(count, math.ceil(rate / state.scenario.gpu.sm_copy.bytes_per_s))
    return state.schedule.engine.sms_of(step, state.num_sharing[rank])


def num_packets(gpu: Gpu, state_cols: int, step: Transfer, num_bytes: int) -> int:
    """Packets of a copy by a DMA engine: one for each piece of memory, each as large as a packet may be.

    Such pieces are the rows of a strided region, else the rows of each owner.
    """
    rows = step.region.rows.size if step.region.cols.size < state_cols else 1
    rows *= 1 + len(step.region.also)
    return rows * max(1, -(-(num_bytes // rows) // (gpu.dma.packet_bytes or num_bytes)))


def copy_stages(
    state: Lowering, rank: int, step: Transfer, other: Transfer | None, num_bytes: int
) -> tuple[Stage, ...]:
    """Stages of one worker, an engine, an SM or a unit: its part of the bytes, and then the flag where one is sent.

    Copies of a rank that are alike have the same, told once: then they are laid out once too.
    """
    if other is not None or (rank, step.name) in state.writes:
        return _stages(state, rank, step, other, num_bytes)
    rows, cols = step.region.rows.size * (1 + len(step.region.also)), step.region.cols.size
    flag = state.flag_hop(state.machine.memory_for(TrafficClass.COMM), step.signal, 0)
    put, hits = step.direction is Direction.PUT, state.hits.of_copy(rank, step)
    key = rank, step.peer, put, step.reduce, rows, cols, num_bytes, hits, flag
    if key not in state.alike:
        state.alike[key] = _stages(state, rank, step, None, num_bytes)
    return state.alike[key]


def _stages(state: Lowering, rank: int, step: Transfer, other: Transfer | None, num_bytes: int) -> tuple[Stage, ...]:
    if other is not None:
        steps = (step, other)
        flows = tuple(flow for half in steps for flow in data_flows(state, rank, half, num_bytes, PEERS_PER_BROADCAST))
        return (Stage(0, flows),)
    flows, flag = data_flows(state, rank, step, num_bytes), _flag(state, rank, step)
    if flag is None or not state.scenario.system.fabric.in_order or state.unit_bytes > PACKET_BYTES:
        return Stage(0, flows), *flag_stages(state, rank, step)
    last = max(flow.offset_ticks + (flow.units - 1) * flow.gap_ticks for flow in flows)
    return (Stage(0, (*flows, flag._replace(offset_ticks=last))),)


def flag_stages(state: Lowering, rank: int, step: Transfer) -> tuple[Stage, ...]:
    """The flag behind data that has been sent, when that is known to be there; nothing where none is sent."""
    flag = _flag(state, rank, step)
    if flag is None:
        return ()
    if _as_time(state):
        return (Stage(_flag_ticks(state, rank, step)),)
    if state.scenario.system.fabric.in_order:
        return (Stage(0, (flag,)),)
    return Stage(flag_lead_ticks(state.scenario, rank, step)), Stage(0, (flag,))


def _as_time(state: Lowering) -> bool:
    """Whether units are so much larger than a line that flags take their time, and no room in them."""
    return state.unit_bytes > (state.scenario.gpu.line_bytes if state.by_tiles else PACKET_BYTES)


def data_flows(state: Lowering, rank: int, step: Transfer, num_bytes: int, share: int = 1) -> tuple[Flow, ...]:
    """The bytes of one worker that has a ``share``-th of its rate for them, and the flags between them."""
    units = state.units(num_bytes)
    sent = math.ceil(units * sent_per_byte(state.schedule))
    extra = sent - units
    gap, window = _gap(state, rank, step, units) * share, _window(state, rank, step, sent)
    # A unit leaves when it is whole, so that a copy feeds its link as long at any granularity.
    pace = gap * sent // max(1, units)
    payload = -(-window * units // max(1, sent))
    flows, parts, begun = list[Flow](), _parts(state, rank, step, units), 0
    # A profile says when the first unit leaves: flags do not wait until data is read.
    reading = _reading_ticks(state) if extra and (rank, step.name) in state.writes else 0
    for part in parts:
        # Parts follow each other at the pace of the whole, and what hits comes no sooner than what misses: an SM sends
        # in order. Under a window, whose end is not known, they share pace and window, and flow side by side.
        apart, room = pace * units // max(1, part.units), -(-payload * part.units // max(1, units))
        late = part.early_ticks if len(parts) > 1 else 0
        every, offset = (apart, apart + reading) if window else (pace, pace * (begun + 1) + late + reading)
        flows += noc.copied(state, Flow(part.route, part.units, every, offset, TrafficClass.COMM, room))
        begun += part.units
    if extra:
        _, way, write = copy_route(state, rank, step)
        pace, room = gap * sent // extra, -(-window * extra // sent)
        flows += noc.copied(state, Flow((*way, *write), extra, pace, pace, TrafficClass.COMM, room))
    return tuple(flows)


@dataclass(frozen=True, slots=True)
class _Part:
    """Units of a copy that take one route; they reach the links ``early_ticks`` before those that come from memory."""

    route: tuple[Hop, ...]
    units: int
    early_ticks: int


def _parts(state: Lowering, rank: int, step: Transfer, units: int) -> list[_Part]:
    """``units`` of payload by route: what hits caches at either end passes those."""
    at_source, at_target = (int(units * share) for share in state.hits.of_copy(rank, step))
    parts = []
    for low, high in pairwise([*sorted({0, at_source, at_target}), units]):
        if high > low or not units:
            hits = 0 < high <= at_source
            read, way, write = copy_route(state, rank, step, cached=(hits, 0 < high <= at_target))
            parts.append(_Part((*read, *way, *write), high - low, _saved_ticks(state, rank, step) if hits else 0))
    return parts


def _saved_ticks(state: Lowering, rank: int, step: Transfer) -> int:
    """How much sooner what is read comes from the last cache than from memory; SMs pass L2 in any case."""
    gpu = state.scenario.gpu
    assert gpu.last_cache is not None, "without a cache nothing hits"
    passed = state.sms_move(rank, step) and gpu.mall is None
    return max(0, gpu.hbm.latency_ticks - (0 if passed else gpu.last_cache.latency_ticks))


def _reading_ticks(state: Lowering) -> int:
    """Time in which a unit that SMs copy is read from memory, nothing else there."""
    memory = state.machine.memory_for(TrafficClass.COMM)
    return sum(state.builder.passing_ticks(server) for server in (memory.hbm, memory.l2))


def _gap(state: Lowering, rank: int, step: Transfer, units: int) -> int:
    """Time from unit to unit that one worker needs; packets beyond the first hold a DMA engine."""
    gpu = state.scenario.gpu
    if state.sms_move(rank, step):
        return ticks_for(state.unit_bytes, gpu.sm_copy.bytes_per_s)
    gap = ticks_for(state.unit_bytes, gpu.dma.bytes_per_s)
    moved, num_bytes = state.scenario.shape.moved, moved_bytes(state.scenario, step.region)
    if not gpu.dma.packet_ticks or moved is None:
        return gap
    return gap + gpu.dma.packet_ticks * (num_packets(gpu, moved.cols, step, num_bytes) - 1) // max(1, units)


def _window(state: Lowering, rank: int, step: Transfer, units: int) -> int:
    """Units of a copy that may be under way; 0, no limit, where the copy is smaller or the limit is not known."""
    gpu = state.scenario.gpu
    outstanding = gpu.sm_copy.outstanding_bytes if state.sms_move(rank, step) else gpu.dma.outstanding_bytes
    if outstanding is None:
        return 0
    window = max(1, outstanding // state.unit_bytes)
    return window if window < units else 0


def copy_route(
    state: Lowering, rank: int, step: Transfer, cached: tuple[bool, bool] = (False, False)
) -> tuple[tuple[Hop, ...], tuple[Hop, ...], tuple[Hop, ...]]:
    """From memory, over links, to memory; SMs read through L2, a copy that adds reads the destination too.

    What is read at the source or at the destination may be ``cached`` there. What a profile says to be on its way has
    been read before, and tiles store what they hold.
    """
    source, target = ends_of(rank, step)
    memory = state.machine.memory_for(TrafficClass.COMM)
    first, added = (memory.last_cache if hits else memory.hbm for hits in cached)
    read: tuple[Hop, ...] = ((first, source),)
    if state.sms_move(rank, step) and first != memory.l2:
        read += ((memory.l2, source),)
    if (rank, step.name) in state.writes or step.name in state.stored_by.get(rank, {}):
        read = ()
    return read, state.machine.route(source, target), (*(((added, target),) * step.reduce), (memory.hbm, target))


def ends_of(rank: int, step: Transfer) -> tuple[int, int]:
    """Source and destination, as absolute ranks that may be past the last."""
    peer = rank + step.peer
    return (rank, peer) if step.direction is Direction.PUT else (peer, rank)


def _flag_ticks(state: Lowering, rank: int, step: Transfer) -> int:
    """The time of a flag that meets nothing on its way, in units that are much larger than its line.

    Tiles set so many that units of a packet are too large for them.
    """
    scenario = state.scenario
    there = 0 if scenario.system.fabric.in_order else distance_ticks(scenario, step.peer, rank)
    return scenario.gpu.hbm.latency_ticks + there + flag_lead_ticks(scenario, rank, step)


def _flag(state: Lowering, rank: int, step: Transfer) -> Flow | None:
    """The second message of a put in the protocol SIMPLE, where somebody looks for its flag."""
    tactics = state.schedule.tactics
    looked_for = tactics.wait is not Wait.EVENT or state.one_kernel
    if (
        not state.sms_move(rank, step)
        or tactics.protocol is not CopyProtocol.SIMPLE
        or step.direction is Direction.GET
        or not looked_for
    ):
        return None
    _, way, _ = copy_route(state, rank, step)
    memory = state.machine.memory_for(TrafficClass.COMM)
    return Flow((*way, state.flag_hop(memory, step.signal, rank + step.peer)), 1, traffic=TrafficClass.FLAGS)
