"""Numbers for a scenario: what every rank has at first, and what it must have in the end, by plain numpy.

All numbers are small integers in float64, so that sums in any order are exact and equal means equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.ir import (
    Adds,
    IndexRange,
    Pattern,
    Scenario,
    Workload,
    cutting_of,
    moved_rows,
    rows_of_block,
    tile_rows,
)
from .attention import Attention
from .axes import CutAxis, Layout, attention_of
from .memory import Array, CheckedArray, Place, RankMemory
from .tasks import Task

LARGEST = 4
GATHERS = (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG)
FROM_FIRST = (Pattern.BROADCAST, Pattern.SEND_RECV)


@dataclass(frozen=True, slots=True)
class Operands:
    """Inputs of one kernel at one rank, each by block; None where blocks of the moved tensor take its place."""

    arrays: tuple[Array | None, ...]

    def __getitem__(self, number: int) -> Array:
        """Return an operand that is there."""
        found = self.arrays[number]
        assert found is not None, "what arrives is not asked for here"
        return found

    @property
    def x(self) -> Array | None:
        """The first one, if it is there."""
        return self.arrays[0]

    @property
    def w(self) -> Array:
        """The second one."""
        return self[1]


@dataclass(frozen=True, slots=True)
class Expected:
    """What ``found`` must be: a block of ``buffer`` at a rank."""

    rank: int
    buffer: CheckedArray
    block: int
    found: Array
    wanted: Array


class Problem:
    """Memories and operands of all ranks, filled with numbers drawn from ``seed``."""

    def __init__(self, scenario: Scenario, layout: Layout, tasks: Sequence[Task], seed: int) -> None:
        self.scenario, self.workload, self.layout = scenario, scenario.workload, layout
        self.num_ranks, self._rng = scenario.num_ranks, np.random.default_rng(seed)
        ranks = range(self.num_ranks)
        kernels = range(self.workload.num_kernels)
        self.attentions = tuple(map(self._attention, kernels))
        self.memories = tuple(self._memory(tasks, rank) for rank in ranks)
        self.operands = tuple(tuple(self._operands(kernel, rank) for kernel in kernels) for rank in ranks)
        self.inputs = tuple(self._inputs(rank) for rank in ranks)
        for rank in ranks:
            self.memories[rank].data.values[:] = self.inputs[rank]

    def side_by_side(self, stage: Workload) -> bool:
        """Whether blocks that arrive are parts of the inner dimension."""
        return cutting_of(stage).adds is Adds.BLOCKS

    def num_operands(self, kernel: int) -> int:
        """How many operands a kernel of attention has that no collective brings; apart where it may have them so."""
        pattern = self.workload.stage(kernel).pattern
        return 3 if pattern.produces else int(pattern.gathers)

    def expected(self, ranks: Iterable[int]) -> Iterator[Expected]:
        """Yield what ``ranks`` must have in the end, beside what is there; to be asked after the run."""
        held = tuple(self._held_first(rank) for rank in range(self.num_ranks))
        for rank in ranks:
            for kernel, buffer in enumerate(self.memories[rank].outputs):
                if buffer is not None:
                    yield from self._outputs(held, rank, kernel, buffer)
            if not self.workload.pattern.consumes and self.workload.moved is not None:
                yield from self._brought(held, rank)

    # What there is at first.

    def _attention(self, kernel: int) -> Attention | None:
        stage = self.workload.stage(kernel)
        if attention_of(stage) is None:
            return None
        return Attention(stage, self.layout, self.layout.kernels[kernel], self.num_ranks, self.num_operands(kernel))

    def _memory(self, tasks: Sequence[Task], rank: int) -> RankMemory:
        layout, blocks = self.layout, self.num_ranks if self.workload.moved is not None else 0
        name = self.workload.moved.name if self.workload.moved is not None else ""
        data, result = (CheckedArray(name, blocks, (layout.rows, layout.cols), tasks) for _ in range(2))
        outputs: list[CheckedArray | None] = []
        for kernel, axes in enumerate(layout.kernels):
            stage = self.workload.stage(kernel)
            count = self.num_ranks if stage.pattern.consumes and not cutting_of(stage).adds_ranks else 1
            made = CheckedArray(stage.output, count, (axes.rows, axes.cols), tasks)
            outputs.append(None if stage.pattern.produces else made)
        return RankMemory(data, result, np.zeros_like(data.values), tuple(outputs))

    def _operands(self, kernel: int, rank: int) -> Operands:
        axes, stage, attention = self.layout.kernels[kernel], self.workload.stage(kernel), self.attentions[kernel]
        if attention is not None:
            operands = map(attention.operand_axes, range(attention.num_operands))
            return Operands(tuple(self._draw(*each) for each in operands))
        w = self._draw(self.num_ranks if self.side_by_side(stage) else 1, axes.inner, axes.cols)
        if stage.pattern.consumes:
            return Operands((None, w))
        return Operands((self._draw(self.num_ranks if stage.pattern.produces else 1, axes.rows, axes.inner), w))

    def _inputs(self, rank: int) -> Array:
        """Draw what a rank has of the moved tensor; NaN for what it has not, or computes."""
        pattern = self.workload.pattern
        data = self._draw(self.memories[rank].data.values.shape[0], self.layout.rows, self.layout.cols)
        if pattern.produces or (pattern in FROM_FIRST and rank != 0):
            data[:] = np.nan
        elif pattern in GATHERS:
            data[[block for block in range(self.num_ranks) if block != rank]] = np.nan
        return data

    def _draw(self, blocks: int, rows: CutAxis, cols: CutAxis) -> Array:
        drawn = self._rng.integers(-LARGEST, LARGEST, (blocks, rows.size, cols.size), endpoint=True)
        return drawn.astype(np.float64)

    # What there must be in the end.

    def _held_first(self, rank: int) -> Array:
        """Return the blocks of a rank before anything moves, computed if a kernel makes them."""
        if not self.workload.pattern.produces:
            return self.inputs[rank]
        operands = self.operands[rank][0]
        if self.attentions[0] is not None:
            made = np.full_like(self.memories[rank].data.values, np.nan)
            for place, values in self._attended(self.attentions[0], rank, 0, ()):
                made[place] = values
            return made
        assert operands.x is not None, "what is computed has inputs of its own"
        return np.asarray(operands.x @ operands.w[0])

    def _outputs(self, held: tuple[Array, ...], rank: int, kernel: int, buffer: CheckedArray) -> Iterator[Expected]:
        operands, stage = self.operands[rank][kernel], self.workload.at(rank).stage(kernel)
        attention = self.attentions[kernel]
        if attention is None and operands.x is not None:
            yield self._expect(
                rank, buffer, 0, operands.x[0] @ operands.w[0], self._rows_of(kernel, tile_rows(stage, 1))
            )
            return
        exchanges = stage.pattern.exchanges
        blocks = [held[source][rank if exchanges else source] for source in range(self.num_ranks)]
        if attention is not None:
            for place, values in self._attended(attention, rank, kernel, blocks):
                yield Expected(rank, buffer, place[0], buffer.values[place], values)
            return
        if self.side_by_side(stage):
            total = sum(block @ w for block, w in zip(blocks, operands.w, strict=True))
            yield self._expect(
                rank, buffer, 0, np.asarray(total), self._rows_of(kernel, tile_rows(stage, self.num_ranks))
            )
            return
        for source, block in enumerate(blocks):
            rows = tile_rows(stage, self.num_ranks, source - rank)
            yield self._expect(rank, buffer, source, block @ operands.w[0], self._rows_of(kernel, rows))

    def _attended(
        self, attention: Attention, rank: int, kernel: int, blocks: Sequence[Array]
    ) -> Iterator[tuple[Place, Array]]:
        """Yield what all heads make of ``blocks`` that are brought, or of what is there, and where it lies."""
        operands, every = self.operands[rank][kernel], range(attention.shape.kv_heads)
        rows = list(attention.blocks(rank))
        made = attention.computed(
            rank, every, rows, lambda place: blocks[place[0]][place[1:]], lambda number, place: operands[number][place]
        )
        yield from zip((attention.place(every, each) for each in rows), made, strict=False)

    def _rows_of(self, kernel: int, rows: int) -> slice:
        return self.layout.kernels[kernel].rows.at(IndexRange(0, rows))

    def _brought(self, held: tuple[Array, ...], rank: int) -> Iterator[Expected]:
        """Yield the blocks that a collective leaves at a rank."""
        pattern, memory, n = self.workload.pattern, self.memories[rank], self.num_ranks
        for block in range(n):
            if (pattern.reduces and block != rank) or (pattern is Pattern.SEND_RECV and rank != 1):
                continue
            if pattern.exchanges:
                rows = moved_rows(self.workload.at(block), n, rank - block)
                own = self.memories[rank].data if block == rank else memory.result
                found, wanted = own.values[block], held[block][rank]
            else:
                rows = rows_of_block(self.workload, n, block)
                found, wanted = memory.final(block), self._whole(held, block)
            kept = self.layout.rows.at(IndexRange(0, rows))
            yield Expected(rank, memory.result, block, found[kept], wanted[kept])

    def _whole(self, held: tuple[Array, ...], block: int) -> Array:
        if self.workload.pattern.sums:
            total: Array = np.sum([each[block] for each in held], axis=0)
            return total
        return np.asarray(held[block if self.workload.pattern in GATHERS else 0][block])

    @staticmethod
    def _expect(rank: int, buffer: CheckedArray, block: int, wanted: Array, rows: slice) -> Expected:
        return Expected(rank, buffer, block, buffer.values[block][rows], wanted[rows])
