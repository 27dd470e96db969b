"""The parts in which a collective moves a tensor that ranks hold in full: of rows, of columns, or almost equal ones.

In an all_reduce each rank sums its part and sends it to all. Nothing says that a part must be rows: libraries cut
bytes. So a tensor whose rows do not divide among the ranks is cut along its columns; if these do not divide either,
along the longer of both, and the first ranks have one unit more than the others.
"""

from dataclasses import dataclass, replace

from .tensors import Shard, Tensor

UNIT_BYTES = 16
"""Uneven parts are cut between units of so many bytes along columns: what one thread loads at a time."""


@dataclass(frozen=True, slots=True)
class RankParts:
    """A tensor whose row blocks are the parts of the ranks.

    ``by_columns``: the parts are columns of what the text names, and ``moved`` is the transpose of that. ``loads`` are
    as in ``Workload``, empty where the parts are equal.
    """

    moved: Tensor
    by_columns: bool = False
    loads: tuple[tuple[int, ...], ...] = ()


def rank_parts(tensor: Tensor, num_ranks: int) -> RankParts | None:
    """The parts of ``tensor``, one for each rank; None if it has fewer rows and columns than there are ranks.

    >>> from .tensors import DType
    >>> found = rank_parts(Tensor("y", DType.BF16, 4, 8192, Shard.NONE), 8)
    >>> found.moved.rows, found.moved.cols, found.by_columns
    (8192, 4, True)
    >>> rank_parts(Tensor("y", DType.BF16, 4, 8192, Shard.NONE), 6).loads[0]
    (1368, 1368, 1368, 1368, 1360, 1360)
    """
    rows, cols = tensor.rows, tensor.cols
    if max(rows, cols) < num_ranks:
        return None
    by_columns = rows % num_ranks > 0 and (cols % num_ranks == 0 or cols > rows)
    moved = replace(tensor, shard=Shard.ROWS)
    if by_columns:
        moved = replace(moved, rows=cols, cols=rows)
    if moved.rows % num_ranks == 0:
        return RankParts(moved, by_columns)
    unit = UNIT_BYTES // tensor.dtype.num_bytes if by_columns else 1
    if moved.rows % unit or moved.rows < unit * num_ranks:
        unit = 1
    least, more = divmod(moved.rows // unit, num_ranks)
    blocks = tuple(unit * (least + (rank < more)) for rank in range(num_ranks))
    return RankParts(moved, by_columns, (blocks,) * num_ranks)
