"""Parts of a GEMM that groups of tiles compute: smaller GEMMs, or for one column a matrix-vector product."""

from collections.abc import Sequence

from ...compiler.ir import Adds, GemmShape, GemvShape, KernelShape, Scenario, TileGroup, cutting_of


def group_shape(scenario: Scenario, group: TileGroup) -> GemmShape:
    """The GEMM that ``group`` computes: rows of all its regions stacked, the columns of the first.

    Where blocks lie side by side, these are its inner dimension instead. Rows of a transposed output are columns.
    """
    workload, regions = scenario.workload.stage(group.kernel), group.regions
    gemm = workload.gemm
    assert gemm is not None, "a checked plan computes only where the workload has a GEMM"
    cols = regions[0].cols
    assert all(each.cols is cols or each.cols == cols for each in regions), "a checked plan keeps columns together"
    if cutting_of(workload).adds is Adds.BLOCKS:
        return GemmShape(regions[0].rows.size, cols.size, len(regions) * group.k.size, gemm.dtype)
    rows = sum([region.rows.size for region in regions])
    if workload.by_columns:
        return GemmShape(cols.size, rows, group.k.size, gemm.dtype)
    return GemmShape(rows, cols.size, group.k.size, gemm.dtype)


def stream_shape(scenario: Scenario, groups: Sequence[TileGroup]) -> GemmShape:
    """The GEMM of a persistent kernel that goes through ``groups``: as many rows as take all their operations.

    Of a transposed output as many columns.
    """
    gemm = scenario.workload.gemm
    assert gemm is not None, "only groups of a GEMM are persistent"
    flops = sum(group_shape(scenario, group).flops for group in groups)
    if scenario.workload.by_columns:
        return GemmShape(gemm.m, -(-flops // (2 * gemm.m * gemm.k)), gemm.k, gemm.dtype)
    return GemmShape(-(-flops // (2 * gemm.n * gemm.k)), gemm.n, gemm.k, gemm.dtype)


def gemm_part(scenario: Scenario, whole: GemmShape, group: TileGroup) -> KernelShape:
    """The kernel of ``group``: a GEMV where the output has one column and nothing is added to it."""
    shape = group_shape(scenario, group)
    if shape.n == 1 and not group.accumulate and not scenario.workload.by_columns:
        return GemvShape(shape.m, shape.k, shape.dtype)
    return shape
