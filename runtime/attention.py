"""Attention beside a collective, on whole numbers, so that it is exact in whatever order keys come.

A key has the weight ``2 ** (q . k mod 4)`` in place of ``e ** (q . k / sqrt(d))``. Softmax divides sums of weighted
values by the sum of the weights, which is not exact; here a multiple of the sum of the weights is added to them. Each
term is then above zero, so that a key that is missing or counts twice changes every number of its queries. No mask and
no batch hides keys: a kernel of a plan reads all rows that it names, so each of them counts for each query.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.ir import AttentionShape, IndexRange, TileGroup, Workload, cutting_of, tile_rows
from .axes import CutAxis, KernelAxes, Layout
from .memory import Array, Fault, Place

EXPONENTS = 4
ABOVE_ZERO = 5
"""What is added to each value, which is -4 at least."""
Block = tuple[int, slice]
"""(block, rows in memory)."""
Product = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class Attention:
    """A kernel of attention: where its operands lie, and what it makes of them.

    ``num_operands`` counts those that no collective brings: queries, keys and values as one tensor, two or three, the
    queries alone where keys are gathered, and none behind an all_to_all.
    """

    stage: Workload
    layout: Layout
    axes: KernelAxes
    num_ranks: int
    num_operands: int

    @property
    def shape(self) -> AttentionShape:
        """Its heads and lengths."""
        assert isinstance(self.stage.compute, AttentionShape)
        return self.stage.compute

    def operand_axes(self, operand: int) -> tuple[int, CutAxis, CutAxis]:
        """Return the number of blocks, the rows and the columns of an operand."""
        queries, keys, apart = self.shape.heads, self.shape.kv_heads, self.num_operands - 1
        produces, size = self.stage.pattern.produces, self.shape.head_dim
        if operand:
            return 1, self.axes.inner, self.axes.cols.repeated(size, keys if apart == 2 else 2 * keys)
        count = queries + 2 * keys if produces and not apart else queries
        return self.num_ranks if produces else 1, self.axes.rows, self.axes.cols.repeated(size, count)

    def heads_of(self, step: TileGroup) -> range:
        """Return the heads of keys that a kernel of a plan takes.

        Raises
        ------
        Fault
            If it cuts one.
        """
        cut, head = step.k if self.stage.pattern.consumes else step.regions[0].cols, cutting_of(self.stage).head
        if cut.start % head or cut.stop % head:
            raise Fault(f"{step.name} takes columns {cut} and cuts a head of keys, which is {head} columns")
        return range(cut.start // head, cut.stop // head)

    def place(self, heads: range, block: Block) -> Place:
        """Return where the output of ``heads`` lies that the rows of ``block`` lead to."""
        cols = self._columns(self.axes.cols, heads)
        return (0, slice(0, self.axes.rows.size), cols) if self.stage.pattern.gathers else (*block, cols)

    def blocks(self, rank: int) -> Iterator[Block]:
        """Yield all rows that kernels of ``rank`` take or compute."""
        for block in range(self.num_ranks):
            rows = tile_rows(self.stage, self.num_ranks, block - rank)
            yield block, self.layout.rows.at(IndexRange(0, rows))

    def computed(
        self,
        rank: int,
        heads: range,
        blocks: Sequence[Block],
        arrived: Callable[[Place], Array],
        operand: Callable[[int, Place], Array],
        multiply: Product = np.matmul,
    ) -> list[Array]:
        """Return what ``heads`` make of ``blocks``: for each of them its queries; of gathered keys the sum over all.

        ``arrived`` and ``operand`` read what a collective has brought, and an operand by its number.
        """
        pattern, shape = self.stage.pattern, self.shape
        queries = shape.heads // shape.kv_heads

        def attended(q: Array, keys: Sequence[Array]) -> Array:
            return attend(q, keys, len(heads), queries, self.axes.cols.kept_before(shape.head_dim), multiply)

        def own(number: int, block: Block) -> Array:
            return operand(number, (*block, self._columns(self.operand_axes(number)[2], heads)))

        if pattern.consumes:
            parts = [arrived((*block, self._columns(self.layout.cols, heads))) for block in blocks]
            brought = np.concatenate(parts)
            if pattern.gathers:
                return [attended(own(0, (0, slice(0, self.axes.rows.size))), [brought])]
            return np.split(attended(brought, [brought]), np.cumsum([len(part) for part in parts])[:-1])
        if self.num_operands == 1:
            keys = [np.concatenate([own(0, block) for block in self.blocks(rank)])]
        else:
            keys = [own(number, (0, slice(0, self.axes.inner.size))) for number in range(1, self.num_operands)]
        return [attended(own(0, block), keys) for block in blocks]

    def _columns(self, cols: CutAxis, heads: range) -> slice:
        """Return the columns of ``heads`` in a tensor that has those of all heads of keys."""
        each = cols.size // self.shape.kv_heads
        return slice(each * heads.start, each * heads.stop)


def attend(q: Array, keys: Sequence[Array], kv_heads: int, queries: int, size: int, multiply: Product) -> Array:
    """Return [row, column] of what stands for attention; of each head ``size`` columns are there.

    ``q`` has for each of ``kv_heads`` so many ``queries`` first. ``keys`` are keys and values: one tensor, of which
    they are the last of each head, or two.
    """
    q = q.reshape(len(q), kv_heads, -1, size)[:, :, :queries]
    heads = [each.reshape(len(each), kv_heads, -1, size) for each in keys]
    k, v = (heads[0][:, :, -2], heads[0][:, :, -1]) if len(heads) == 1 else (heads[0][:, :, 0], heads[1][:, :, 0])
    made = np.empty_like(q)
    for head in range(kv_heads):
        scores = multiply(q[:, head].reshape(-1, size), k[:, head].T)
        weights = np.ldexp(1.0, np.mod(scores, EXPONENTS).astype(np.int64))
        made[:, head] = multiply(weights, v[:, head] + ABOVE_ZERO).reshape(made[:, head].shape)
    return made.reshape(len(q), -1)
