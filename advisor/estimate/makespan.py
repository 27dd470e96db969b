"""Step-level estimate of a schedule: the simulator's machine without its cache lines.

Events are steps, not lines. Transfers queue for engines, feed a link at the rate of their engine and end when the link
has drained them; kernels queue for their stream, then are dealt to SMs as units. Both feed the HBM at constant rates,
and end later by the queue there. Effects of single lines (bursts, L2, the order on a ring) are left out.
Of 45,871 plans that searches proposed half were within 0.2 % of the simulation, nine of ten within 2.4 %.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from ...compiler.ir import EngineKind, Kernels, OpCase, OpPlan, TileGroup
from ...simcore.kernels.work import KernelWork
from ...simcore.lower.one_kernel import all_blocks_at_once
from ...simcore.lower.steps import period_of
from .fluid import FluidFabric, WholeFabric
from .graph import StepGraph, graph_of
from .run import EstimateRun

# Most steps of all ranks that are followed one by one: some seconds.
MAX_STEPS = 100_000
MOST_RANKS = 1000
"""Ranks that are followed by an estimate at most; each that sees another network has events of its own."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated figures in ticks: the makespan of all ranks, the others of rank 0.

    ``gemm_ticks`` and ``reduce_ticks`` are sums over kernels, each running alone; ``comm_ticks`` is the service time of
    the busiest link. ``part`` is one of the equal kernels that the plan repeats.
    ``first_ticks`` is when the first transfer has arrived (AG+GEMM) or the first group is computed (GEMM+RS).
    ``tail_ticks`` is the time after the end of the other kind of work: kernels after the last transfer, or transfers
    and sums after the last group. ``exposed_ticks`` is the time without a running kernel. ``hbm_bytes`` is all traffic.
    """

    makespan_ticks: float
    gemm_ticks: int
    reduce_ticks: int
    comm_ticks: float
    first_ticks: float
    tail_ticks: float
    exposed_ticks: float
    hbm_bytes: int
    num_groups: int
    num_transfers: int
    part: KernelWork | None


def estimate_ticks(scenario: OpCase, schedule: OpPlan) -> Estimate:
    """Estimate ``schedule`` on ``scenario``; under 3 ms for plans of some hundred steps.

    The ranks are followed that stand for all, see ``period_of``. In symmetric plans where these have more than
    ``MAX_STEPS`` steps, or are more than ``MOST_RANKS``, one rank stands for all with the busiest links, which is quick
    and inexact.
    """
    return next(estimates(scenario, (schedule,)))


def estimates(scenario: OpCase, schedules: Iterable[OpPlan]) -> Iterator[Estimate]:
    """Estimate each of ``schedules``; those in a row that differ in their engines alone share their graph."""
    return map(_estimate_of, _runs(scenario, schedules))


def makespans(scenario: OpCase, schedules: Iterable[OpPlan], max_steps: int = MAX_STEPS) -> Iterator[float]:
    """Yield the ``makespan_ticks`` of ``estimates``, which are all that a search asks for.

    In symmetric plans that have more than ``max_steps`` steps, or ``MOST_RANKS`` unlike ranks, one rank stands for all.
    """
    return map(_makespan_of, _runs(scenario, schedules, max_steps))


def _runs(scenario: OpCase, schedules: Iterable[OpPlan], max_steps: int = MAX_STEPS) -> Iterator[EstimateRun]:
    for _, alike in groupby(schedules, key=lambda schedule: _plan_of(all_blocks_at_once(scenario, schedule))):
        graph: StepGraph | None = None
        for schedule in alike:
            if graph is None:
                graph = graph_of(scenario, schedule, _num_ranks(scenario, schedule, max_steps))
            else:
                graph = graph.by_engine(scenario, schedule)
            yield _finished_run(scenario, schedule, graph)


def _plan_of(schedule: OpPlan) -> tuple[object, ...]:
    """Return all that the graph of a schedule depends on beside its engine; persistent kernels are built for SMs."""
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT
    kernel = (schedule.compute_sms, schedule.tactics.tile, schedule.tactics.split_k) if persistent else ()
    return schedule.steps, schedule.by_rank, schedule.overrides, persistent, kernel


def _num_ranks(scenario: OpCase, schedule: OpPlan, max_steps: int) -> int:
    """Return how many ranks are followed."""
    ranks = period_of(scenario, schedule)
    many = ranks > MOST_RANKS or ranks * len(schedule.steps) > max_steps
    return 1 if many and schedule.symmetric else ranks


def _finished_run(scenario: OpCase, schedule: OpPlan, graph: StepGraph) -> EstimateRun:
    ranks, by_sm = graph.num_ranks, schedule.engine.kind is EngineKind.SM
    fabric = FluidFabric(scenario, by_sm) if ranks == 1 else WholeFabric(scenario, by_sm, ranks)
    run = EstimateRun(scenario, schedule, graph, fabric)
    run.loop()
    return run


def _part_of(scenario: OpCase, groups: list[KernelWork]) -> KernelWork | None:
    """Return the kernel that the plan repeats; the own shard is first for a gather, last for a scatter."""
    return None if not groups else groups[0] if scenario.shape.pattern.reduces else groups[-1]


def _makespan_of(run: EstimateRun) -> float:
    return max(map(run.seen, range(len(run.graph.steps))), default=0.0)


def _estimate_of(run: EstimateRun) -> Estimate:
    """Return the figures of the finished run."""
    steps, own = run.graph.steps, [i for i, rank in enumerate(run.graph.rank) if rank == 0]
    computing = {i: run.graph.work[i][0] for i in own if i in run.graph.work}
    copied = [run.done[i] for i in own if i not in computing]
    computed = [run.done[i] for i in computing if isinstance(steps[i], TileGroup)]
    first, last = (copied, computed) if not run.scenario.shape.pattern.reduces else (computed, copied)
    makespan = _makespan_of(run)
    idle, reached = 0.0, 0.0
    for begin, end in sorted((run.begin[i], run.done[i]) for i in computing):
        idle += max(0.0, begin - reached)
        reached = max(reached, end)
    kernels = list(computing.values())
    groups = [work for i, work in computing.items() if isinstance(steps[i], TileGroup)]
    gemm_ticks = sum(work.alone_ticks for work in groups)
    return Estimate(
        makespan_ticks=makespan,
        gemm_ticks=gemm_ticks,
        reduce_ticks=sum(work.alone_ticks for work in kernels) - gemm_ticks,
        comm_ticks=max((link.served for link in run.fabric.links.values()), default=0.0),
        first_ticks=min(first, default=0.0),
        tail_ticks=makespan - max(first or last, default=0.0),
        exposed_ticks=idle + makespan - reached,
        hbm_bytes=sum(work.hbm_read_bytes + work.hbm_write_bytes for work in kernels)
        + 2 * sum(run.graph.num_bytes[i] for i in own),
        num_groups=len(computed),
        num_transfers=len(copied),
        part=_part_of(run.scenario, groups),
    )
