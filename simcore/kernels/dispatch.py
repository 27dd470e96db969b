"""Which work model a kernel has, and what a group of tiles computes of it. A new one is a file, and a line here."""

from typing import Any

from ...compiler.ir import (
    Gpu,
    IndexRange,
    KernelShape,
    Region,
    Scenario,
    TileGroup,
    inner_size,
    tile_cols,
    tile_rows,
)
from . import attention, attention_back, elementwise, gemm, gemv, grouped_gemm
from .work import KernelWork, WorkModel

MODELS: tuple[WorkModel[Any], ...] = (
    gemm.MODEL,
    gemv.MODEL,
    grouped_gemm.MODEL,
    attention_back.MODEL,  # before attention, from whose shape its own derives
    attention.MODEL,
    elementwise.MODEL,
)


def model_of(shape: KernelShape) -> WorkModel[Any]:
    """The work model of the class of ``shape``, or of one that it derives from."""
    return next(model for model in MODELS if isinstance(shape, model.shape))


def compute_shape(scenario: Scenario, group: TileGroup) -> KernelShape:
    """Return the shape of ``group``: its part of the kernel, or all of a lone kernel that is no GEMM."""
    scenario = scenario.stage(group.kernel)
    compute = scenario.workload.compute
    assert compute is not None, "a checked plan computes only where the workload has a kernel"
    if scenario.workload.gemm is None and not scenario.workload.pattern.overlaps:
        return compute
    return model_of(compute).part(scenario, compute, group)


def whole_shape(scenario: Scenario, kernel: int = 0) -> KernelShape | None:
    """The undivided kernel that groups of tiles are parts of; None where there is none or it stands alone."""
    workload, n = scenario.workload.stage(kernel), scenario.num_ranks
    if workload.kernel is None or not workload.pattern.overlaps:
        return workload.gemm
    cols, inner = IndexRange(0, tile_cols(workload)), IndexRange(0, inner_size(workload))
    blocks = (Region(owner, IndexRange(0, tile_rows(workload, n, owner)), cols) for owner in range(n))
    whole = tuple(block for block in blocks if block.rows.size)
    return compute_shape(scenario, TileGroup("", whole, inner, kernel=kernel))


def whole_works(scenario: Scenario) -> tuple[KernelWork, ...]:
    """Each undivided kernel before or after a collective, or the lone GEMM, on all SMs."""
    shapes = (whole_shape(scenario, kernel) for kernel in range(scenario.workload.num_kernels))
    return tuple(work_of(scenario.gpu, shape, scenario.gpu.sms) for shape in shapes if shape is not None)


def compute_work(scenario: Scenario, group: TileGroup, sms: int) -> KernelWork:
    """The kernel that a library would launch for ``group`` when ``sms`` SMs are free for it.

    Raises
    ------
    ValueError
        As the work models do: a size that is not positive, or an element type the GPU has no peak for.
    """
    return work_of(scenario.gpu, compute_shape(scenario, group), sms, group.accumulate)


def work_of(gpu: Gpu, shape: KernelShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel for ``shape``; ``accumulate`` adds to what another left of the output. Raises as ``compute_work``."""
    work = model_of(shape).work
    return work(gpu, shape, sms, accumulate) if accumulate else work(gpu, shape, sms)
