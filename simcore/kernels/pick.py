"""Which kernel model a group of tiles has: GEMM, matrix times vector, or what else the workload computes."""

from collections.abc import Sequence

from ...compiler.scenario import GemmShape, Scenario
from ...compiler.schedule import TileGroup
from ...compiler.shapes import AttentionShape, ElementwiseShape, GemvShape, GroupedGemmShape, KernelShape
from .attention import attention_work
from .elementwise import elementwise_work
from .gemm import gemm_work
from .gemv import gemv_work
from .grouped_gemm import grouped_gemm_work
from .work import KernelWork


def group_shape(scenario: Scenario, group: TileGroup) -> GemmShape:
    """The GEMM that ``group`` computes: rows of all its regions stacked, the columns of the first."""
    gemm = scenario.workload.gemm
    assert gemm is not None, "a checked plan computes only where the workload has a GEMM"
    assert len({region.cols for region in group.regions}) == 1, "a checked plan keeps the columns of a group together"
    rows = sum(region.rows.size for region in group.regions)
    return GemmShape(rows, group.regions[0].cols.size, group.k.size, gemm.dtype)


def stream_shape(scenario: Scenario, groups: Sequence[TileGroup]) -> GemmShape:
    """The GEMM of a persistent kernel that goes through ``groups``: as many rows as take all their operations."""
    gemm = scenario.workload.gemm
    assert gemm is not None, "only groups of a GEMM are persistent"
    flops = sum(group_shape(scenario, group).flops for group in groups)
    return GemmShape(-(-flops // (2 * gemm.n * gemm.k)), gemm.n, gemm.k, gemm.dtype)


def compute_shape(scenario: Scenario, group: TileGroup) -> GemmShape | KernelShape:
    """What ``group`` computes: its part of the GEMM, or all of a lone kernel. A GEMM of one column is a GEMV."""
    if scenario.workload.kernel is not None:
        return scenario.workload.kernel
    shape = group_shape(scenario, group)
    if shape.n == 1 and not group.accumulate:
        return GemvShape(shape.m, shape.k, shape.dtype)
    return shape


def compute_work(scenario: Scenario, group: TileGroup, sms: int) -> KernelWork:
    """The kernel that a library would launch for ``group`` when ``sms`` SMs are free for it.

    Raises
    ------
    ValueError
        As the kernel models do: a size that is not positive, or an element type the GPU has no peak for.
    """
    gpu, shape = scenario.gpu, compute_shape(scenario, group)
    match shape:
        case GemmShape():
            return gemm_work(gpu, shape, sms, group.accumulate)
        case GemvShape():
            return gemv_work(gpu, shape, sms)
        case GroupedGemmShape():
            return grouped_gemm_work(gpu, shape, sms)
        case AttentionShape():
            return attention_work(gpu, shape, sms)
        case ElementwiseShape():
            return elementwise_work(gpu, shape, sms)
