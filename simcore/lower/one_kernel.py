"""A lone collective by SMs as one kernel, as libraries have it: one launch at each rank, and flags for all else.

- The kernel is launched once. The SMs that copy also sum; no step has a launch or an event of its own.
- A step that waits for what a peer puts looks for its flag: one read of memory after the flag has arrived. The kernel
  ends when all that arrives at its rank has been seen. What SMs get or sum themselves they know of at once.
- A get reads, and a put in the protocol SIMPLE writes, what belongs to the kernel of a peer: it waits for a flag by
  which that says that it has begun, and the kernel waits for all of these before its first copy. A put with flags
  between the data needs none: its buffers are the library's, two in turn (microsoft/mscclpp,
  docs/tutorials/03-memory-channel: put and get begin with a signal and a wait, putPackets does not). What a switch
  copies or sums waits for all ranks.

Sums of what copy engines bring are one kernel likewise with ``kernel=persistent``: its SMs take what has arrived, and
none is held meanwhile. Gets by copy engines wait for the flag likewise; they have no kernel. Nothing is taken to end in
a barrier: when a kernel has ended its peers may still read from its rank.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineKind,
    Gpu,
    IndexRange,
    Kernels,
    LaunchMode,
    OpCase,
    OpPlan,
    Part,
    Plan,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    num_tile_blocks,
    tile_rows,
)
from ..kernels.dispatch import by_stream, reduce_work, stream_work
from ..kernels.gemm import ticks_for
from ..kernels.work import KernelWork
from ..program.program import OpKind, OpSpec
from .kernels import in_registers, unit_stages
from .machine import Idealization, distance_ticks, is_one_kernel
from .state import Lowering, StepOps, Waiters, moved_bytes
from .waits import poll_ticks, tell

READY = "ready"
"""Label of the flags by which a rank says that its kernel has begun."""

MANY = 32
"""Ranks beyond which those that a kernel waits for are joined: each copy would else wait for each of them."""


def begin_kernels(state: Lowering, ranks: range) -> None:
    """Launch the kernel of each of ``ranks``, and have it tell those that wait for it that it has begun."""
    if not state.alone:
        return
    if state.one_kernel or state.looks_for_parts:
        for rank in ranks:
            setup = state.setup(launch_ticks(state.scenario.gpu, state.schedule))
            state.kernels.launches[rank] = state.builder.op(
                rank, OpSpec(OpKind.LAUNCH, "kernel", setup_ticks=setup)
            ).start
            state.gate(rank, (state.kernels.launches[rank],))
    if Idealization.FREE_LAUNCH in state.ideal:
        return
    wanted = {rank: sorted(_wanted(state, rank)) for rank in ranks}
    n, reported = state.scenario.num_ranks, dict[tuple[int, int], int]()
    waiting: dict[int, list[int]] = {rank: [] for rank in ranks}
    for rank in ranks:
        for offset in wanted[rank]:
            waiting[(rank + offset) % state.period].append(n - offset)
    for rank in ranks:
        for offset in sorted(waiting[rank], reverse=True):
            reported[(rank + offset) % state.period, n - offset] = _tell(state, rank, offset)
    for rank in ranks:
        looks = {offset: look(state, rank, READY, (reported[rank, offset],)) for offset in wanted[rank]}
        every = tuple(looks.values())
        if state.one_kernel and len(every) > MANY:
            every = (state.join(rank, READY, every),)
        # All copies of a kernel wait for the same: else those to near peers would all go before those to far ones.
        state.kernels.ready[rank] = {at: every if state.one_kernel else (seen,) for at, seen in looks.items()}


def launch_ticks(gpu: Gpu, schedule: OpPlan) -> int:
    """The launch of the one kernel, from the host or in a graph."""
    graph = gpu.sync.graph_launch_ticks
    return gpu.launch.kernel_ticks if schedule.tactics.launch is LaunchMode.STREAM or graph is None else graph


def lower_sum(state: Lowering, rank: int, step: Reduction) -> None:
    """A sum as a part of the kernel, on the SMs that copy."""
    num_bytes = moved_bytes(state.scenario, step.region)
    hits = int(num_bytes * (step.num_parts - 1) * state.hits.of_sum(rank, step))
    if state.one_kernel:
        # What the kernel has added up in registers joins the own part, which is all that it still reads.
        parts, hits = (1, 0) if in_registers(state, rank, step) else (step.num_parts, hits)
        of_groups = None if state.machine.groups is None else state.machine.groups.sums
        work = sum_work(state.scenario, state.schedule, num_bytes, parts, hits, sms=None if of_groups is None else 1)
        pool = state.machine.engines if of_groups is None else of_groups + step.stream
    else:
        work = reduce_work(state.scenario.gpu, num_bytes, step.num_parts, state.schedule.compute_sms, hits)
        work, pool = replace(work, start_ticks=0), state.machine.sms
    ops: list[int] = []
    for count, stages in unit_stages(state, rank, work, work.num_units):
        ops += state.builder.op(rank, OpSpec(OpKind.REDUCE, step.name, stages, pool=pool), count=count)
    state.register_kernel(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops), work, work.alone_ticks)


def sum_work(
    scenario: OpCase, schedule: OpPlan, num_bytes: int, num_parts: int, hit_bytes: int = 0, sms: int | None = None
) -> KernelWork:
    """The work of a sum in the one kernel: no launch, and SMs that have no more under way than when they copy.

    All that copy sum, or as many ``sms``.

    A copy has so many bytes under way that an SM reaches its rate over a link; what it sums has not so far to go. That
    number is the SM's own: where the profile says over which links it was measured, nearer peers do not lower it.
    """
    gpu = scenario.gpu
    work = reduce_work(gpu, num_bytes, num_parts, sms or schedule.engine.count, hit_bytes)
    cached = gpu.l2.latency_ticks + (0 if gpu.mall is None else gpu.mall.latency_ticks)
    local = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    peer = local + _measured_distance_ticks(scenario)
    ways = ((hit_bytes, cached), (num_bytes * num_parts - hit_bytes, local))
    reads = sum(ticks_for(read, gpu.sm_copy.bytes_per_s) * way for read, way in ways)
    paced = reads // (max(1, peer) * work.num_units)
    return replace(work, start_ticks=0, unit_ticks=max(work.unit_ticks, paced))


def _measured_distance_ticks(scenario: OpCase) -> int:
    """Latency to a peer at which an SM copies at its rate: over the links of the profile, else to the nearest peer."""
    known = None if scenario.gpu.collectives is None else scenario.gpu.collectives.link_latency_ticks
    if known is not None:
        return known
    return min((distance_ticks(scenario, peer) for peer in range(1, scenario.num_ranks)), default=0)


def awaited(state: Lowering, rank: int, step: Step, arrived: Sequence[StepOps]) -> list[int]:
    """The ops after which ``step`` may begin that waits for ``arrived``: its kernel, and what that looks for."""
    puts = [ops.done for ops in arrived if _is_put(ops)]
    found = [ops.done for ops in arrived if not _is_put(ops)]
    if state.one_kernel or (state.looks_for_parts and isinstance(step, Reduction)):
        found.append(state.kernels.launches[rank])
        puts = [look(state, rank, step.name, puts)] if puts else []
    return [*found, *puts]


def wait_for_peers(state: Lowering, rank: int, step: Transfer) -> None:
    """Make a copy wait until the ranks from which it reads, or to which it writes, are ready."""
    # Of commands that are issued together each waits for its own peer.
    ops = state.waiters[rank, step.name].on_kernels if state.one_kernel else state.step_ops[rank, step.name].work
    ready = state.kernels.ready.get(rank)
    if ready is not None:
        offsets = peers_to_be_ready(state.scenario, state.schedule, step)
        for op in sorted({op for offset in offsets for op in ready[offset]}):
            state.builder.after(ops, (op,))


def end_kernel(state: Lowering, rank: int, arrived: Iterable[StepOps]) -> None:
    """The end of the kernel of a rank, when it has seen all that was put there."""
    if not state.one_kernel:
        return
    puts = [ops.done for ops in arrived if _is_put(ops)]
    if puts:
        look(state, rank, "end", puts)


def _wanted(state: Lowering, rank: int) -> set[int]:
    """Offsets of the ranks that must have begun before copies of ``rank`` may."""
    steps = (step for step in state.schedule.steps_of(rank) if isinstance(step, Transfer))
    return {offset for step in steps for offset in peers_to_be_ready(state.scenario, state.schedule, step)}


def peers_to_be_ready(scenario: OpCase, schedule: OpPlan, step: Transfer) -> Iterator[int]:
    """Offsets of the ranks whose kernels must have begun before ``step`` of a lone collective may."""
    n, to_all = scenario.num_ranks, step.reach is Reach.ALL
    flags_between = schedule.tactics.protocol is not CopyProtocol.SIMPLE and not to_all
    if step.direction is Direction.PUT and (flags_between or not is_one_kernel(scenario, schedule)):
        return
    yield from range(1, n) if to_all else (step.peer % n,)


def _tell(state: Lowering, rank: int, offset: int) -> int:
    """The flag of ``rank`` at the one ``offset`` further: its kernel has begun."""
    begun = (state.kernels.launches[rank],) if state.one_kernel else ()
    reported = tell(state, rank, offset, READY, f"{READY} {state.scenario.num_ranks - offset}", begun)
    if not begun:
        state.gate(rank, (reported,))
    return reported


def look(state: Lowering, rank: int, label: str, ops: Iterable[int]) -> int:
    """The op that is done when ``rank`` has read the flags that ``ops`` leave there."""
    key = rank, frozenset(ops)
    if key not in state.kernels.seen:
        setup = state.setup(poll_ticks(state.scenario.gpu))
        seen = state.builder.op(rank, OpSpec(OpKind.JOIN, label, setup_ticks=setup))
        state.builder.after(seen, sorted(key[1]))
        state.kernels.seen[key] = seen.start
    return state.kernels.seen[key]


def _is_put(ops: StepOps) -> bool:
    return isinstance(ops.step, Transfer) and ops.step.direction is Direction.PUT


Mates = Mapping[str, tuple[TileGroup, ...]]
"""The groups that share a tile with each group, itself included, in the order of the plan."""


def in_whole_tiles(scenario: OpCase, schedule: OpPlan) -> OpPlan:
    """Return ``schedule`` with the waits that whole tiles add; itself where kernels are launched or tiles are finer.

    Plans in which transfers wait for the kernel and the kernel for transfers are left as they are: there the order of
    pieces is the plan's own, and waits for whole tiles could close a circle.
    """
    workload = scenario.shape
    if schedule.tactics.kernel is not Kernels.PERSISTENT or workload.gemm is None or workload.uneven:
        return schedule
    if num_tile_blocks(workload, scenario.num_ranks) == 1 or _goes_both_ways(schedule.steps_of(0)):
        return schedule
    return replace(
        schedule,
        steps=_waiting(scenario, schedule, schedule.steps),
        by_rank=tuple(_waiting(scenario, schedule, steps) for steps in schedule.by_rank),
        overrides=tuple(
            replace(each, step=_extended(each.step, _mates(scenario, schedule, schedule.steps_of(each.rank))))
            for each in schedule.overrides
        ),
    )


def _goes_both_ways(steps: Sequence[Step]) -> bool:
    """Whether kernels wait for transfers and transfers for kernels."""
    groups = {step.name for step in steps if isinstance(step, TileGroup)}
    gathers = any(isinstance(step, TileGroup) and not groups.issuperset(step.after) for step in steps)
    scatters = any(isinstance(step, Transfer) and not groups.isdisjoint(step.after) for step in steps)
    return gathers and scatters


def _waiting(scenario: OpCase, schedule: OpPlan, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    mates = _mates(scenario, schedule, steps)
    return tuple(_extended(step, mates) for step in steps) if mates else steps


def _extended(step: Step, mates: Mates) -> Step:
    """``step`` with the waits of the groups that share its tiles, or those that share the tiles it waits for."""
    if isinstance(step, TileGroup):
        # Whoever shares a tile is a mate itself: only signals and transfers are added, no kernels of the tile.
        more = [name for mate in mates.get(step.name, ()) for name in mate.after if name not in mates]
    else:
        more = [mate.name for name in step.after for mate in mates.get(name, ())]
    return replace(step, after=tuple(dict.fromkeys((*step.after, *more))))


def _mates(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> Mates:
    """The groups of each kernel that share tiles; empty if none does."""
    found: dict[str, tuple[TileGroup, ...]] = {}
    for groups in by_stream(steps).values():
        work = stream_work(scenario, schedule, groups)
        rows = work.block_cols if scenario.shape.by_columns else work.block_rows
        if rows:
            found |= _sharing(groups, [_tiles(scenario, group, rows) for group in groups])
    return found


def _tiles(scenario: OpCase, group: TileGroup, block_rows: int) -> frozenset[int]:
    """The rows of tiles that ``group`` has a part of."""
    n, rows = scenario.num_ranks, tile_rows(scenario.shape, scenario.num_ranks)
    spans = ((region.owner % n * rows + region.rows.start, region.rows.size) for region in group.regions)
    return frozenset(
        tile for start, size in spans for tile in range(start // block_rows, (start + size - 1) // block_rows + 1)
    )


def _sharing(groups: Sequence[TileGroup], tiles: Sequence[frozenset[int]]) -> dict[str, tuple[TileGroup, ...]]:
    """The groups with common tiles, the same columns and the same slice of the inner dimension."""
    mates = {
        group.name: tuple(
            other
            for other, theirs in zip(groups, tiles, strict=True)
            if not own.isdisjoint(theirs) and other.k == group.k and other.regions[0].cols == group.regions[0].cols
        )
        for group, own in zip(groups, tiles, strict=True)
    }
    return {name: sharing for name, sharing in mates.items() if len(sharing) > 1}


def as_kernels(scenario: OpCase, schedule: OpPlan, apart: Collection[str] = ()) -> OpPlan:
    """Return ``schedule`` as its kernels carry it out; steps and signals in ``apart`` are waited for elsewhere."""
    return in_whole_tiles(scenario, all_blocks_at_once(scenario, schedule, apart))


def part_as_kernels(scenario: OpCase, plan: Plan, part: Part) -> OpPlan:
    """The same of a part of a graph plan; ``scenario`` is that of the part."""
    waiting = [each.step for each in part.step_waits]
    awaited = [each.of for other in plan.parts for each in other.step_waits if each.on == part.name]
    return as_kernels(scenario, part.schedule, {*waiting, *awaited})


def all_blocks_at_once(scenario: OpCase, schedule: OpPlan, apart: Collection[str] = ()) -> OpPlan:
    """Return ``schedule`` with the blocks of each piece exchanged and summed in one go.

    Itself where copy engines or tiles move the data, ranks differ in more than the rows of blocks, or other steps wait
    for a block or a part of it, as those do that wait for what is in ``apart``.
    """
    engine, plans = schedule.engine, schedule.by_rank or (schedule.steps,)
    by_sms = engine.kind is EngineKind.SM and not engine.by_library and not engine.by_tiles
    if not by_sms or apart or schedule.overrides or not _pieces(scenario, plans[0]):
        return schedule
    if any(list(map(_but_rows, steps)) != list(map(_but_rows, plans[0])) for steps in plans[1:]):
        return schedule
    merged = tuple(_merged(scenario, steps) for steps in plans)
    return replace(schedule, steps=merged[0], by_rank=merged if schedule.by_rank else ())


def _but_rows(step: Step) -> tuple[object, ...]:
    """All of a step of an uneven plan that is the same at all ranks."""
    if isinstance(step, TileGroup):
        return step.name, step.after, step.stream
    return step.name, step.after, step.region.owner, step.region.cols, step.peer if isinstance(step, Transfer) else None


def _merged(scenario: OpCase, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a rank, those of each piece as a copy for each peer and one sum."""
    merged: dict[str, Step | None] = {}
    for sums, copies in _pieces(scenario, steps):
        merged |= dict.fromkeys([each.name for each in sums] + [copy.name for copy in copies])
        by_peer: dict[int, list[Transfer]] = {}
        for copy in copies:
            by_peer.setdefault(copy.peer, []).append(copy)
        signals = {copy.signal: blocks[0].signal for blocks in by_peer.values() for copy in blocks}
        for blocks in by_peer.values():
            merged[blocks[0].name] = replace(blocks[0], region=_together(blocks))
        after = dict.fromkeys(signals.get(name, name) for each in sums for name in each.after)
        merged[sums[0].name] = replace(sums[0], region=_together(sums), after=tuple(after))
    found = (merged.get(step.name, step) for step in steps)
    return tuple(step for step in found if step is not None)


def _pieces(scenario: OpCase, steps: Sequence[Step]) -> list[tuple[list[Reduction], list[Transfer]]]:
    """The sums of each piece of all blocks, and the copies that bring their parts; none unless all are of that kind."""
    n = scenario.num_ranks
    sums = [step for step in steps if isinstance(step, Reduction)]
    if len(sums) < n or any(each.num_parts != n or each.region.also for each in sums):
        return []
    copies = {step.signal: step for step in steps if isinstance(step, Transfer)}
    pieces: dict[int, list[Reduction]] = {}
    seen: Counter[int] = Counter()
    for each in sums:
        pieces.setdefault(seen[each.region.owner % n], []).append(each)
        seen[each.region.owner % n] += 1
    awaited = Counter(name for step in steps for name in step.after)
    found = [
        (group, [copies[name] for each in group for name in each.after if name in copies]) for group in pieces.values()
    ]
    whole = len(seen) == n > 1 and all(len(group) == n for group in pieces.values())
    alike = whole and all(_alike(n, *each) for each in found)
    alone = all(awaited[signal] == 1 for signal in copies) and not any(awaited[each.name] for each in sums)
    return found if alike and alone and sum(len(parts) for _, parts in found) == len(copies) else []


def _alike(num_ranks: int, sums: Sequence[Reduction], copies: Sequence[Transfer]) -> bool:
    """Whether every block is summed from all ranks, and its copies can be one with each peer."""
    plain = all(
        copy.reach is Reach.PEER and not copy.reduce and copy.lane is None and not copy.peer_after for copy in copies
    )
    peers = Counter(copy.peer for copy in copies)
    return (
        plain
        and len(peers) == num_ranks - 1
        and set(peers.values()) == {num_ranks}
        and len({(copy.direction, copy.after, copy.region.cols) for copy in copies}) == 1
        and {each.region.cols for each in sums} == {copies[0].region.cols}
    )


def _together(steps: Iterable[Transfer | Reduction]) -> Region:
    """As many rows as the regions of ``steps`` have together."""
    regions = [step.region for step in steps]
    return replace(regions[0], rows=IndexRange(0, sum(region.rows.size for region in regions)))
