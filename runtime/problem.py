"""Numbers for a scenario: what every rank has at first, and what it must have in the end, by plain numpy.

All numbers are small integers in float64, so that sums in any order are exact and equal means equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler.ir import Adds, IndexRange, Pattern, Scenario, Workload, cutting_of, moved_rows, tile_rows
from .axes import CutAxis, Layout
from .memory import Array, CheckedArray, RankMemory
from .tasks import Task

LARGEST = 4
GATHERS = (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG)
FROM_FIRST = (Pattern.BROADCAST, Pattern.SEND_RECV)


@dataclass(frozen=True, slots=True)
class Operands:
    """Inputs of one kernel at one rank by block; ``x`` is None where blocks of the moved tensor take its place."""

    x: Array | None
    w: Array


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
        self.memories = tuple(self._memory(tasks, rank) for rank in ranks)
        self.operands = tuple(tuple(self._operands(kernel, rank) for kernel in kernels) for rank in ranks)
        self.inputs = tuple(self._inputs(rank) for rank in ranks)
        for rank in ranks:
            self.memories[rank].data.values[:] = self.inputs[rank]

    def side_by_side(self, stage: Workload) -> bool:
        """Whether blocks that arrive are parts of the inner dimension."""
        return cutting_of(stage).adds is Adds.BLOCKS

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

    def _memory(self, tasks: Sequence[Task], rank: int) -> RankMemory:
        layout, blocks = self.layout, self.num_ranks if self.workload.moved is not None else 0
        name = self.workload.moved.name if self.workload.moved is not None else ""
        data, result = (CheckedArray(name, blocks, (layout.rows, layout.cols), tasks) for _ in range(2))
        outputs: list[CheckedArray | None] = []
        for kernel, axes in enumerate(layout.kernels):
            stage = self.workload.stage(kernel)
            count = self.num_ranks if stage.pattern.consumes and not self.side_by_side(stage) else 1
            made = CheckedArray(stage.output, count, (axes.rows, axes.cols), tasks)
            outputs.append(None if stage.pattern.produces else made)
        return RankMemory(data, result, np.zeros_like(data.values), tuple(outputs))

    def _operands(self, kernel: int, rank: int) -> Operands:
        axes, stage = self.layout.kernels[kernel], self.workload.stage(kernel)
        w = self._draw(self.num_ranks if self.side_by_side(stage) else 1, axes.inner, axes.cols)
        if stage.pattern.consumes:
            return Operands(None, w)
        return Operands(self._draw(self.num_ranks if stage.pattern.produces else 1, axes.rows, axes.inner), w)

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
        assert operands.x is not None, "what is computed has inputs of its own"
        return np.asarray(operands.x @ operands.w[0])

    def _outputs(self, held: tuple[Array, ...], rank: int, kernel: int, buffer: CheckedArray) -> Iterator[Expected]:
        operands, stage = self.operands[rank][kernel], self.workload.at(rank).stage(kernel)
        if operands.x is not None:
            yield self._expect(
                rank, buffer, 0, operands.x[0] @ operands.w[0], self._rows_of(kernel, tile_rows(stage, 1))
            )
            return
        exchanges = stage.pattern.exchanges
        blocks = [held[source][rank if exchanges else source] for source in range(self.num_ranks)]
        if self.side_by_side(stage):
            total = sum(block @ w for block, w in zip(blocks, operands.w, strict=True))
            yield self._expect(
                rank, buffer, 0, np.asarray(total), self._rows_of(kernel, tile_rows(stage, self.num_ranks))
            )
            return
        for source, block in enumerate(blocks):
            rows = tile_rows(stage, self.num_ranks, source - rank)
            yield self._expect(rank, buffer, source, block @ operands.w[0], self._rows_of(kernel, rows))

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
                rows = moved_rows(self.workload, n)
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
