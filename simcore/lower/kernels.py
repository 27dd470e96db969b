"""Kernels as ops: launches, and work units on the SM pool with their memory traffic.

A launched kernel takes free SMs as they come. A persistent one is launched once for all groups of a stream: the whole
GEMM picks its tile, units are dealt to the groups by their operations, and SM j goes through units j, j + S, j + 2 S
and so on, waiting where the data of a unit is not there (ROCm/mori, fused GEMM and all_reduce: one persistent GEMM, and
a count of completed tiles for each chunk).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from ...compiler.ir import (
    Direction,
    GroupKernel,
    Kernels,
    KernelShape,
    LaunchMode,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    Wait,
    WaveLoop,
)
from ..kernels.dispatch import (
    by_stream,
    compute_shape,
    compute_work,
    reduce_work,
    shared_works,
    stream_parts,
    stream_work,
    whole_shape,
    work_of,
)
from ..kernels.gemm import stream_shape, ticks_for
from ..kernels.work import KernelWork
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from . import collective as noc
from .collective import after_counts
from .copies import copy_route, copy_workers, ends_of, flag_stages
from .machine import Hop, Idealization, distance_ticks
from .state import (
    Lowering,
    Persistent,
    Runs,
    Waiters,
    moved_bytes,
    split_evenly,
    split_evenly_together,
)
from .waits import add_units, num_waiting, order_pulls, order_stores, stored_away_bytes


def lower_group(state: Lowering, rank: int, step: TileGroup, steps: Sequence[Step]) -> None:
    """A group of tiles, launched by itself or as a part of its stream's persistent kernel."""
    if state.schedule.tactics.kernel is Kernels.PERSISTENT and state.scenario.shape.gemm is not None:
        _persistent_group(state, rank, step, steps)
        return
    here = state.scenario.at(rank)
    if rank not in state.shared:
        state.shared[rank] = shared_works(here, state.schedule, steps)
    work = state.shared[rank].get(step.name) or compute_work(here, step, state.schedule.compute_sms)
    shape = compute_shape(here, step)
    if shape.tiled:
        work = _as_whole(state, shape, work, step.kernel)
    _launched(state, rank, step, work, fitted=shape.tiled)


def lower_reduction(state: Lowering, rank: int, step: Reduction) -> None:
    """A kernel that sums parts, or the last units of a persistent one whose tiles store at other ranks."""
    num_bytes = moved_bytes(state.scenario, step.region)
    hits = int(num_bytes * (step.num_parts - 1) * state.hits.of_sum(rank, step))
    work = reduce_work(state.scenario.gpu, num_bytes, step.num_parts, state.schedule.compute_sms, hits)
    if state.by_tiles:
        _summed_inside(state, rank, step, work)
        return
    _launched(state, rank, step, work, fitted=False)


def fitted_start(state: Lowering, work: KernelWork) -> int:
    """The launch of a GEMM, less what its simulated units take longer than their closed form.

    A unit ends when its last line has come, a latency after it was asked for; a short unit is nothing but latency, and
    a wave of many is bound by memory. The fitted start contains that once, so it is not to be paid twice. SMs end one
    after the other, a line apart, and the next wave of each begins then.
    """
    spread_ticks = min(work.num_units, state.schedule.compute_sms) * _hbm_ticks(state)
    lasts = work.waves * _wave_ticks(state, work) - (work.waves - 1) * spread_ticks
    return max(0, work.start_ticks - max(0, lasts - work.body_ticks))


def _wave_ticks(state: Lowering, work: KernelWork) -> int:
    """The time in which memory and L2 serve a wave of units, of which nothing waits for anything else.

    Writes come to memory when they are past L2; the last read is behind those that came before it.
    """
    gpu = state.scenario.gpu
    # What another L2 misses is no part of the fitted time.
    missed = work.missed_bytes
    sizes = (work.below_l2_bytes - missed, work.hbm_write_bytes, work.l2_hit_bytes + missed)
    read, written, hit = (state.units(num_bytes) // work.waves for num_bytes in sizes)
    window = _window(state, work, work.num_units)
    before = written * max(0, window - gpu.l2.latency_ticks) // max(1, window)
    reads = (read + before) * _hbm_ticks(state) + gpu.l2.latency_ticks
    writes = max(read * _hbm_ticks(state), gpu.l2.latency_ticks) + written * _hbm_ticks(state) if written else 0
    l2 = (read + written + hit) * _l2_ticks(state) + gpu.l2.latency_ticks
    return max(max(reads, writes) + gpu.hbm.latency_ticks, l2)


def _launched(state: Lowering, rank: int, step: TileGroup | Reduction, work: KernelWork, *, fitted: bool) -> None:
    """A launch op, then work units on the SM pool; ``fitted`` kernels have a start of their own."""
    awaited = _awaited(state, rank, step)
    looks = bool(awaited) and state.schedule.tactics.wait is not Wait.EVENT
    start = _launch_ticks(state, work, fitted=fitted, waits=bool(awaited) and not looks)
    launch = state.builder.op(
        rank, OpSpec(OpKind.LAUNCH, step.name, setup_ticks=state.setup(start), release_ticks=state.issued(rank))
    )
    waiting = num_waiting(state, work) if looks else 0
    runs = unit_stages(state, rank, work, work.num_units)
    units = add_units(state, rank, step, runs, waiting, _flag(awaited))
    state.builder.after(units.starts, launch)
    # Units that do not look for themselves begin when others have: SMs are not bound to units.
    arrived = (*units.on_transfers, *units.ops[waiting:]) if looks else launch
    waiters = Waiters(launch, arrived, units.polling)
    # What a kernel that shares the SMs leaves idle others take: it counts with its SM time.
    shared, time = step.name in state.shared.get(rank, {}), work.num_units * work.unit_ticks
    alone = work.start_ticks + time // state.schedule.compute_sms if shared else work.alone_ticks
    state.register_kernel(rank, step, units.ops, waiters, work, alone)


def _persistent_group(state: Lowering, rank: int, step: TileGroup, steps: Sequence[Step]) -> None:
    """The units of one group; ``order_units`` deals them to SMs when all groups are known."""
    kernel = state.streams.get((rank, step.stream)) or _begin_stream(state, rank, step.stream, steps)
    work, sms, awaited = kernel.parts[step.name], state.schedule.compute_sms, _awaited(state, rank, step)
    waiting = num_waiting(state, work) if awaited else 0
    runs = unit_stages(state, rank, work, kernel.whole.num_units)
    units = add_units(state, rank, step, runs, waiting, _flag(awaited))
    kernel.units += zip(units.starts, units.ops, strict=True)
    waiters = Waiters(units.starts[:sms], units.on_transfers, units.polling, queued=False)
    share = kernel.whole.alone_ticks * work.num_units // kernel.whole.num_units
    state.register_kernel(rank, step, units.ops, waiters, work, share)


def _summed_inside(state: Lowering, rank: int, step: Reduction, work: KernelWork) -> None:
    """The units of a sum, which the SMs of the persistent kernel come to after all tiles."""
    awaited = _awaited(state, rank, step)
    waiting = work.num_units if awaited else 0
    units = add_units(state, rank, step, unit_stages(state, rank, work, work.num_units), waiting, _flag(awaited))
    state.sums.setdefault(rank, []).extend(zip(units.starts, units.ops, strict=True))
    waiters = Waiters(units.starts, units.on_transfers, units.polling, queued=False)
    state.register_kernel(rank, step, units.ops, waiters, replace(work, start_ticks=0), work.body_ticks)


def order_units(state: Lowering, rank: int) -> None:
    """Make each unit of the persistent kernels of ``rank`` wait for the unit that its SM ran before.

    A kernel has its SMs until it ends: one of another stream comes to them in the order in which they are launched.
    """
    kernels, sms = [kernel for (at, _), kernel in state.streams.items() if at == rank], state.schedule.compute_sms
    for kernel in kernels:
        state.builder.after([start for start, _ in kernel.units[:sms]], kernel.launch)
    units = [unit for kernel in kernels for unit in kernel.units]
    sums = state.sums.get(rank, [])
    if kernels:
        state.builder.after([start for start, _ in sums[: max(0, sms - len(units))]], kernels[0].launch)
    units += sums
    for (_, before), (start, _) in zip(units, units[sms:], strict=False):
        state.builder.after((start,), (before,))
    order_stores(state, units)
    if kernels:
        order_pulls(state, units, kernels[0].launch)


def _begin_stream(state: Lowering, rank: int, stream: int, steps: Sequence[Step]) -> Persistent:
    """Launch the persistent kernel of a stream and deal its units to the groups."""
    groups = by_stream(steps)[stream]
    work = stream_work(state.scenario, state.schedule, groups)
    whole = _as_whole(state, stream_shape(state.scenario, groups), work) if work.block_rows else work
    start = _launch_ticks(state, whole, fitted=whole.block_rows > 0, waits=False)
    issued = state.issued(rank)
    launch = state.builder.op(
        rank, OpSpec(OpKind.LAUNCH, f"stream {stream}", setup_ticks=state.setup(start), release_ticks=issued)
    )
    state.gate(rank, launch)
    away = stored_away_bytes(state, rank, steps)
    parts = stream_parts(state.scenario, whole, groups, state.schedule.compute_sms, away)
    state.streams[rank, stream] = kernel = Persistent(whole, launch, parts, [])
    return kernel


def _awaited(state: Lowering, rank: int, step: TileGroup | Reduction) -> tuple[str, ...]:
    """The signals and transfers that a kernel waits for."""
    return tuple(name for name in step.after if name not in state.kernel_names[rank])


def _flag(awaited: Sequence[str]) -> str:
    return awaited[0] if awaited else ""


def _launch_ticks(state: Lowering, work: KernelWork, *, fitted: bool, waits: bool) -> int:
    """The launch of a kernel: its ``fitted`` start, or that of any kernel, and an event if it ``waits`` for one.

    In a graph the last two cost the same, and once.
    """
    launch, graph = state.scenario.gpu.launch, state.scenario.gpu.sync.graph_launch_ticks
    start = fitted_start(state, work) if fitted else work.start_ticks
    if state.schedule.tactics.launch is LaunchMode.STREAM or graph is None:
        return start + (launch.event_ticks if waits else 0)
    return start + (graph if waits else 0) if fitted else start - launch.kernel_ticks + graph


def _as_whole(state: Lowering, shape: KernelShape, work: KernelWork, kernel: int = 0) -> KernelWork:
    """With decomposition loss idealised away: the part takes its share of the whole kernel's SM time."""
    undivided, sms = whole_shape(state.scenario, kernel), state.schedule.compute_sms
    if Idealization.WHOLE_KERNEL not in state.ideal or undivided is None:
        return work
    whole = work_of(state.scenario.gpu, undivided, state.scenario.gpu.sms)
    share = whole.body_ticks * state.scenario.gpu.sms * shape.flops // undivided.flops
    waves = max(1, -(-work.num_units // sms))
    units = waves * sms
    return replace(work, num_units=units, unit_ticks=max(1, share // units), waves=waves)


def unit_stages(state: Lowering, rank: int, work: KernelWork, together: int) -> Runs:
    """Stages of the work units of ``work``, equal ones together; ``together`` units may run at once.

    Reads are spread evenly over a unit's SM time, so that the last of them is just in time when nothing queues;
    writes likewise. Whatever queues then delays the end of the unit.
    """
    window = _window(state, work, together)
    key = rank, work, window
    if key not in state.units_alike:
        state.units_alike[key] = _unit_stages(state, rank, work, window)
    return state.units_alike[key]


def _unit_stages(state: Lowering, rank: int, work: KernelWork, window: int) -> Runs:
    memory = state.machine.memory_for(TrafficClass.COMPUTE)
    routes: tuple[tuple[tuple[Hop, ...], int], ...] = (
        (((memory.l2, rank),), work.l2_hit_bytes),
        (((memory.hbm, rank), (memory.l2, rank)), work.hbm_read_bytes),
        (((memory.l2, rank), (memory.hbm, rank)), work.hbm_write_bytes),
        (((memory.last_cache, rank), (memory.l2, rank)), work.mall_read_bytes),
    )
    totals = [state.units(num_bytes) for _, num_bytes in routes]

    @cache
    def stages(shares: tuple[int, ...]) -> tuple[Stage, ...]:
        ahead = _look_ahead(state, sum(shares))
        flows = tuple(
            flow
            for (route, _), units in zip(routes, shares, strict=True)
            if units
            for flow in state.spread(
                Flow(route, units, window // units, 0, TrafficClass.COMPUTE, -(-ahead * units // sum(shares)))
            )
        )
        return (Stage(work.unit_ticks, (*flows, *noc.tiled(state, rank, work, window))),)

    shared = split_evenly_together(totals, work.num_units, waves=work.waves)
    return [(count, stages(shares)) for count, shares in shared]


def _look_ahead(state: Lowering, units: int) -> int:
    """Most units of traffic that a work unit may have under way; 0, no limit, if its ``units`` are no more."""
    ahead = state.scenario.gpu.hbm.look_ahead_bytes
    if ahead is None:
        return 0
    room = max(1, ahead // state.unit_bytes)
    return room if room < units else 0


def _window(state: Lowering, work: KernelWork, together: int) -> int:
    """The time over which a unit spreads its traffic: what is left before the latency and the burst of the last.

    A burst is one unit of traffic of each flow of each of the SMs that start together.
    """
    gpu, sms = state.scenario.gpu, min(together, state.schedule.compute_sms)
    burst = sms * (2 * _hbm_ticks(state) + 3 * _l2_ticks(state))
    return max(0, work.unit_ticks - (gpu.l2.latency_ticks + gpu.hbm.latency_ticks + burst))


def _hbm_ticks(state: Lowering) -> int:
    return ticks_for(state.unit_bytes, state.scenario.gpu.hbm.achieved_bytes_per_s)


def _l2_ticks(state: Lowering) -> int:
    l2 = state.scenario.gpu.l2
    return ticks_for(state.unit_bytes, l2.instances * l2.bytes_per_s)


# Copies by kernels that are written as what their work-groups do: loops of wavefronts over lines.
#
# A copy is dealt to work-groups in turn, each on an SM of its own, and the part of one to its wavefronts. All lines of
# a group pass its SM, a server at the rate of ``sm_copy``: a wavefront that waits leaves it to the others.
#
#     get   ask for ``turn`` lines, wait until they are there, and again. The request passes the links to the peer as so
#           many bytes, and queues there behind the data that others get from this rank; the lines come back. With
#           ``waitcnt`` lines left under way, requests are as many chains of ``turn`` lines each: the next turn is asked
#           for when the oldest one is there.
#     put   load, and store at the peer; a store is under way until it is written, and at most ``load`` lines are.
#           Nobody waits for stores but the signal: a barrier of the wavefronts, one way back until all writes are
#           known, a flag.
#
# The requests of a turn travel together and fill whole lines. Where arbitration is fair, a request queues behind other
# requests alone. The bytes that it takes from the link are then units beside the data that it asks for, so that the
# link carries as much as it does first come, first served.


def lower_by_groups(state: Lowering, rank: int, step: Transfer, kernel: GroupKernel) -> None:
    """One op for each chain of requests of a wavefront; of a put also one for the signal of each group."""
    loop, groups = kernel.loop(step.direction), state.machine.groups
    assert loop is not None and groups is not None, "a checked plan has only copies that its kernel makes"
    lines = -(-moved_bytes(state.scenario, step.region) // state.scenario.gpu.line_bytes)
    setup = state.setup(state.scenario.gpu.sm_copy.setup_ticks)
    flag, first, ops = flag_stages(state, rank, step), list[int](), list[int]()
    shares = split_evenly(lines, copy_workers(state, rank, step))
    for of_group in (share for count, share in shares for _ in range(count)):
        group = state.groups_busy.get(rank, 0) if step.lane is None else step.lane
        state.groups_busy[rank] = (group + 1) % kernel.groups
        copy = _Copy(state, rank, step, kernel, (groups.first_sm + group, rank))
        waves: list[int] = []
        for count, share in split_evenly(of_group, kernel.waves * loop.turns):
            stages = copy.stages(loop, share)
            spec = OpSpec(OpKind.TRANSFER, step.name, stages, pool=groups.waves_of(group), setup_ticks=setup)
            waves += state.builder.op(rank, spec, count=count)
        first += waves
        ops += waves
        if flag:
            signal = state.builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, flag))
            state.builder.after(signal, waves)
            ops += signal
    after_counts(state, rank, first)
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(first, first))


@dataclass(frozen=True, slots=True)
class _Copy:
    """The part of ``step`` that one work-group moves, on its ``sm``."""

    state: Lowering
    rank: int
    step: Transfer
    kernel: GroupKernel
    sm: Hop

    def stages(self, loop: WaveLoop, lines: int) -> tuple[Stage, ...]:
        """The stages of one chain of requests, which moves so many ``lines``."""
        read, way, write = copy_route(self.state, self.rank, self.step)
        if self.step.direction is Direction.PUT:
            flow = Flow((*read, self.sm, *way, *write), lines, traffic=TrafficClass.COMM, window_units=loop.load)
            return (Stage(0, (flow,)),)
        if in_registers(self.state, self.rank, self.step):
            write = ()
        data = Flow((*read, *way, self.sm, *write), loop.turn, traffic=TrafficClass.COMM)
        full, rest = divmod(max(1, lines), loop.turn)
        last = self._turn(data._replace(units=min(rest, lines))) if rest else ()
        return self._turn(data) * full + last

    def _turn(self, data: Flow) -> tuple[Stage, ...]:
        """The request for ``data``, and the data when it has come to the peer."""
        state, (source, _) = self.state, ends_of(self.rank, self.step)
        assert state.machine.groups is not None
        request_units, own = state.units(data.units * self.kernel.request_bytes), state.machine.groups.requests
        if not request_units:
            return Stage(distance_ticks(state.scenario, self.step.peer, self.rank)), Stage(0, (data,))
        request = Flow(state.machine.route(self.rank, source), request_units, traffic=TrafficClass.FLAGS)
        if not own:
            return Stage(0, (request,)), Stage(0, (data,))
        first = request._replace(route=state.machine.route(self.rank, source, own), units=data.units)
        return Stage(0, (first,)), Stage(0, (data, request))


def in_registers(state: Lowering, rank: int, step: Transfer | Reduction) -> bool:
    """Whether what a get brings, or all that a sum adds up but the own part, stays in registers.

    So it is where the kernel adds up what it gets: of the gets that add to a region the last adds the own part and
    writes the sum, and a sum of parts that this rank gets writes it where they were added up.
    """
    kernel, steps = state.schedule.engine.kernel, state.schedule.steps_of(rank)
    if kernel is None or not kernel.sums:
        return False
    gets = [each for each in steps if isinstance(each, Transfer) and each.direction is Direction.GET]
    signals = {each.signal for each in gets}
    sums = [each for each in steps if isinstance(each, Reduction) and signals.issuperset(each.after)]
    if isinstance(step, Reduction):
        return step in sums
    if step.reduce:
        return step != [each for each in gets if each.reduce and each.region == step.region][-1]
    return any(step.signal in each.after for each in sums)
