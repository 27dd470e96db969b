"""A lone collective by SMs as one kernel, as libraries have it: one launch at each rank, and flags for all else.

- The kernel is launched once. The SMs that copy also sum; no step has a launch or an event of its own.
- A step that waits for what a peer puts looks for its flag: one read of memory after the flag has landed. The kernel
  ends when all that lands at its rank has been seen. What SMs get or sum themselves they know of at once.
- A get reads, and a put in the protocol SIMPLE writes, what belongs to the kernel of a peer: it waits for a flag by
  which that says that it has begun, and the kernel waits for all of these before its first copy. A put with flags
  between the data needs none: its buffers are the library's, two in turn (microsoft/mscclpp,
  docs/tutorials/03-memory-channel: put and get begin with a signal and a wait, putPackets does not). What a switch
  copies or sums waits for all ranks.

Gets by copy engines wait for the flag likewise; they have no kernel. Nothing is taken to end in a barrier: when a
kernel has ended its peers may still read from its rank.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineKind,
    Gpu,
    LaunchMode,
    Reach,
    Reduction,
    Scenario,
    Schedule,
    Step,
    Transfer,
)
from ..kernels.gemm import ticks_for
from ..kernels.memory_bound import reduce_work
from ..kernels.work import KernelWork
from ..program.program import OpKind, OpSpec
from .kernels import unit_stages
from .machine import Idealization, distance_ticks
from .state import Lowering, StepOps, Waiters, moved_bytes
from .waits import poll_ticks, tell

READY = "ready"
"""Label of the flags by which a rank says that its kernel has begun."""


def is_one_kernel(scenario: Scenario, schedule: Schedule) -> bool:
    """Whether the plan is one kernel at each rank: a collective alone, by SMs."""
    engine = schedule.engine
    return engine.kind is EngineKind.SM and not engine.by_library and scenario.workload.is_collective


def begin_kernels(state: Lowering, ranks: range) -> None:
    """Launch the kernel of each of ``ranks``, and have it tell those that wait for it that it has begun."""
    if not state.alone:
        return
    if state.one_kernel:
        for rank in ranks:
            setup = state.setup(launch_ticks(state.scenario.gpu, state.schedule))
            state.kernels.launches[rank] = state.builder.op(
                rank, OpSpec(OpKind.LAUNCH, "kernel", setup_ticks=setup)
            ).start
            state.gate(rank, (state.kernels.launches[rank],))
    if Idealization.FREE_LAUNCH in state.ideal:
        return
    wanted = state.kernels.wanted = {rank: sorted(_wanted(state, rank)) for rank in ranks}
    n, told = state.scenario.num_ranks, dict[tuple[int, int], int]()
    waiting: dict[int, list[int]] = {rank: [] for rank in ranks}
    for rank in ranks:
        for offset in wanted[rank]:
            waiting[(rank + offset) % state.period].append(n - offset)
    for rank in ranks:
        for offset in sorted(waiting[rank], reverse=True):
            told[(rank + offset) % state.period, n - offset] = _tell(state, rank, offset)
    for rank in ranks:
        for offset in wanted[rank]:
            state.kernels.ready[rank, offset] = look(state, rank, READY, (told[rank, offset],))


def launch_ticks(gpu: Gpu, schedule: Schedule) -> int:
    """The launch of the one kernel, from the host or in a graph."""
    graph = gpu.sync.graph_launch_ticks
    return gpu.launch.kernel_ticks if schedule.tactics.launch is LaunchMode.STREAM or graph is None else graph


def lower_sum(state: Lowering, rank: int, step: Reduction) -> None:
    """A sum as a part of the kernel, on the SMs that copy."""
    num_bytes = moved_bytes(state.scenario, step.region)
    hits = int(num_bytes * (step.num_parts - 1) * state.hits.of_sum(rank, step))
    work = sum_work(state.scenario, state.schedule, num_bytes, step.num_parts, hits)
    ops: list[int] = []
    for count, stage in unit_stages(state, rank, work, work.num_units):
        ops += state.builder.op(
            rank, OpSpec(OpKind.REDUCE, step.name, (stage,), pool=state.machine.engines), count=count
        )
    state.register_kernel(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops), work, work.alone_ticks)


def sum_work(scenario: Scenario, schedule: Schedule, num_bytes: int, num_parts: int, hit_bytes: int = 0) -> KernelWork:
    """The work of a sum in the one kernel: no launch, and SMs that have no more under way than when they copy.

    A copy has so many bytes under way that an SM reaches its rate over a link; what it sums has not so far to go. That
    number is the SM's own: where the profile says over which links it was measured, nearer peers do not lower it.
    """
    gpu = scenario.gpu
    work = reduce_work(gpu, num_bytes, num_parts, schedule.engine.count, hit_bytes)
    cached = gpu.l2.latency_ticks + (0 if gpu.mall is None else gpu.mall.latency_ticks)
    local = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    peer = local + _measured_distance_ticks(scenario)
    ways = ((hit_bytes, cached), (num_bytes * num_parts - hit_bytes, local))
    reads = sum(ticks_for(read, gpu.sm_copy.bytes_per_s) * way for read, way in ways)
    paced = reads // (max(1, peer) * work.num_units)
    return replace(work, start_ticks=0, unit_ticks=max(work.unit_ticks, paced))


def _measured_distance_ticks(scenario: Scenario) -> int:
    """Latency to a peer at which an SM copies at its rate: over the links of the profile, else to the nearest peer."""
    known = None if scenario.gpu.collectives is None else scenario.gpu.collectives.link_latency_ticks
    if known is not None:
        return known
    return min((distance_ticks(scenario, peer) for peer in range(1, scenario.num_ranks)), default=0)


def awaited(state: Lowering, rank: int, step: Step, landed: Sequence[StepOps]) -> list[int]:
    """The ops after which ``step`` may begin that waits for ``landed``: its kernel, and what that looks for."""
    puts = [ops.done for ops in landed if _is_put(ops)]
    found = [ops.done for ops in landed if not _is_put(ops)]
    if state.one_kernel:
        found.append(state.kernels.launches[rank])
        puts = [look(state, rank, step.name, puts)] if puts else []
    return [*found, *puts]


def wait_for_peers(state: Lowering, rank: int, step: Transfer) -> None:
    """Make a copy wait until the ranks from which it reads, or to which it writes, are ready."""
    # Of commands that are issued together each waits for its own peer.
    ops = state.waiters[rank, step.name].on_kernels if state.one_kernel else state.step_ops[rank, step.name].work
    offsets = list(peers_to_be_ready(state.scenario, state.schedule, step))
    if state.one_kernel and offsets:
        # All copies of a kernel wait for the same: else those to near peers would all go before those to far ones.
        offsets = state.kernels.wanted.get(rank, [])
    for offset in offsets:
        if (rank, offset) in state.kernels.ready:
            state.builder.after(ops, (state.kernels.ready[rank, offset],))


def end_kernel(state: Lowering, rank: int, landed: Iterable[StepOps]) -> None:
    """The end of the kernel of a rank, when it has seen all that was put there."""
    if not state.one_kernel:
        return
    puts = [ops.done for ops in landed if _is_put(ops)]
    if puts:
        look(state, rank, "end", puts)


def _wanted(state: Lowering, rank: int) -> set[int]:
    """Offsets of the ranks that must have begun before copies of ``rank`` may."""
    steps = (step for step in state.schedule.steps_of(rank) if isinstance(step, Transfer))
    return {offset for step in steps for offset in peers_to_be_ready(state.scenario, state.schedule, step)}


def peers_to_be_ready(scenario: Scenario, schedule: Schedule, step: Transfer) -> Iterator[int]:
    """Offsets of the ranks whose kernels must have begun before ``step`` of a lone collective may."""
    n, to_all = scenario.num_ranks, step.reach is Reach.ALL
    flags_between = schedule.tactics.protocol is not CopyProtocol.SIMPLE and not to_all
    if step.direction is Direction.PUT and (flags_between or not is_one_kernel(scenario, schedule)):
        return
    yield from range(1, n) if to_all else (step.peer % n,)


def _tell(state: Lowering, rank: int, offset: int) -> int:
    """The flag of ``rank`` at the one ``offset`` further: its kernel has begun."""
    begun = (state.kernels.launches[rank],) if state.one_kernel else ()
    told = tell(state, rank, offset, READY, f"{READY} {state.scenario.num_ranks - offset}", begun)
    if not begun:
        state.gate(rank, (told,))
    return told


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
