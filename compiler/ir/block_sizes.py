"""How large the blocks are that steps of a plan work on, and how the kernels of a workload may be cut into groups.

Rows of tiles are those of the moved tensor. ``k`` is the inner dimension of a GEMM. Attention after a collective reads
heads, so that ``k`` are the columns of the moved tensor there; before a collective it has an inner dimension of 1, as a
kernel alone that is no GEMM, which is one tile for a plan. Where an all_to_all brings the columns of all ranks for the
same rows, ``k`` are those of one block, and all blocks together are the inner dimension.

Where a workload has two kernels, ask of the ``stage`` of one.
"""

from dataclasses import dataclass
from enum import Enum

from .shapes import AttentionShape, GemmShape, GroupedGemmShape
from .workload import Pattern, Workload

# Tiles read 64 elements of the inner dimension at a time; a chunk of columns keeps to that.
COLUMN_STEP = 64


class Adds(Enum):
    """Which chunks of what a collective brings add to one output, so that their kernels run one after the other.

    Of ROWS and of BLOCKS what comes from different ranks does: all rows of each, or rows at the same place of each.
    """

    NONE = "none"
    ROWS = "rows"
    COLUMNS = "columns"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Cutting:
    """How a kernel before or after a collective may be cut.

    ``by_rows`` is whether some rows can do without the others. ``head`` counts the columns of the moved tensor that
    belong to one head of keys and stay together, 1 where there are no heads.
    """

    adds: Adds = Adds.NONE
    by_rows: bool = True
    head: int = 1

    @property
    def adds_ranks(self) -> bool:
        """Whether what comes from different ranks adds to one output."""
        return self.adds in (Adds.ROWS, Adds.BLOCKS)

    @property
    def column_step(self) -> int:
        """A chunk of columns is a multiple of this."""
        return COLUMN_STEP if self.head == 1 else self.head


def cutting_of(workload: Workload) -> Cutting:
    """How the kernel of ``workload`` may be cut.

    Of a GEMM after a collective columns of what arrives are the inner dimension, of one rank or, behind an all_to_all
    that turns a sharding by columns into one by rows, of all ranks side by side. Rows of gathered keys and values add
    to one output by online softmax (Ring Attention, arXiv 2310.01889), and heads are independent. An all_to_all before
    attention brings queries too, and each needs the keys of all rows (DeepSpeed-Ulysses, arXiv 2309.14509).
    """
    kernel, moved, pattern = workload.kernel, workload.moved, workload.pattern
    if pattern is Pattern.A2A_GEMM and workload.gemm is not None and moved is not None:
        return Cutting(Adds.COLUMNS if workload.gemm.k == moved.cols else Adds.BLOCKS)
    if not isinstance(kernel, AttentionShape) or moved is None:
        return Cutting(Adds.COLUMNS if pattern.consumes else Adds.NONE)
    head = moved.cols // kernel.kv_heads
    if pattern.gathers:
        return Cutting(Adds.ROWS, head=head)
    return Cutting(by_rows=not pattern.consumes, head=head)


def moved_rows(workload: Workload, num_ranks: int, owner: int = 0, holder: int = 0) -> int:
    """Rows of the moved tensor's block of rank r + ``owner`` that rank r + ``holder`` has, 0 where nothing moves.

    Where ranks differ, r is ``workload.rank``.
    """
    if workload.loads:
        rank = workload.rank
        return workload.loads[(rank + holder) % num_ranks][(rank + owner) % num_ranks]
    if workload.split:
        return workload.split[(owner - holder) % num_ranks]
    return workload.moved.rows // num_ranks if workload.moved is not None else 0


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
    """Columns of the output of one rank's kernels."""
    return _cols_and_inner(workload)[0]


def inner_size(workload: Workload) -> int:
    """The inner dimension that tiles may be sliced along, 0 where nothing computes."""
    return _cols_and_inner(workload)[1]


def _cols_and_inner(workload: Workload) -> tuple[int, int]:
    compute, moved = workload.compute, workload.moved
    if compute is None:
        return 0, 0
    if workload.pattern is Pattern.KERNEL or (moved is None and not isinstance(compute, GemmShape)):
        return 1, 1
    match compute:
        case GemmShape() if moved is not None and cutting_of(workload).adds is Adds.BLOCKS:
            return compute.n, moved.cols
        case GemmShape() | GroupedGemmShape():
            return compute.n, compute.k
        case AttentionShape():
            inner = moved.cols if moved is not None and workload.pattern.consumes else 1
            return compute.heads * compute.head_dim, inner
        case _:
            return 1, 1
