"""How much a run would cost, told before anything is built, so that a huge one is refused and not begun."""

from collections.abc import Iterable, Iterator, Sequence

from ..compiler.plan_view import num_peers
from ..compiler.scenario import Scenario
from ..compiler.schedule import EngineKind, Kernels, Reach, Reduction, Schedule, Step, TileGroup, Transfer
from ..compiler.topology import Topology, topology_of
from .kernels.gemm import gemm_work
from .kernels.pick import compute_work, stream_shape
from .kernels.reduce import reduce_work
from .kernels.work import KernelWork
from .limits import RunTooLarge
from .lower import moved_bytes
from .lower_copies import ends_of
from .lower_switch import MAX_SLICES
from .protocols import sent_per_byte

MAX_LINE_HOPS = 4_000_000_000
"""About two minutes on one core at 30 million line-hops a second."""

MAX_OPS = 2_000_000
"""Work units and workers of transfers; each costs some microseconds and some hundred bytes."""


def check_budget(scenario: Scenario, schedule: Schedule, unit_bytes: int, ranks: int) -> None:
    """Refuse a run of ``ranks`` simulated ranks in units of ``unit_bytes`` that is too large.

    Raises
    ------
    RunTooLarge
        If there are more than ``MAX_LINE_HOPS`` or ``MAX_OPS``.
    """
    byte_hops, ops = cost_of(scenario, schedule, range(ranks))
    line_hops = byte_hops // unit_bytes
    if line_hops > MAX_LINE_HOPS:
        raise RunTooLarge(
            f"{schedule.expression} has about {line_hops:.1e} line-hops, the limit is {MAX_LINE_HOPS:.0e}: simulate in "
            "packets (--granularity packet), fold symmetric ranks, or ask about smaller sizes"
        )
    if ops > MAX_OPS:
        message = f"{schedule.expression} has about {ops:.1e} tiles and transfers, the limit is {MAX_OPS:.0e}"
        raise RunTooLarge(f"{message}: ask about smaller sizes or fewer chunks")


def affordable_unit(scenario: Scenario, schedule: Schedule, unit_bytes: int, max_line_hops: int) -> int:
    """``unit_bytes``, doubled until the rank with most steps has no more than ``max_line_hops`` line-hops."""
    most = max(range(scenario.num_ranks if schedule.by_rank else 1), key=lambda rank: len(schedule.steps_of(rank)))
    byte_hops, _ = cost_of(scenario, schedule, (most,))
    while byte_hops // unit_bytes > max_line_hops:
        unit_bytes *= 2
    return unit_bytes


def cost_of(scenario: Scenario, schedule: Schedule, ranks: Iterable[int]) -> tuple[int, int]:
    """(bytes times the servers they pass, ops) of what ``ranks`` do, polls left out."""
    byte_hops, ops = 0, 0
    topology = topology_of(scenario.system.fabric, scenario.num_ranks)
    for rank in ranks:
        steps = schedule.steps_of(rank)
        peers = num_peers(steps)
        for step in steps:
            if isinstance(step, Transfer):
                byte_hops += _copied(scenario, schedule, topology, rank, step)
                ops += _copying(scenario, schedule, step, peers)
        for work in _kernels(scenario.at(rank), schedule, steps):
            byte_hops += work.l2_hit_bytes + 2 * (work.below_l2_bytes + work.hbm_write_bytes)
            ops += work.num_units
    return byte_hops, ops


def _copied(scenario: Scenario, schedule: Schedule, topology: Topology, rank: int, step: Transfer) -> int:
    """Bytes of a transfer times the servers on their way, as if nothing hit a cache."""
    n, size = scenario.num_ranks, moved_bytes(scenario, step.region)
    reads = 2 if schedule.engine.kind is EngineKind.SM else 1
    if step.reach is Reach.ALL:
        return size * (n * (reads + 1) + 2 if step.reduce else reads + 1 + 2 * (n - 1))
    source, target = ends_of(rank, step)
    links = len(topology.route(source % n, target % n))
    return int(size * (reads + sent_per_byte(schedule) * (links + 1 + step.reduce)))


def _copying(scenario: Scenario, schedule: Schedule, step: Transfer, peers: int) -> int:
    """Ops of a transfer: one for each engine or SM that has a part of it, and those of slices in a switch."""
    to_all, workers = step.reach is Reach.ALL, 1
    if schedule.engine.kind is EngineKind.SM:
        shared = to_all or step.lane is not None
        workers = max(1, schedule.engine.count // (1 if shared else peers))
    lines = moved_bytes(scenario, step.region) // scenario.gpu.line_bytes
    return max(1, min(workers, lines)) * (3 * MAX_SLICES + 1 if to_all else 1)


def _kernels(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> Iterator[KernelWork]:
    """The kernels of a rank; the groups of a stream are one if they are persistent."""
    gpu, sms, streams = scenario.gpu, schedule.compute_sms, dict[int, list[TileGroup]]()
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT and scenario.workload.gemm is not None
    for step in steps:
        if isinstance(step, Reduction):
            yield reduce_work(gpu, moved_bytes(scenario, step.region), step.num_parts, sms)
        elif isinstance(step, TileGroup) and persistent:
            streams.setdefault(step.stream, []).append(step)
        elif isinstance(step, TileGroup):
            yield compute_work(scenario, step, sms)
    for groups in streams.values():
        yield gemm_work(gpu, stream_shape(scenario, groups), sms, static_order=True)
