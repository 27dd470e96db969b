"""Numbers for one part of a plan: what every rank has at first, and what it must have in the end, by plain numpy.

All numbers are small integers in float64, so that sums in any order are exact and equal means equal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from ..compiler.ir import (
    Adds,
    GroupedGemmShape,
    IndexRange,
    Made,
    OpShape,
    Part,
    Pattern,
    Transfer,
    cutting_of,
    moved_rows,
    rows_of_block,
    tile_rows,
    without_batch,
)
from .axes import Layout, attention_of
from .memory import Array, Attention, CheckedArray, Place, RankMemory
from .operands import ADDED, MOVED_IN, Blocks, Indices, Key, Sheet, Slot, drawn, positions
from .tasks import Task

GATHERS = (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG)
FROM_FIRST = (Pattern.BROADCAST, Pattern.SEND_RECV)
ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Expected:
    """What there must be in a block of ``buffer`` at a rank; ``find`` looks up what is there."""

    rank: int
    buffer: CheckedArray
    block: int
    wanted: Array
    find: Callable[[], Array]


def mixture(seed: int, op: str, taken: Sequence[Array], rows: Indices, cols: Indices, *, by_rows: bool) -> Array:
    """Return [row, column] of what stands for a kernel that is no product; see ``Problem.mixed``.

    ``rows`` and ``cols`` are those of its output in the tensor. ``by_rows``: each row is made of the same row of the
    operands.
    """
    total: Array = np.zeros((len(rows), len(cols)))
    for number, values in enumerate(taken):
        name = f"{op} takes {number}"
        if not by_rows:
            values = drawn(seed, f"{name} by rows", rows, np.arange(values.shape[0])) @ values
        total += values @ drawn(seed, name, np.arange(values.shape[1]), cols)
    return total


def of_experts(shape: GroupedGemmShape, first: Array, second: Array) -> Array:
    """Return [row, column] of the products of all experts, one below the other.

    ``first`` has the rows of each expert below each other, and ``second`` their weights, transposed ones side by side;
    or both have rows that each expert sums over, those of ``first`` transposed.
    """
    over_rows, count = first.shape[1] != shape.k, len(shape.rows)
    lefts = np.split(first, count if over_rows else np.cumsum(shape.rows)[:-1], axis=int(over_rows))
    rights = np.split(second, count, axis=int(not over_rows and second.shape[0] == shape.k))
    return np.concatenate([left @ right for left, right in zip(lefts, rights, strict=True)])


class TakenArray(CheckedArray):
    """What a collective moves, at a rank: read where other parts make it."""

    def __init__(self, slot: Slot, rank: int, blocks: int, tasks: Sequence[Task]) -> None:
        super().__init__(slot.tensor, blocks, (slot.rows, slot.cols), tasks)
        self._slot, self._rank = slot, rank
        self.values[:] = slot.wanted(rank)

    def read(self, place: Place, task: Task) -> Array:
        """Return what is at ``place``; see ``Slot.take``."""
        return self._slot.take(self._rank, place, task)


class Problem:
    """Memories of all ranks for one part, whose operands are ``slots``; ``tasks`` are those of all parts.

    Numbers that nobody makes are drawn from ``seed``.
    """

    def __init__(
        self, part: Part, layout: Layout, slots: Mapping[Key, Slot], tasks: Sequence[Task], num_ranks: int, seed: int
    ) -> None:
        self.part, self.shape, self.layout, self.slots = part, part.shape, layout, slots
        self.num_ranks, self._seed = num_ranks, seed
        self.attentions = tuple(map(self._attention, range(self.shape.num_kernels)))
        self.memories = tuple(self._memory(tasks, rank) for rank in range(num_ranks))
        self._first: dict[int, Array] = {}
        self._expected: dict[int, tuple[Expected, ...]] = {}

    def side_by_side(self, stage: OpShape) -> bool:
        """Whether blocks that arrive are parts of the inner dimension."""
        return cutting_of(stage).adds is Adds.BLOCKS

    def give(self, rank: int, key: Key, values: Array) -> None:
        """Let ``values`` [block, row, column] be an operand of ``rank``, in place of numbers that are drawn."""
        self.slots[key].give(rank, values)
        if key == MOVED_IN:
            self.memories[rank].data.values[:] = values

    def expected(self, rank: int) -> tuple[Expected, ...]:
        """Return what ``rank`` must have in the end."""
        if rank not in self._expected:
            self._expected[rank] = tuple(self._expected_at(rank))
        return self._expected[rank]

    def mixed(self, taken: Sequence[Array]) -> Array:
        """Return what a kernel that is no product makes of its operands: a sum of them, each times a number of its own.

        A row-wise kernel sums the numbers of a row, another one all numbers. Where numbers are given all are there, so
        that experts are products.
        """
        axes, kernel = self.layout.kernels[0], self.shape.kernel
        if isinstance(kernel, GroupedGemmShape) and any(slot.given for slot in self.slots.values()):
            return of_experts(kernel, *taken)
        by_rows = all(self.slots[0, number].rows is axes.rows for number in range(len(taken)))
        name = without_batch(self.part.op)  # a kernel does the same in each batch
        return mixture(self._seed, name, taken, positions(axes.rows), positions(axes.cols), by_rows=by_rows)

    # What there is at first.

    def _attention(self, kernel: int) -> Attention | None:
        stage = self.shape.stage(kernel)
        if attention_of(stage) is None:
            return None
        num_operands = sum(of == kernel for of, _ in self.slots)
        return Attention(stage, self.layout, self.layout.kernels[kernel], self.num_ranks, num_operands)

    def _memory(self, tasks: Sequence[Task], rank: int) -> RankMemory:
        moved, axes = self.shape.moved, (self.layout.rows, self.layout.cols)
        name, blocks = ("", 0) if moved is None else (moved.name, self.num_ranks)
        result, slot = CheckedArray(name, blocks, axes, tasks), self.slots.get(MOVED_IN)
        data = CheckedArray(name, blocks, axes, tasks) if slot is None else TakenArray(slot, rank, blocks, tasks)
        outputs = tuple(self._output_array(kernel, tasks) for kernel in range(self.shape.num_kernels))
        passes = any(isinstance(task.step, Transfer) and task.step.passes for task in tasks)
        pairs = self.num_ranks**2 if passes and self.shape.pattern.exchanges else 0
        passing = CheckedArray(f"{name} on its way", pairs, axes, tasks)
        return RankMemory(data, result, np.zeros_like(data.values), passing, outputs)

    def _output_array(self, kernel: int, tasks: Sequence[Task]) -> CheckedArray | None:
        stage, axes = self.shape.stage(kernel), self.layout.kernels[kernel]
        if stage.pattern.produces:
            return None
        count = self.num_ranks if stage.pattern.consumes and not cutting_of(stage).adds_ranks else 1
        return CheckedArray(stage.output, count, (axes.rows, axes.cols), tasks)

    # What there must be in the end.

    def _expected_at(self, rank: int) -> Iterator[Expected]:
        for kernel, buffer in enumerate(self.memories[rank].outputs):
            if buffer is not None:
                yield from self._outputs(rank, kernel, buffer)
        if not self.shape.pattern.consumes and self.shape.moved is not None:
            yield from self._delivered(rank)

    def _held_first(self, rank: int) -> Array:
        """Return the blocks of a rank before anything moves, computed if a kernel makes them."""
        if rank not in self._first:
            self._first[rank] = self._computed_first(rank)
        return self._first[rank]

    def _computed_first(self, rank: int) -> Array:
        if not self.shape.pattern.produces:
            return self._operand(rank, *MOVED_IN)
        if self.attentions[0] is None:
            return self._added(rank, self._operand(rank, 0, 0) @ self._operand(rank, 0, 1)[0])
        made = np.full_like(self.memories[rank].data.values, np.nan)
        for place, values in self._attended(self.attentions[0], rank, 0, ()):
            made[place] = values
        return made

    def _operand(self, rank: int, kernel: int, number: int) -> Array:
        """Return [block, row, column] of an operand at a rank."""
        return self.slots[kernel, number].wanted(rank)

    def _added(self, rank: int, made: Array) -> Array:
        """Return [block, row, column] of what a kernel has ``made``, with what it adds to."""
        return np.asarray(made + self._operand(rank, *ADDED)) if ADDED in self.slots else made

    def _outputs(self, rank: int, kernel: int, buffer: CheckedArray) -> Iterator[Expected]:
        if self.shape.pattern is Pattern.KERNEL:
            taken = [slot.wanted(rank)[0] for slot in self.slots.values()]
            yield self._expect(rank, buffer, 0, self.mixed(taken), ALL)
            return
        stage, attention = self.shape.at(rank).stage(kernel), self.attentions[kernel]
        if attention is None and (kernel, 0) in self.slots:
            (product,) = self._added(rank, self._operand(rank, kernel, 0)[:1] @ self._operand(rank, kernel, 1)[0])
            yield self._expect(rank, buffer, 0, product, self._rows_of(kernel, tile_rows(stage, 1)))
            return
        exchanges, n = stage.pattern.exchanges, self.num_ranks
        blocks = [self._held_first(source)[rank if exchanges else source] for source in range(n)]
        if attention is not None:
            for place, values in self._attended(attention, rank, kernel, blocks):
                yield Expected(rank, buffer, place[0], values, partial(buffer.look, place))
            return
        w = self._operand(rank, kernel, 1)
        if self.side_by_side(stage):
            total = sum(block @ part for block, part in zip(blocks, w, strict=True))
            yield self._expect(rank, buffer, 0, np.asarray(total), self._rows_of(kernel, tile_rows(stage, n)))
            return
        for source, block in enumerate(blocks):
            rows = self._rows_of(kernel, tile_rows(stage, n, source - rank))
            yield self._expect(rank, buffer, source, block @ w[0], rows)

    def _attended(
        self, attention: Attention, rank: int, kernel: int, blocks: Sequence[Array]
    ) -> Iterator[tuple[Place, Array]]:
        """Yield what all heads make of ``blocks`` that are brought, or of what is there, and where it lies."""
        every, rows = range(attention.shape.kv_heads), list(attention.blocks(rank))
        made = attention.computed(
            rank,
            every,
            rows,
            lambda place: blocks[place[0]][place[1:]],
            lambda number, place: self._operand(rank, kernel, number)[place],
        )
        yield from zip((attention.place(every, each) for each in rows), made, strict=False)

    def _rows_of(self, kernel: int, rows: int) -> slice:
        return self.layout.kernels[kernel].rows.at(IndexRange(0, rows))

    def _delivered(self, rank: int) -> Iterator[Expected]:
        """Yield the blocks that a collective leaves at a rank."""
        memory, exchanges = self.memories[rank], self.shape.pattern.exchanges
        for block, rows in sorted(self._delivered_blocks(rank)):
            kept = self.layout.rows.at(IndexRange(0, rows))
            if exchanges:
                own, wanted = memory.data if block == rank else memory.result, self._held_first(block)[rank]
                find = partial(own.look, (block, kept, ALL))
            else:
                wanted, find = self._whole(block), partial(memory.final, block, kept)
            yield Expected(rank, memory.result, block, wanted[kept], find)

    def _whole(self, block: int) -> Array:
        if self.shape.pattern.sums:
            total: Array = np.sum([self._held_first(rank)[block] for rank in range(self.num_ranks)], axis=0)
            return total
        return np.asarray(self._held_first(block if self.shape.pattern in GATHERS else 0)[block])

    @staticmethod
    def _expect(rank: int, buffer: CheckedArray, block: int, wanted: Array, rows: slice) -> Expected:
        return Expected(rank, buffer, block, wanted[rows], partial(buffer.look, (block, rows, ALL)))

    # What others take.

    def sheets(self) -> Iterator[tuple[Made, Sheet]]:
        """Yield what the part leaves for others."""
        pattern, moved, output = self.shape.pattern, self.layout, self.shape.output
        delivered = partial(
            Sheet, rows=moved.rows, cols=moved.cols, blocks=cache(self._delivered_blocks), read=self._read_delivered
        )
        if pattern.consumes:
            yield Made.MOVED, delivered(f"what {self.part.name} brings", wanted=self._moved_wanted)
        if self.shape.is_collective or (pattern.produces and not pattern.consumes):
            yield Made.OUTPUT, delivered(output, wanted=self._delivered_wanted)
        else:
            axes = moved.kernels[-1]
            yield (
                Made.OUTPUT,
                Sheet(output, axes.rows, axes.cols, cache(self._output_blocks), self._output_wanted, self._read_output),
            )

    def held(self, rank: int, whole: OpShape) -> tuple[CheckedArray, ...]:
        """Return what is no input and no output of an op with the workload ``whole``, and is freed behind it."""
        memory, own = self.memories[rank], self.shape
        if own.moved is not None and whole.pattern.consumes:
            return (memory.result,)
        apart = own != whole and whole.pattern.produces and not own.is_collective
        return tuple(output for output in memory.outputs if output is not None) if apart else ()

    def _delivered_blocks(self, rank: int) -> Blocks:
        pattern, n = self.shape.pattern, self.num_ranks
        if pattern.reduces:
            return ((rank, rows_of_block(self.shape, n, rank)),)
        if pattern.exchanges:
            blocks = ((rank + k) % n for k in range(n))  # the own one first, as kernels that are cut along it count
            return tuple((block, moved_rows(self.shape.at(block), n, rank - block)) for block in blocks)
        here = range(n) if pattern is not Pattern.SEND_RECV or rank == 1 else ()
        return tuple((block, rows_of_block(self.shape, n, block)) for block in here)

    def _delivered_wanted(self, rank: int, block: int) -> Array:
        return self._must(rank, self.memories[rank].result, block)

    def _moved_wanted(self, rank: int, block: int) -> Array:
        return np.asarray(self._held_first(block)[rank if self.shape.pattern.exchanges else block])

    def _read_delivered(self, rank: int, place: Place, task: Task) -> Array:
        memory, pattern = self.memories[rank], self.shape.pattern
        if pattern.sums:
            memory.result.demand_order(place, task, "reads")
            return memory.read_sum(place, task)
        own = rank == 0 if pattern in FROM_FIRST else place[0] == rank
        return (memory.data if own else memory.result).read(place, task)

    def _output(self, rank: int) -> CheckedArray:
        output = self.memories[rank].outputs[-1]
        assert output is not None, "the kernel of such a part does not compute what is moved"
        return output

    def _output_blocks(self, rank: int) -> Blocks:
        count, last = self._output(rank).values.shape[0], self.shape.num_kernels - 1
        if count == 1:
            return ((0, self.layout.kernels[last].rows.cuts[-1]),)
        stage = self.shape.at(rank).stage(last)
        return tuple((source, tile_rows(stage, self.num_ranks, source - rank)) for source in range(count))

    def _output_wanted(self, rank: int, block: int) -> Array:
        return self._must(rank, self._output(rank), block)

    def _must(self, rank: int, buffer: CheckedArray, block: int) -> Array:
        return next(each.wanted for each in self.expected(rank) if each.buffer is buffer and each.block == block)

    def _read_output(self, rank: int, place: Place, task: Task) -> Array:
        return self._output(rank).read(place, task)
