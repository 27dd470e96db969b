"""Which kernel model a group of tiles has: GEMM, matrix times vector, or what else the workload computes."""

from collections.abc import Sequence

from ...compiler.ir import (
    Adds,
    AttentionShape,
    ElementwiseShape,
    GemmShape,
    GemvShape,
    Gpu,
    GroupedGemmShape,
    IndexRange,
    KernelShape,
    Region,
    Scenario,
    TileGroup,
    cutting_of,
    inner_size,
    tile_cols,
    tile_rows,
)
from .attention import attention_work
from .elementwise import elementwise_work
from .gemm import gemm_work
from .gemv import gemv_work
from .grouped_gemm import grouped_gemm_work
from .part_shapes import attention_part, experts_part
from .work import KernelWork


def group_shape(scenario: Scenario, group: TileGroup) -> GemmShape:
    """The GEMM that ``group`` computes: rows of all its regions stacked, the columns of the first.

    Where blocks lie side by side, these are its inner dimension instead.
    """
    workload, regions = scenario.workload.stage(group.kernel), group.regions
    gemm = workload.gemm
    assert gemm is not None, "a checked plan computes only where the workload has a GEMM"
    assert len({region.cols for region in regions}) == 1, "a checked plan keeps the columns of a group together"
    if cutting_of(workload).adds is Adds.BLOCKS:
        return GemmShape(regions[0].rows.size, regions[0].cols.size, len(regions) * group.k.size, gemm.dtype)
    rows = sum(region.rows.size for region in regions)
    return GemmShape(rows, regions[0].cols.size, group.k.size, gemm.dtype)


def stream_shape(scenario: Scenario, groups: Sequence[TileGroup]) -> GemmShape:
    """The GEMM of a persistent kernel that goes through ``groups``: as many rows as take all their operations."""
    gemm = scenario.workload.gemm
    assert gemm is not None, "only groups of a GEMM are persistent"
    flops = sum(group_shape(scenario, group).flops for group in groups)
    return GemmShape(-(-flops // (2 * gemm.n * gemm.k)), gemm.n, gemm.k, gemm.dtype)


def compute_shape(scenario: Scenario, group: TileGroup) -> GemmShape | KernelShape:
    """What ``group`` computes: its part of the kernel, or all of a lone one. A GEMM of one column is a GEMV."""
    scenario = scenario.stage(group.kernel)
    kernel, overlaps = scenario.workload.kernel, scenario.workload.pattern.overlaps
    match kernel:
        case GroupedGemmShape() if overlaps:
            return experts_part(scenario, kernel, group)
        case AttentionShape() if overlaps:
            return attention_part(scenario, kernel, group)
        case None:
            shape = group_shape(scenario, group)
            whole_vector = shape.n == 1 and not group.accumulate
            return GemvShape(shape.m, shape.k, shape.dtype) if whole_vector else shape
        case _:
            return kernel


def whole_shape(scenario: Scenario, kernel: int = 0) -> GemmShape | KernelShape | None:
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
        As the kernel models do: a size that is not positive, or an element type the GPU has no peak for.
    """
    return work_of(scenario.gpu, compute_shape(scenario, group), sms, group.accumulate)


def work_of(gpu: Gpu, shape: GemmShape | KernelShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel for ``shape``; ``accumulate`` adds to what another left of the output. Raises as ``compute_work``."""
    match shape:
        case GemmShape():
            return gemm_work(gpu, shape, sms, accumulate)
        case GemvShape():
            return gemv_work(gpu, shape, sms)
        case GroupedGemmShape():
            return grouped_gemm_work(gpu, shape, sms, accumulate)
        case AttentionShape():
            return attention_work(gpu, shape, sms, accumulate)
        case ElementwiseShape():
            return elementwise_work(gpu, shape, sms)
