"""Waits of work units for transfers: plainly, by polling the flag, or with a monitor.

A unit that polls holds its SM and reads the line of the flag from memory, round after round. A monitored one reads it
once to arm the monitor, gives its SM back, is woken when the flag is set, and reads it once more (AMD, US patent
12,131,199: a waiter is resumed by the write to the address it waits for). So polls cost reads in proportion to the wait
and a monitor two, however long it is.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

from ...compiler.ir import (
    Gpu,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    Wait,
    WaitPer,
    kernels_of,
    rows_of,
    seen_from,
    span_of,
    sums_of_all,
)
from ..kernels.gemm import ticks_for
from ..kernels.work import KernelWork
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .copies import data_flows, flag_stages
from .machine import distance_ticks
from .state import Lowering, Runs, StepOps, Waiters, moved_bytes


@dataclass(frozen=True, slots=True)
class Units:
    """The ops of work units: ``ops`` themselves, what begins each (``starts``), and those that wait for transfers."""

    ops: range
    starts: tuple[int, ...]
    on_transfers: tuple[int, ...]
    polling: tuple[int, ...]


def num_waiting(state: Lowering, work: KernelWork) -> int:
    """Units that look for flags: the first of each SM, or all of them."""
    per_tile = state.schedule.tactics.per is WaitPer.TILE
    return work.num_units if per_tile else min(work.num_units, state.schedule.compute_sms)


def add_units(state: Lowering, rank: int, step: Step, runs: Runs, waiting: int, flag: str) -> Units:
    """Emit the units of a kernel; the first ``waiting`` look for ``flag`` as the schedule says."""
    if state.schedule.tactics.wait is Wait.EVENT or not waiting:
        ops = _emit(state, rank, step, runs)
        return Units(ops, tuple(ops), tuple(ops[:waiting]), ())
    monitored = _entries(state, rank, waiting)
    poll, read = _poll(state, rank, flag), _read(state, rank, flag)
    arms, wakes = _arm(state, rank, step, monitored, flag) if monitored else (range(0), range(0))
    alike = {id(stages): (stages, (Stage(0, (read,)), *stages), (poll, *stages)) for _, stages in runs}
    looking = [
        (count, alike[id(stages)][1 if first < monitored else 2 if first < waiting else 0])
        for first, count, stages in _cut(runs, (monitored, waiting))
    ]
    ops = _emit(state, rank, step, looking)
    state.builder.after(ops[:monitored], wakes)
    for arm, op in zip(arms, ops, strict=False):
        state.builder.after((op,), (arm,))
    return Units(ops, (*arms, *ops[monitored:]), tuple(wakes), tuple(ops[monitored:waiting]))


def _entries(state: Lowering, rank: int, waiting: int) -> int:
    """Take entries of the monitor of ``rank`` for ``waiting`` units; return how many there were."""
    if state.schedule.tactics.wait is not Wait.MONITOR:
        return 0
    limit, taken = state.scenario.gpu.sync.monitor_entries, state.monitored.get(rank, 0)
    granted = waiting if limit is None else min(waiting, limit - taken)
    state.monitored[rank] = taken + granted
    return granted


def _arm(state: Lowering, rank: int, step: Step, count: int, flag: str) -> tuple[range, range]:
    """For each monitored unit an op that arms, and for all one that is done when they are woken."""
    sync, wake_ticks = state.scenario.gpu.sync, monitor_wake_ticks(state.scenario.gpu)
    wakes = state.builder.op(rank, OpSpec(OpKind.JOIN, step.name, setup_ticks=wake_ticks))
    stage = Stage(sync.monitor_arm_ticks, (_read(state, rank, flag),))
    return state.builder.op(rank, OpSpec(OpKind.LAUNCH, step.name, (stage,)), count=count), wakes


def _poll(state: Lowering, rank: int, flag: str) -> Stage:
    return Stage(poll_ticks(state.scenario.gpu), (_read(state, rank, flag),), polls=True)


def poll_ticks(gpu: Gpu) -> int:
    """Time from one look at a flag to the next: what the profile says, else a read of memory."""
    interval = gpu.hbm.latency_ticks if gpu.sync.poll_interval_ticks is None else gpu.sync.poll_interval_ticks
    return max(1, interval)


def monitor_wake_ticks(gpu: Gpu) -> int:
    """Time from a flag that is set to the waking of who is monitored: what the profile says, else a read of memory."""
    wake_ticks = gpu.sync.monitor_wake_ticks
    return gpu.hbm.latency_ticks if wake_ticks is None else wake_ticks


def _read(state: Lowering, rank: int, flag: str) -> Flow:
    """One unit, the line of the flag, from memory."""
    memory = state.machine.memory_for(TrafficClass.COMPUTE)
    return Flow((state.flag_hop(memory, flag, rank),), 1, traffic=TrafficClass.FLAGS)


def tell(state: Lowering, rank: int, offset: int, label: str, flag: str, after: Iterable[int]) -> int:
    """The op that sets ``flag`` of ``rank`` at the one ``offset`` further, when ``after`` are done."""
    hop = state.flag_hop(state.machine.memory_for(TrafficClass.COMM), flag, rank + offset)
    flow = Flow((*state.machine.route(rank, rank + offset), hop), 1, traffic=TrafficClass.FLAGS)
    reported = state.builder.op(rank, OpSpec(OpKind.LAUNCH, label, (Stage(0, (flow,)),)))
    state.builder.after(reported, after)
    return reported.start


def _emit(state: Lowering, rank: int, step: Step, runs: Runs) -> range:
    """Ops on the SM pool for runs of (number of units, stages of each)."""
    kind = OpKind.REDUCE if isinstance(step, Reduction) else OpKind.TILE
    return state.builder.runs(rank, OpSpec(kind, step.name, pool=state.machine.sms), runs)


def _cut(runs: Runs, edges: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[Stage, ...]]]:
    """Cut ``runs`` at ``edges``: (number of the first unit, number of units, stages)."""
    first = 0
    for count, stages in runs:
        cuts = sorted({first, first + count} | {edge for edge in edges if first < edge < first + count})
        for low, high in pairwise(cuts):
            yield low, high - low, stages
        first += count


def lower_stores(state: Lowering, rank: int, step: Transfer, kernel: TileGroup | Reduction) -> None:
    """Ops for each unit of ``kernel`` that computes a part of what ``step`` moves, with that part of the bytes."""
    tiles = state.step_ops[rank, kernel.name].work
    # Dealt in units of the simulation: a tile's part may be less than one, where these are large.
    units = state.units(moved_bytes(state.scenario, step.region))
    # Where later kernels hold the rest of the tile no SM waits for the store, wherever the plan names these.
    awaited = [state.step_ops.get((rank, name)) for name in step.after]
    held = all(other is not None and other.work.start <= tiles.start for other in awaited)
    # Tiles are many, and their parts of few sizes.
    flows_of = cache(lambda part: data_flows(state, rank, step, part * state.unit_bytes))
    flag = flag_stages(state, rank, step)
    ops: list[int] = []
    for tile, part in _shares(span_of(step.region, kernel), len(tiles), units):
        stores = _halves(state, rank, step.name, tiles[tile], part, flows_of)
        state.builder.after(stores, (tiles[tile],))
        if held:
            state.stores.setdefault(tiles[tile], []).extend(stores)
        reported = state.builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, flag)) if flag else range(0)
        state.builder.after(reported, stores)
        ops += [*stores, *reported]
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops, stored_by=kernel.name))


def lower_pulls(state: Lowering, rank: int, step: Transfer, kernel: TileGroup) -> None:
    """Ops for each unit of ``kernel`` that computes rows which ``step`` brings, with that part of the bytes.

    A bulk copy asks for them (TMA), and takes no slot of the SM. A request travels first.
    """
    tiles = state.step_ops[rank, kernel.name].work
    units = state.units(moved_bytes(state.scenario, step.region))
    request = distance_ticks(state.scenario, step.peer, rank)
    flows_of = cache(lambda part: data_flows(state, rank, step, part * state.unit_bytes))
    ops: list[int] = []
    for tile, part in _shares(span_of(rows_of(step, kernel), kernel), len(tiles), units):
        if part:
            pulls = _halves(state, rank, step.name, tiles[tile], part, flows_of, request)
            state.pulls.setdefault(tiles[tile], []).extend(pulls)
            ops += pulls
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops))


def _halves(
    state: Lowering,
    rank: int,
    name: str,
    tile: int,
    units: int,
    flows_of: Callable[[int], tuple[Flow, ...]],
    setup_ticks: int = 0,
) -> range:
    """What one tile stores or pulls, in two halves: its SM has one behind the other, and behind what it had before."""
    per_unit = ticks_for(state.unit_bytes, state.scenario.gpu.sm_copy.bytes_per_s)
    halves: list[int] = []
    for part in (units // 2, units - units // 2) if units > 1 else (units,):
        lead = state.sent_units.get(tile, 0) * per_unit
        state.sent_units[tile] = state.sent_units.get(tile, 0) + part
        later = tuple(flow._replace(offset_ticks=flow.offset_ticks + lead) for flow in flows_of(part))
        halves += state.builder.op(rank, OpSpec(OpKind.TRANSFER, name, (Stage(0, later),), setup_ticks=setup_ticks))
    return range(halves[0], halves[-1] + 1)


def _shares(span: tuple[Fraction, Fraction], num_tiles: int, units: int) -> Iterator[tuple[int, int]]:
    """The tiles that lie in ``span``, each with its part of ``units``, 0 where a part is less than one."""
    low, high = span
    first, last = math.floor(low * num_tiles), math.ceil(high * num_tiles)
    edges = [max(low, Fraction(tile, num_tiles)) for tile in range(first, last)] + [high]
    cuts = [int(units * (edge - low) / (high - low)) for edge in edges]
    return ((tile, after - before) for tile, (before, after) in zip(range(first, last), pairwise(cuts), strict=True))


def announce(state: Lowering, ranks: range) -> Mapping[tuple[int, str], list[int]]:
    """Add the flags by which tiles say that a switch may sum what they have computed: one for each group and reader.

    Returns the flags by the rank that asks for the sum, and its step. They are added sender by sender, so that those of
    a folded plan are in the order of any rank.
    """
    flags: dict[tuple[int, str], list[int]] = {}
    n = state.scenario.num_ranks
    sums = {rank: tuple(sums_of_all(state.schedule.steps_of(rank))) for rank in ranks if state.by_tiles}
    for rank, offset in product(ranks if any(sums.values()) else (), range(1, n)):
        reader = (rank + offset) % state.period
        for step in sums[reader]:
            groups = kernels_of(seen_from(step.region, n - offset, n), state.schedule.steps_of(rank))
            done = [state.step_ops[rank, group.name].done for group in groups]
            reported = tell(state, rank, offset, step.name, f"{step.signal} {offset}", done)
            flags.setdefault((reader, step.name), []).append(reported)
    return flags


def order_stores(state: Lowering, units: Sequence[tuple[int, int]]) -> None:
    """Make stores wait for those of the tile that their SM ran before, and tiles for those of the last but one.

    ``units`` are those of the persistent kernels of a rank in order, each as the op that begins it and its own.
    """
    sms = state.schedule.compute_sms
    for (_, before), (_, after) in zip(units, units[sms:], strict=False):
        for earlier, later in zip(state.stores.get(before, ()), state.stores.get(after, ()), strict=False):
            state.builder.after((later,), (earlier,))
    for (_, before), (start, _) in zip(units, units[2 * sms :], strict=False):
        state.builder.after((start,), state.stores.get(before, ()))


def order_pulls(state: Lowering, units: Sequence[tuple[int, int]], launch: Sequence[int]) -> None:
    """Make each SM pull for its units in their order, from the ``launch`` of the kernel on; it does not wait for them.

    ``units`` are as for stores. A half waits until the same half for the unit before has come, so two are on the way.
    """
    sms, last = state.schedule.compute_sms, dict[int, Sequence[int]]()
    for place, (_, unit) in enumerate(units):
        pulls, earlier = state.pulls.get(unit, []), last.get(place % sms, launch)
        for index, pull in enumerate(pulls):
            state.builder.after((pull,), (earlier[min(index, len(earlier) - 1)],))
        last[place % sms] = pulls or earlier


def stored_away_bytes(state: Lowering, rank: int, steps: Iterable[Step]) -> Mapping[str, int]:
    """Bytes that tiles store at their owner alone, another rank, by the group: these are not written at home.

    What the rank sums itself it needs at home too.
    """
    steps, n = tuple(steps), state.scenario.num_ranks
    summed = {step.region.owner % n for step in steps if isinstance(step, Reduction)}
    stored = state.stored_by.get(rank, {})
    moves = [step for step in steps if isinstance(step, Transfer) and step.name in stored]
    times = Counter(step.region for step in moves)
    away: Counter[str] = Counter()
    for step in moves:
        if times[step.region] == 1 and step.region.owner % n == step.peer % n and step.peer % n not in summed:
            away[stored[step.name].name] += moved_bytes(state.scenario, step.region)
    return away


def wait_tile_by_tile(
    state: Lowering, step: Reduction, waiters: Waiters, kernels: Sequence[StepOps], arrived: Sequence[StepOps]
) -> None:
    """Make each unit of a sum wait for the tiles that it sums: the own ones, and the flags of those of others."""
    count = len(waiters.on_kernels)
    own, others = ([_parts(ops, step, count) for ops in side] for side in (kernels, arrived))
    for number in range(count):
        tiles, stores = ([op for parts in side for op in parts[number]] for side in (own, others))
        state.builder.after(waiters.on_kernels[number : number + 1], tiles)
        state.builder.after(waiters.on_transfers[number : number + 1], stores)
        state.builder.flags(waiters.polling[number : number + 1], stores)


def wait_for_rows(
    state: Lowering, rank: int, step: TileGroup, waiters: Waiters, senders: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Make each unit of ``step`` wait for what is pulled of its rows of tiles, by itself and the units beside it.

    Returns the ``senders`` of what is not pulled.
    """
    ops, kernels = state.step_ops[rank, step.name], state.pulled_by.get(rank, {})
    mine = [each for each in senders if each[0] == rank and each[1] in kernels and kernels[each[1]].name == step.name]
    each_waits = len(ops.work) in (len(waiters.on_transfers), len(waiters.polling))  # and no monitor for some
    if not mine or ops.kernel is None or not each_waits:
        return list(senders)
    rows, count = sum(region.rows.size for region in step.regions), len(ops.work)
    num_blocks = max(1, min(count, rows // max(1, ops.kernel.block_rows)))
    for first, last in pairwise([block * count // num_blocks for block in range(num_blocks + 1)]):
        come = [op for unit in ops.work[first:last] for op in state.pulls.get(unit, ())]
        if come:
            done = (state.join(rank, step.name, come),)
            state.builder.after(waiters.on_transfers[first:last], done)
            state.builder.flags(waiters.polling[first:last], done)
    return [sender for sender in senders if sender not in mine]


def tile_by_tile(state: Lowering) -> bool:
    """Whether units wait for what tiles store or pull one by one."""
    return state.by_tiles and state.schedule.tactics.per is WaitPer.TILE


def _parts(ops: StepOps, step: Reduction, count: int) -> list[Sequence[int]]:
    """The ops that each of the ``count`` units of a sum waits for."""
    if isinstance(ops.step, Transfer):
        if ops.step.region.rows != step.region.rows:
            return [ops.work] * count
        low, high = Fraction(0), Fraction(1)
    else:
        low, high = span_of(step.region, ops.step)
    edges = [(low + number * (high - low) / count) * len(ops.work) for number in range(count + 1)]
    return [ops.work[math.floor(first) : math.ceil(last)] for first, last in pairwise(edges)]
