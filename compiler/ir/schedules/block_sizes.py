"""Sizes of the blocks that steps of a plan work on, and how the kernel of a workload may be cut into groups of tiles.

Rows of tiles are those of the moved tensor. ``k`` is the inner dimension of a GEMM. For attention after a collective
``k`` is the columns of the moved tensor, which are heads; before a collective its inner dimension is 1. A kernel that
stands alone and is no GEMM is one tile. Where an all_to_all brings the columns of all ranks for the same rows, ``k`` is
the columns of one block, and all blocks together are the inner dimension.

A workload of two kernels has no sizes of its own: pass the ``stage`` of one of them.
"""

from ..operations.kernel_shape import Cutting
from ..workloads.pattern import Pattern
from ..workloads.workload import Workload

_WHOLE = Cutting()


def cutting_of(workload: Workload) -> Cutting:
    """How the kernel of ``workload`` may be cut; see ``KernelShape.cutting``."""
    compute, moved = workload.compute, workload.moved
    return _WHOLE if compute is None or moved is None else compute.cutting(workload.pattern, moved)


def moved_rows(workload: Workload, num_ranks: int, owner: int = 0, holder: int = 0) -> int:
    """Rows of the moved tensor's block of rank r + ``owner`` that rank r + ``holder`` has; 0 where nothing moves.

    Where ranks differ, r is ``workload.rank``.
    """
    if workload.loads:
        rank = workload.rank
        return workload.loads[(rank + holder) % num_ranks][(rank + owner) % num_ranks]
    if workload.split:
        return workload.split[(owner - holder) % num_ranks]
    return workload.moved.rows // num_ranks if workload.moved is not None else 0


def rows_of_block(workload: Workload, num_ranks: int, block: int) -> int:
    """Rows of the moved tensor's block of the absolute rank ``block``, which all ranks hold alike."""
    return moved_rows(workload, num_ranks, block - workload.rank)


def num_tile_blocks(workload: Workload, num_ranks: int) -> int:
    """Row blocks that the rows of the output of one rank's kernels are counted in."""
    return num_ranks if workload.moved is not None and workload.pattern.overlaps else 1


def tile_rows(workload: Workload, num_ranks: int, owner: int = 0) -> int:
    """Rows of the tiles in block ``owner``: those that came from rank r + ``owner``, or are computed for it."""
    if workload.moved is not None and workload.pattern.overlaps:
        consumes = workload.pattern.consumes
        return moved_rows(workload, num_ranks, 0 if consumes else owner, owner if consumes else 0)
    return workload.gemm.m if workload.gemm is not None else inner_size(workload)


def tile_cols(workload: Workload) -> int:
    """Columns of the output of one rank's kernels, rows where that is transposed (``Workload.by_columns``)."""
    if workload.by_columns and workload.gemm is not None:
        return workload.gemm.m
    return _cols_and_inner(workload)[0]


def inner_size(workload: Workload) -> int:
    """The inner dimension that tiles may be sliced along, 0 where nothing computes."""
    return _cols_and_inner(workload)[1]


def _cols_and_inner(workload: Workload) -> tuple[int, int]:
    if workload.compute is None:
        return 0, 0
    if workload.pattern is Pattern.KERNEL:
        return 1, 1
    return workload.compute.tile_extent(workload.pattern, workload.moved)
