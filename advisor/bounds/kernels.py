"""What the kernels of a schedule take at least: launched for each group, or one persistent kernel for each stream.

Every schedule is of one of these classes, and a bound is the smaller one of both. A launched kernel begins when it has
been launched, after what it waits for, and may have any rows, columns and slice of the inner dimension. A persistent
one has been launched before; a unit of it is a tile of the whole inner dimension.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, Choice, GemmShape, GemvShape, Gpu, Kernels, Scenario, TileGroup
from ...compiler.planning.build import build_schedule, default_engine
from ...compiler.templates import BASELINE
from ...simcore.kernels.dispatch import compute_work
from ...simcore.kernels.gemm import gemm_work, tile_time_us, tiles_of
from ...simcore.kernels.gemv import gemv_work
from ...simcore.kernels.min_work import least_sm_ticks
from ...simcore.kernels.work import KernelWork


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Times in ticks of the kernels of one class.

    ``start`` is the earliest time at which a unit begins, ``first`` that at which results are there, ``after`` the
    shortest time from an arrival to the end of a kernel that needs it, ``launched`` the part of it before the first
    unit. ``sum_after`` is the shortest from an arrival to the end of a kernel that sums it, ``sum_launch`` its part
    after a kernel of this rank.
    """

    scenario: Scenario
    kernels: Kernels
    start: int = 0
    first: int = 0
    after: int = 0
    launched: int = 0
    sum_after: int = 0
    sum_launch: int = 0

    @property
    def persistent(self) -> bool:
        """Whether a kernel of a stream is launched once."""
        return self.kernels is Kernels.PERSISTENT


def kernel_limits(scenario: Scenario) -> tuple[KernelLimits, ...]:
    """The limits of each class of kernels that the scenario allows."""
    launched, persistent = _sums(scenario, Kernels.LAUNCHED), _sums(scenario, Kernels.PERSISTENT)
    workload, gpu = scenario.workload, scenario.gpu
    if workload.gemm is None or workload.gemm.n == 1:
        if workload.pattern.overlaps and workload.gemm is None:
            return (_of_other_kernel(launched),)
        return launched, persistent
    return _of_launched(launched, gpu, workload.gemm), _of_persistent(persistent, gpu, workload.gemm)


def _sums(scenario: Scenario, kernels: Kernels) -> KernelLimits:
    """Launches of kernels that sum. One that polls may be launched before what it sums has come."""
    gpu, latency = scenario.gpu, scenario.gpu.hbm.latency_ticks
    graph = gpu.sync.graph_launch_ticks
    launch = gpu.launch.kernel_ticks if graph is None else min(graph, gpu.launch.kernel_ticks)
    waits = gpu.launch.kernel_ticks + gpu.launch.event_ticks
    after = 0 if kernels is Kernels.PERSISTENT else waits if graph is None else min(graph, waits)
    return KernelLimits(scenario, kernels, sum_after=after + latency, sum_launch=launch)


def _of_other_kernel(limits: KernelLimits) -> KernelLimits:
    """A kernel that is no GEMM: a step of a tile, of which less than half may be left."""
    model = limits.scenario.gpu.gemm
    if not least_sm_ticks(limits.scenario):
        return limits
    unit = (model.k_step_ticks + model.tile_ticks) // 2
    return replace(limits, start=model.start_ticks, first=unit, after=unit)


def _of_launched(limits: KernelLimits, gpu: Gpu, gemm: GemmShape) -> KernelLimits:
    """The smallest kernels are of one element, as a GEMM or, where one column is, as a matrix times a vector."""
    graph, kernel, event = gpu.sync.graph_launch_ticks, gpu.launch.kernel_ticks, gpu.launch.event_ticks
    start = gemm_start_ticks(gpu)
    vector = kernel if graph is None else min(kernel, graph)
    whole, vector_whole = _least_kernels(gpu, gemm, gemm.k)
    slice_, vector_slice = _least_kernels(gpu, gemm, 1)
    short = min(start + slice_, vector + vector_slice)
    waits, vector_waits = start + event, kernel + event
    if graph is not None:
        waits, vector_waits = start + min(event, graph), min(vector_waits, graph)
    return replace(
        limits,
        start=min(start, vector),
        # The inner dimension at once, or slice after slice.
        first=min(start + whole, vector + vector_whole, 2 * short),
        after=min(waits + slice_, vector_waits + vector_slice),
        launched=min(waits, vector_waits),
    )


def _of_persistent(limits: KernelLimits, gpu: Gpu, gemm: GemmShape) -> KernelLimits:
    start = gemm_start_ticks(gpu)
    steps = -(-gemm.k // 64) * 64
    us = min(tile_time_us(gpu, gemm, block, units, steps) for block, units in tiles_of(gpu))
    unit = int(us * TICKS_PER_US * (1 - 1e-6))
    return replace(limits, start=start, first=start + unit, after=unit)


def gemm_start_ticks(gpu: Gpu) -> int:
    """From the launch of a GEMM to its first unit at least.

    The simulator takes off what units last longer than their closed form (``fitted_start`` in
    ``simcore/lower/kernels.py``): where nothing queues, a way through L2.
    """
    return max(0, gpu.gemm.start_ticks - gpu.l2.latency_ticks)


@lru_cache(maxsize=1024)
def _least_kernels(gpu: Gpu, gemm: GemmShape, inner: int) -> tuple[int, int]:
    """Ticks of the shortest GEMM, and of the shortest matrix times a vector, of that inner dimension; no launch."""
    shape = GemmShape(1, 1, inner, gemm.dtype)
    return (
        gemm_work(gpu, shape, gpu.sms).unit_ticks,
        gemv_work(gpu, GemvShape(1, inner, gemm.dtype), gpu.sms).unit_ticks,
    )


def lone_kernel(scenario: Scenario) -> KernelWork | None:
    """The kernel of a workload that is one kernel and no GEMM."""
    if scenario.workload.kernel is None or scenario.workload.pattern.overlaps:
        return None
    schedule = build_schedule(scenario, Choice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system)))
    (group,) = (step for step in schedule.steps if isinstance(step, TileGroup))
    return compute_work(scenario, group, scenario.gpu.sms)
