"""Numbers for one part of a graph: operands that others make, and what must be there in the end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ...compiler.ir import (
    Adds,
    ElementwiseShape,
    Graph,
    GraphOp,
    Made,
    Part,
    Pattern,
    Scenario,
    Shard,
    Step,
    Tensor,
    Workload,
    cutting_of,
    inner_size,
    moved_rows,
    num_tile_blocks,
    tile_rows,
)
from ..axes import MOVED, Axis, CutAxis, KernelAxes, Layout, axis_of
from ..memory import Array, CheckedArray, Place, RankMemory
from ..problem import FROM_FIRST, GATHERS, Expected, Operands, Problem
from ..tasks import Task
from .operands import Blocks, Sheet, Slot, cuts_of, drawn, in_blocks, positions
from .wiring import MOVED_IN, Key, OperandWire, kernel_operands, part_edges

_ONE = CutAxis((0, 1), (0, 1))


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
            return Operands(None, np.zeros((1, 1, 1)))
        first = self.slots.get((kernel, 0))
        return Operands(None if first is None else first.wanted(rank), self.slots[kernel, 1].wanted(rank))

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
        rows = moved_rows(self.workload, n)
        if pattern.reduces:
            return ((rank, rows),)
        if pattern.exchanges:
            return tuple((block, moved_rows(self.workload, n, rank - block)) for block in range(n))
        return tuple((block, rows) for block in range(n) if pattern is not Pattern.SEND_RECV or rank == 1)

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


def part_problem(
    graph: Graph,
    part: Part,
    scenario: Scenario,
    wires: Sequence[OperandWire],
    tasks: Sequence[Task],
    own: Sequence[Task],
    detail: int | None,
    seed: int,
) -> PartProblem:
    """Lay out the memories of ``part``; ``own`` are its tasks among all ``tasks``, ``wires`` its operands."""
    steps: list[list[Step]] = [[] for _ in range(scenario.num_ranks)]
    for task in own:
        steps[task.rank].append(task.step)
    op = graph.op(part.op)
    if part.workload.pattern is Pattern.KERNEL:
        layout, slots = _of_kernel(graph, op, scenario, wires, detail, seed)
    else:
        more: dict[Axis, set[int]] = {}
        for wire in wires:
            for axis, cuts in _cuts(scenario, wire):
                more.setdefault(axis, set()).update(cuts)
        layout = Layout.of(scenario, steps, detail, more)
        slots = {wire.key: _slot(scenario, layout, wire, seed) for wire in wires}
    return PartProblem(part, scenario, layout, tasks, slots, seed)


def _cuts(scenario: Scenario, wire: OperandWire) -> Iterator[tuple[Axis, set[int]]]:
    """Yield the axes of an operand, and the cuts that it has of what it takes."""
    rows, cols = cuts_of(wire.links)
    workload, n = scenario.workload, scenario.num_ranks
    if wire.key == MOVED_IN:
        yield (MOVED, "rows"), in_blocks(rows, moved_rows(workload, n))
        yield (MOVED, "cols"), cols
        return
    kernel, operand = wire.key
    stage = workload.stage(kernel)
    if operand == 0:
        block = tile_rows(stage, n) if num_tile_blocks(stage, n) > 1 else 0
        yield axis_of(stage, kernel, "rows"), in_blocks(rows, block) if block else rows
        yield axis_of(stage, kernel, "inner"), cols
    else:
        inner = inner_size(stage)
        yield axis_of(stage, kernel, "inner"), in_blocks(rows, inner)
        yield axis_of(stage, kernel, "cols"), cols


def _slot(scenario: Scenario, layout: Layout, wire: OperandWire, seed: int) -> Slot:
    workload, n, pattern = scenario.workload, scenario.num_ranks, scenario.workload.pattern
    slot = partial(Slot, wire.tensor, wire.links, seed=seed, alike=wire.alike, transposed=wire.transposed)
    if wire.key == MOVED_IN:
        return slot(n, partial(_moved_blocks, workload, n), layout.rows, layout.cols)
    kernel, operand = wire.key
    axes, stage = layout.kernels[kernel], workload.stage(kernel)
    if operand == 1:
        count = n if cutting_of(stage).adds is Adds.BLOCKS else 1
        blocks = tuple((block, axes.inner.cuts[-1]) for block in range(count))
        return slot(count, lambda rank: blocks, axes.inner, axes.cols)
    if pattern.produces:
        return slot(n, partial(_computed_blocks, stage, n), axes.rows, axes.inner)
    return slot(1, lambda rank: ((0, axes.rows.cuts[-1]),), axes.rows, axes.inner)


def _moved_blocks(workload: Workload, num_ranks: int, rank: int) -> Blocks:
    """The blocks that a rank has before anything moves."""
    pattern = workload.pattern
    if pattern.exchanges:
        return tuple((block, moved_rows(workload, num_ranks, block - rank)) for block in range(num_ranks))
    rows = moved_rows(workload, num_ranks)
    if pattern in GATHERS:
        return ((rank, rows),)
    return tuple((block, rows) for block in range(num_ranks) if pattern not in FROM_FIRST or rank == 0)


def _computed_blocks(stage: Workload, num_ranks: int, rank: int) -> Blocks:
    return tuple((block, tile_rows(stage, num_ranks, block - rank)) for block in range(num_ranks))


def _of_kernel(
    graph: Graph, op: GraphOp, scenario: Scenario, wires: Sequence[OperandWire], detail: int | None, seed: int
) -> tuple[Layout, dict[Key, Slot]]:
    """A lone kernel that is no GEMM: its operands and its output are tensors of the text, and it is one tile."""
    workload, n = scenario.workload, scenario.num_ranks
    operands = kernel_operands(op, workload)
    output = next((tensor for tensor in workload.tensors if tensor.name == workload.output), operands[0])
    sizes, (rows, cols) = [_local(tensor, n) for tensor in operands], _local(output, n)
    cuts = [cuts_of(wire.links) for wire in wires]
    by_rows = isinstance(workload.compute, ElementwiseShape) and all(size[0] == rows for size in sizes)
    shared = CutAxis.of(
        {0, rows}.union(*(_below(of_rows, rows) for of_rows, _ in cuts)) if by_rows else {0, rows}, detail
    )
    slots = {}
    for wire, size, (of_rows, of_cols) in zip(wires, sizes, cuts, strict=True):
        own = shared if by_rows else CutAxis.of({0, size[0]} | _below(of_rows, size[0]), detail)
        columns = CutAxis.of({0, size[1]} | _below(of_cols, size[1]), detail)
        blocks = partial(_one_block, size[0])
        slots[wire.key] = Slot(wire.tensor, wire.links, 1, blocks, own, columns, seed, wire.alike, wire.transposed)
    axes = KernelAxes(shared, CutAxis.of({0, cols} | part_edges(graph, op, cols), detail), _ONE)
    return Layout(_ONE, _ONE, (axes,)), slots


def _one_block(rows: int, rank: int) -> Blocks:
    return ((0, rows),)


def _below(cuts: Iterable[int], end: int) -> set[int]:
    return {cut for cut in cuts if cut < end}


def _local(tensor: Tensor, num_ranks: int) -> tuple[int, int]:
    """Rows and columns of a tensor that a rank has."""
    rows = tensor.rows // num_ranks if tensor.shard is Shard.ROWS else tensor.rows
    return rows, tensor.cols // num_ranks if tensor.shard is Shard.COLS else tensor.cols
