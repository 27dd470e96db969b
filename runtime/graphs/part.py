"""Numbers for one part of a graph: operands that others make, and what must be there in the end."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ...compiler.ir import Made, Part, Pattern, Scenario, Workload, moved_rows, rows_of_block, tile_rows
from ..axes import Layout
from ..memory import Array, CheckedArray, Place, RankMemory
from ..problem import FROM_FIRST, Expected, Operands, Problem
from ..tasks import Task
from .operands import Blocks, Sheet, Slot, drawn, positions
from .wiring import MOVED_IN, Key


class TakenArray(CheckedArray):
    """What a collective moves, at a rank: read where other parts make it."""

    def __init__(self, slot: Slot, rank: int, blocks: int, tasks: Sequence[Task]) -> None:
        super().__init__(slot.tensor, blocks, (slot.rows, slot.cols), tasks)
        self._slot, self._rank = slot, rank

    def read(self, place: Place, task: Task) -> Array:
        """Return what is at ``place``; see ``Slot.take``."""
        return self._slot.take(self._rank, place, task)


class PartProblem(Problem):
    """Memories of all ranks for one part; its operands are ``slots``."""

    def __init__(
        self,
        part: Part,
        scenario: Scenario,
        layout: Layout,
        tasks: Sequence[Task],
        slots: Mapping[Key, Slot],
        seed: int,
    ) -> None:
        self.part, self.slots, self._seed = part, slots, seed
        super().__init__(scenario, layout, tasks, seed)
        ranks = range(self.num_ranks)
        self._must = {(one.rank, id(one.buffer), one.block): one.wanted for one in self.expected(ranks)}

    def num_operands(self, kernel: int) -> int:
        """Count those that the text names."""
        return sum(of == kernel for of, _ in self.slots)

    def mixed(self, rank: int, taken: Sequence[Array]) -> Array:
        """Return what a kernel that is no product makes of its operands: a sum of them, each times a number of its own.

        A row-wise kernel sums the numbers of a row, another one all numbers.
        """
        axes = self.layout.kernels[0]
        rows, cols = positions(axes.rows), positions(axes.cols)
        total: Array = np.zeros((len(rows), len(cols)))
        for number, values in enumerate(taken):
            name = f"{self.part.op} takes {number}"
            if self.slots[0, number].rows is not axes.rows:
                values = drawn(self._seed, f"{name} by rows", rows, np.arange(values.shape[0])) @ values
            total += values @ drawn(self._seed, name, np.arange(values.shape[1]), cols)
        return total

    def _memory(self, tasks: Sequence[Task], rank: int) -> RankMemory:
        memory = super()._memory(tasks, rank)
        slot = self.slots.get(MOVED_IN)
        if slot is not None:
            memory.data = TakenArray(slot, rank, memory.data.values.shape[0], tasks)
        return memory

    def _inputs(self, rank: int) -> Array:
        if MOVED_IN in self.slots:
            return self.slots[MOVED_IN].wanted(rank)
        return np.full_like(self.memories[rank].data.values, np.nan)

    def _operands(self, kernel: int, rank: int) -> Operands:
        if self.workload.pattern is Pattern.KERNEL:
            return Operands((None, np.zeros((1, 1, 1))))
        slots = {number: slot for (of, number), slot in self.slots.items() if of == kernel}
        return Operands(tuple(slots[n].wanted(rank) if n in slots else None for n in range(max(slots, default=-1) + 1)))

    def _outputs(self, held: tuple[Array, ...], rank: int, kernel: int, buffer: CheckedArray) -> Iterator[Expected]:
        if self.workload.pattern is not Pattern.KERNEL:
            yield from super()._outputs(held, rank, kernel, buffer)
            return
        taken = [slot.wanted(rank)[0] for slot in self.slots.values()]
        yield self._expect(rank, buffer, 0, self.mixed(rank, taken), slice(None))

    # What others take.

    def sheets(self) -> Iterator[tuple[Made, Sheet]]:
        """Yield what the part leaves for others."""
        pattern, moved, output = self.workload.pattern, self.layout, self.workload.output
        brought = partial(Sheet, rows=moved.rows, cols=moved.cols, blocks=self._brought_blocks, read=self._read_brought)
        if pattern.consumes:
            yield Made.MOVED, brought(f"what {self.part.name} brings", wanted=self._moved_wanted)
        if self.workload.is_collective or (pattern.produces and not pattern.consumes):
            yield Made.OUTPUT, brought(output, wanted=self._brought_wanted)
        else:
            axes = moved.kernels[-1]
            yield (
                Made.OUTPUT,
                Sheet(output, axes.rows, axes.cols, self._output_blocks, self._output_wanted, self._read_output),
            )

    def held(self, rank: int, whole: Workload) -> tuple[CheckedArray, ...]:
        """Return what is no input and no output of an op with the workload ``whole``, and is freed behind it."""
        memory, own = self.memories[rank], self.workload
        if own.moved is not None and whole.pattern.consumes:
            return (memory.result,)
        apart = own != whole and whole.pattern.produces and not own.is_collective
        return tuple(output for output in memory.outputs if output is not None) if apart else ()

    def _brought_blocks(self, rank: int) -> Blocks:
        pattern, n = self.workload.pattern, self.num_ranks
        if pattern.reduces:
            return ((rank, rows_of_block(self.workload, n, rank)),)
        if pattern.exchanges:
            blocks = ((rank + k) % n for k in range(n))  # the own one first, as kernels that are cut along it count
            return tuple((block, moved_rows(self.workload, n, rank - block)) for block in blocks)
        here = range(n) if pattern is not Pattern.SEND_RECV or rank == 1 else ()
        return tuple((block, rows_of_block(self.workload, n, block)) for block in here)

    def _brought_wanted(self, rank: int, block: int) -> Array:
        return self._must[rank, id(self.memories[rank].result), block]

    def _moved_wanted(self, rank: int, block: int) -> Array:
        return np.asarray(self._held_first(block)[rank if self.workload.pattern.exchanges else block])

    def _read_brought(self, rank: int, place: Place, task: Task) -> Array:
        memory, pattern = self.memories[rank], self.workload.pattern
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
        count, last = self._output(rank).values.shape[0], self.workload.num_kernels - 1
        if count == 1:
            return ((0, self.layout.kernels[last].rows.cuts[-1]),)
        stage = self.workload.stage(last)
        return tuple((source, tile_rows(stage, self.num_ranks, source - rank)) for source in range(count))

    def _output_wanted(self, rank: int, block: int) -> Array:
        return self._must[rank, id(self._output(rank)), block]

    def _read_output(self, rank: int, place: Place, task: Task) -> Array:
        return self._output(rank).read(place, task)
