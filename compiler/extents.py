"""How large the blocks are that steps of a plan work on: rows of the moved tensor, tiles of the output."""

from .scenario import Pattern, Workload


def moved_rows(workload: Workload, num_ranks: int, owner: int = 0) -> int:
    """Rows of the moved tensor's block of rank r + ``owner``, 0 where nothing moves."""
    if workload.split:
        return workload.split[owner % num_ranks]
    return workload.moved.rows // num_ranks if workload.moved is not None else 0


def num_tile_blocks(workload: Workload, num_ranks: int) -> int:
    """Row blocks that the rows of the output of one rank's kernels are counted in."""
    return num_ranks if workload.moved is not None and workload.pattern.overlaps else 1


def tile_rows(workload: Workload, num_ranks: int, owner: int = 0) -> int:
    """Rows of the output in block ``owner``, for A2A+GEMM those that came from rank r + ``owner``."""
    if workload.pattern is Pattern.A2A_GEMM:
        return moved_rows(workload, num_ranks, -owner)
    if workload.gemm is not None:
        return workload.gemm.m // num_tile_blocks(workload, num_ranks)
    return inner_size(workload)


def tile_cols(workload: Workload) -> int:
    """Columns of the output of one rank's kernels."""
    return workload.gemm.n if workload.gemm is not None else inner_size(workload)


def inner_size(workload: Workload) -> int:
    """The inner dimension that tiles may be sliced along, 0 where nothing computes.

    A lone kernel that is no GEMM is one tile for a plan, of one row, one column and an inner dimension of 1.
    """
    if workload.gemm is not None:
        return workload.gemm.k
    return 1 if workload.kernel is not None else 0
