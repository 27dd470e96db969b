"""Least times of kernels: launched for each group, or one persistent kernel for each stream.

Every schedule has one of these classes, and a bound is the smaller one of both. A launched kernel begins after its
launch, which follows the data it waits for, and may have any rows, columns and slice of the inner dimension. A
persistent kernel is launched before; its units are tiles of the whole inner dimension.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, Choice, GemmShape, GemvShape, Gpu, Kernels, Scenario, TileGroup
from ...compiler.planning.build import build_schedule
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.templates import BASELINE
from ...simcore.kernels.dispatch import compute_work, least_sm_ticks
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.gemm_form import TileForm, split_k, tiles_of
from ...simcore.kernels.memory_bound import gemv_work
from ...simcore.kernels.work import KernelWork


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Least times in ticks of the kernels of one class.

    ``start`` is the earliest begin of a unit, ``first`` the earliest result, ``after`` the time from an arrival to the
    end of a kernel that needs it, ``launched`` the part of ``after`` before the first unit. ``sum_after`` is the time
    from an arrival to the end of a kernel that sums it, ``sum_launch`` the time from the end of a kernel of the rank to
    the end of a kernel that sums its results.
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
        """Whether there is one kernel for each stream."""
        return self.kernels is Kernels.PERSISTENT


def kernel_limits(scenario: Scenario) -> tuple[KernelLimits, ...]:
    """Return the limits of each class of kernels that the scenario allows."""
    launched, persistent = _sums(scenario, Kernels.LAUNCHED), _sums(scenario, Kernels.PERSISTENT)
    workload, gpu = scenario.workload, scenario.gpu
    if workload.gemm is None or workload.gemm.n == 1:
        if workload.pattern.overlaps and workload.gemm is None:
            return (_of_other_kernel(launched),)
        return launched, persistent
    return _of_launched(launched, gpu, workload.gemm), _of_persistent(persistent, gpu, workload.gemm)


def _sums(scenario: Scenario, kernels: Kernels) -> KernelLimits:
    """Return the limits of kernels that sum. A kernel that polls may be launched before the data to sum arrive."""
    gpu, latency = scenario.gpu, scenario.gpu.hbm.latency_ticks
    graph = gpu.sync.graph_launch_ticks
    launch = gpu.launch.kernel_ticks if graph is None else min(graph, gpu.launch.kernel_ticks)
    waits = gpu.launch.kernel_ticks + gpu.launch.event_ticks
    after = 0 if kernels is Kernels.PERSISTENT else waits if graph is None else min(graph, waits)
    return KernelLimits(scenario, kernels, sum_after=after + latency, sum_launch=launch)


def _of_other_kernel(limits: KernelLimits) -> KernelLimits:
    """Return the limits of a kernel other than a GEMM: a step of a tile, of which at least half remains."""
    model = limits.scenario.gpu.gemm
    if not least_sm_ticks(limits.scenario):
        return limits
    unit = (model.k_step_ticks + model.tile_ticks) // 2
    return replace(limits, start=model.start_ticks, first=unit, after=unit)


def _of_launched(limits: KernelLimits, gpu: Gpu, gemm: GemmShape) -> KernelLimits:
    """Return the limits of launched kernels, of one element at least: a GEMM, or a matrix times a vector."""
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
    form, whole_k = TileForm.of(gpu, gemm.dtype), split_k(gemm.k, 1)
    us = min(form.us(tile, whole_k) for tile in tiles_of(gpu))
    unit = int(us * TICKS_PER_US * (1 - 1e-6))
    return replace(limits, start=start, first=start + unit, after=unit)


def gemm_start_ticks(gpu: Gpu) -> int:
    """Return the least time from the launch of a GEMM to its first unit.

    The simulator subtracts the time by which units last longer than their closed form (``fitted_start`` in
    ``simcore/lower/kernels.py``): without queues, the latency of L2.
    """
    return max(0, gpu.gemm.start_ticks - gpu.l2.latency_ticks)


@lru_cache(maxsize=1024)
def _least_kernels(gpu: Gpu, gemm: GemmShape, inner: int) -> tuple[int, int]:
    """Return the ticks of the shortest GEMM and matrix times a vector with that inner dimension, without launch."""
    shape = GemmShape(1, 1, inner, gemm.dtype)
    return (
        gemm_work(gpu, shape, gpu.sms).unit_ticks,
        gemv_work(gpu, GemvShape(1, inner, gemm.dtype), gpu.sms).unit_ticks,
    )


def lone_kernel(scenario: Scenario) -> KernelWork | None:
    """Return the kernel of a workload that is one kernel other than a GEMM, else None."""
    if scenario.workload.kernel is None or scenario.workload.pattern.overlaps:
        return None
    schedule = build_schedule(scenario, Choice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system)))
    (group,) = (step for step in schedule.steps if isinstance(step, TileGroup))
    return compute_work(scenario, group, scenario.gpu.sms)
