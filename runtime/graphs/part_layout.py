"""Where the memories of one part of a graph are cut, and the operands that it takes from others."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ...compiler.ir import (
    Adds,
    ElementwiseShape,
    Graph,
    GraphOp,
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
    rows_of_block,
    tile_rows,
)
from ..attention import Attention
from ..axes import MOVED, Axis, CutAxis, KernelAxes, Layout, attention_of, axis_of
from ..problem import FROM_FIRST, GATHERS
from ..tasks import Task
from .operands import Blocks, Slot, cuts_of, in_blocks
from .part import PartProblem
from .wiring import MOVED_IN, Key, OperandWire, kernel_operands, part_edges

_ONE = CutAxis((0, 1), (0, 1))


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
        slots = {wire.key: _slot(scenario, layout, wire, wires, seed) for wire in wires}
    return PartProblem(part, scenario, layout, tasks, slots, seed)


def _cuts(scenario: Scenario, wire: OperandWire) -> Iterator[tuple[Axis, set[int]]]:
    """Yield the axes of an operand, and the cuts that it has of what it takes."""
    rows, cols = cuts_of(wire.links)
    workload, n = scenario.workload, scenario.num_ranks
    if wire.key == MOVED_IN:
        yield (MOVED, "rows"), in_blocks(rows, _heights(workload, n))
        yield (MOVED, "cols"), cols
        return
    kernel, operand = wire.key
    stage = workload.stage(kernel)
    attention, in_turn = attention_of(stage), axis_of(stage, kernel, "rows")
    if operand == 0:
        yield in_turn, in_blocks(rows, _heights(stage, n)) if in_turn[0] == MOVED else rows
    elif attention is None:
        yield axis_of(stage, kernel, "inner"), in_blocks(rows, (inner_size(stage),))
    else:
        yield axis_of(stage, kernel, "inner"), rows
    if attention is not None:
        yield axis_of(stage, kernel, "cols"), {cut % attention.head_dim for cut in cols}
    else:
        yield axis_of(stage, kernel, "cols" if operand else "inner"), cols


def _slot(scenario: Scenario, layout: Layout, wire: OperandWire, wires: Sequence[OperandWire], seed: int) -> Slot:
    workload, n, pattern = scenario.workload, scenario.num_ranks, scenario.workload.pattern
    slot = partial(Slot, wire.tensor, wire.links, seed=seed, alike=wire.alike, transposed=wire.transposed)
    if wire.key == MOVED_IN:
        return slot(n, partial(_moved_blocks, workload, n), layout.rows, layout.cols)
    kernel, operand = wire.key
    axes, stage = layout.kernels[kernel], workload.stage(kernel)
    if attention_of(stage) is not None:
        count = sum(each.key[0] == kernel for each in wires)
        num_blocks, rows, cols = Attention(stage, layout, axes, n, count).operand_axes(operand)
        one = partial(_one_block, rows.cuts[-1])
        return slot(num_blocks, partial(_computed_blocks, stage, n) if num_blocks > 1 else one, rows, cols)
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
    heights = _heights(workload, num_ranks)
    if pattern in GATHERS:
        return ((rank, heights[rank]),)
    return tuple(enumerate(heights)) if pattern not in FROM_FIRST or rank == 0 else ()


def _heights(workload: Workload, num_ranks: int) -> tuple[int, ...]:
    """Rows of the block of each rank, one below the other in what moves; of an exchange those of the own one."""
    if workload.pattern.exchanges:
        return (moved_rows(workload, num_ranks),) * num_ranks
    return tuple(rows_of_block(workload, num_ranks, block) for block in range(num_ranks))


def _computed_blocks(stage: Workload, num_ranks: int, rank: int) -> Blocks:
    own = stage.at(rank)
    return tuple((block, tile_rows(own, num_ranks, block - rank)) for block in range(num_ranks))


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
