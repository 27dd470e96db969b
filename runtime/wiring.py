"""Which operands a part has, which results of other parts each of them takes, and where its memories are cut."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from ..compiler.ir import (
    Adds,
    ColumnPart,
    ElementwiseShape,
    Made,
    Op,
    OpShape,
    Part,
    Pattern,
    Plan,
    Read,
    Shard,
    Step,
    Tensor,
    Workload,
    cutting_of,
    inner_size,
    moved_rows,
    rows_of_block,
    tile_rows,
    without_batch,
)
from .axes import MOVED, Axis, CutAxis, KernelAxes, Layout, attention_of, axis_of
from .memory import Attention
from .operands import ADDED, MOVED_IN, Blocks, Given, Key, Sheet, SheetLink, Slot, cuts_of, in_blocks
from .problem import FROM_FIRST, GATHERS, Problem
from .tasks import PlanTasks

_BY_ROWS = (Pattern.GEMM_RS, Pattern.GEMM_AR)
_ONE = CutAxis((0, 1), (0, 1))


def problems_of(
    workload: Workload, plan: Plan, tasks: PlanTasks, detail: int | None, seed: int, given: Given
) -> dict[str, Problem]:
    """Return the memories of each part, by its name, with the operands that parts before it make.

    Numbers of tensors that are declared are ``given``, by name, or drawn.
    """
    problems: dict[str, Problem] = {}
    sheets: dict[tuple[str, Made], Sheet] = {}
    for part in plan.parts:
        wires = wires_of(workload, plan, part, sheets)
        if part.shape.pattern is Pattern.KERNEL:
            layout, slots = _of_kernel(workload, part, tasks.num_ranks, wires, detail, seed)
        else:
            layout, slots = _of_steps(part, tasks, wires, detail, seed)
        for slot in slots.values():
            slot.given = given
        problem = Problem(part, layout, slots, tasks.all, tasks.num_ranks, seed)
        problems[part.name] = problem
        sheets |= {(part.name, what): sheet for what, sheet in problem.sheets()}
    return problems


@dataclass(frozen=True, slots=True)
class OperandWire:
    """An operand of a part: the tensor that the text names, and the Sheets that it takes.

    ``alike``: all ranks have the same numbers. What a collective moves never is, so that it shows whose numbers came.
    """

    key: Key
    tensor: str
    links: tuple[SheetLink, ...] = ()
    alike: bool = False
    transposed: bool = False
    part: ColumnPart | None = None


def maker_of(plan: Plan, read: Read) -> Part:
    """The part after which what is read is there."""
    halves = [part for part in plan.parts if part.op == read.made_by]
    collective = next((part for part in halves if part.shape.is_collective), halves[0])
    kernel = next((part for part in halves if not part.shape.is_collective), halves[0])
    if len(halves) == 1:
        return halves[0]
    produces = plan.parts.index(kernel) < plan.parts.index(collective)
    return collective if read.what is Made.MOVED or produces else kernel


def wires_of(
    workload: Workload, plan: Plan, part: Part, sheets: Mapping[tuple[str, Made], Sheet]
) -> tuple[OperandWire, ...]:
    """Return the operands of ``part``; ``sheets`` are what parts before it leave."""
    op = workload.op(part.op)
    shards = {tensor.name: tensor.shard for tensor in workload.tensors}
    found: dict[Key, list[tuple[Read | None, SheetLink | None]]] = {key: [] for key in keys_of(op, part)}
    half, named = _other_half(plan, part), list(found)
    if half is not None:
        delivered = MOVED_IN if part.shape.is_collective else _delivered(op, part.shape)
        turned = part.shape.by_columns is not half.shape.by_columns
        found[delivered].append((None, SheetLink(sheets[half.name, Made.OUTPUT], turned)))
        named = [key for key in found if MOVED_IN in (key, delivered) or key != delivered]
    added = [] if part.shape.is_collective else [(ADDED, read) for read in op.added]
    found |= {key: [] for key, _ in added}
    for key, read in (*_placed(op, part, named), *added):
        maker = maker_of(plan, read) if read.made_by else None
        link = None
        if maker is not None:
            sheet = sheets[maker.name, read.what if maker.shape.pattern.consumes else Made.OUTPUT]
            turned = read.transposed ^ maker.shape.by_columns ^ part.shape.by_columns
            link = SheetLink(sheet, turned, read.part, side_by_side=_are_side_by_side(maker, part, sheet))
        found[key].append((read, link))
    return tuple(_wire(part, key, reads, shards) for key, reads in found.items())


def _are_side_by_side(maker: Part, part: Part, sheet: Sheet) -> bool:
    """Whether the blocks that an all_to_all brings lie side by side in the input of a GEMM."""
    gemm = part.shape.gemm
    if gemm is None or part.shape.pattern is not Pattern.GEMM or not maker.shape.pattern.exchanges:
        return False
    count, rows, cols = len(sheet.blocks(0)), sheet.rows.cuts[-1], sheet.cols.cuts[-1]
    return count > 1 and (gemm.m, gemm.k) == (rows, count * cols)


def _wire(
    part: Part, key: Key, reads: Sequence[tuple[Read | None, SheetLink | None]], shards: Mapping[str, Shard]
) -> OperandWire:
    links = tuple(link for _, link in reads if link is not None)
    read = next((read for read, _ in reads if read is not None), None)
    if read is None:
        moved = part.shape.moved
        name = moved.name if key == MOVED_IN and moved is not None else f"operand {key[1]} of {part.name}"
        return OperandWire(key, name, links)
    alike = shards.get(read.tensor) is Shard.NONE and key != MOVED_IN
    return OperandWire(key, read.tensor, links, alike, read.transposed ^ part.shape.by_columns, read.part)


def part_edges(workload: Workload, op: Op, num_cols: int) -> set[int]:
    """Columns at a rank, of ``num_cols`` that ``op`` makes there, where parts of them begin that others take."""
    reads = (read for each in workload.ops for read in each.reads if read.made_by == op.name)
    return {read.part.first_of(num_cols) for read in reads if read.part is not None}


def keys_of(op: Op, part: Part) -> tuple[Key, ...]:
    """The operands of a part."""
    workload, pattern = part.shape, part.shape.pattern
    if pattern is Pattern.KERNEL:
        return tuple((0, index) for index in range(len(kernel_operands(op, workload))))
    moved = () if workload.moved is None or pattern.produces else (MOVED_IN,)
    return (*moved, *((k, i) for k in range(workload.num_kernels) for i in _numbers(op, workload, workload.stage(k))))


def _numbers(op: Op, shape: OpShape, stage: OpShape) -> Iterable[int]:
    """The operands of one kernel that no collective brings; attention before one has those that the text names."""
    if attention_of(stage) is None:
        return (1,) if stage.pattern.consumes else (0, 1)
    if stage.pattern.consumes:
        return (0,) if stage.pattern.gathers else ()
    return range(len(kernel_operands(op, shape)) - (shape.then is not None))


def kernel_operands(op: Op, shape: OpShape) -> tuple[Tensor, ...]:
    """The operands of a lone kernel as it sees them, one for each that the text names.

    Of a pair in two halves what its collective brings is there too, all rows of it.
    """
    by_name = {tensor.name: tensor for tensor in shape.tensors if tensor.name not in shape.made}
    behind = op.shape.pattern.consumes and shape.pattern is Pattern.KERNEL
    operands = [read for read in op.reads if not read.adds and (behind or not read.moves)]
    seen = [read.seen for read in operands]
    if not all(name in by_name for name in seen):  # shapes name tensors without their batch and group
        seen = [replace(read, tensor=without_batch(read.tensor)).seen for read in operands]
    if operands and all(name in by_name for name in seen):
        named = ((by_name[name], read.moves) for name, read in zip(seen, operands, strict=True))
        return tuple(replace(tensor, shard=Shard.NONE) if moves else tensor for tensor, moves in named)
    return tuple(by_name.values())


def _delivered(op: Op, shape: OpShape) -> Key:
    """The operand of a kernel that the other half of its pair brings."""
    moved = {read.seen for read in op.reads if read.moves}
    operands = kernel_operands(op, shape) if shape.pattern is Pattern.KERNEL else ()
    return 0, next((number for number, tensor in enumerate(operands) if tensor.name in moved), 0)


def _placed(op: Op, part: Part, keys: Sequence[Key]) -> Iterator[tuple[Key, Read]]:
    """Yield each read of a part with its operand, one of ``keys``, those of kernels in turn."""
    whole = part.shape == op.shape
    operands = (read for read in op.reads if not read.adds)
    reads = [read for read in operands if whole or read.moves == part.shape.is_collective]
    of_kernels = [key for key in keys if key != MOVED_IN]
    if part.shape.by_columns:  # the transpose of a product: the second operand, transposed, comes first
        of_kernels.reverse()
    place = 0
    for read in reads:
        if MOVED_IN in keys and (read.moves or not of_kernels):
            yield MOVED_IN, read
        elif read.by_rows and read.made_by and part.shape.pattern in _BY_ROWS:
            yield (0, 0), read
            place = max(place, 1)
        else:
            yield of_kernels[place % len(of_kernels)], read
            place += 1


def _other_half(plan: Plan, part: Part) -> Part | None:
    """The part of the same op that comes before this one."""
    halves = [each for each in plan.parts if each.op == part.op]
    return halves[0] if len(halves) == 2 and halves[1] is part else None


# Where memories are cut.


def _of_steps(
    part: Part, tasks: PlanTasks, wires: Sequence[OperandWire], detail: int | None, seed: int
) -> tuple[Layout, dict[Key, Slot]]:
    """The axes of a part that its steps and what it takes cut, and its operands."""
    workload, num_ranks, more = part.shape, tasks.num_ranks, dict[Axis, set[int]]()
    for wire in wires:
        for axis, cuts in _cuts(workload, num_ranks, wire):
            more.setdefault(axis, set()).update(cuts)
    steps: list[list[Step]] = [[] for _ in range(num_ranks)]
    for task in tasks.of_part[part.name]:
        steps[task.rank].append(task.step)
    layout = Layout.of(workload, steps, detail, more)
    return layout, {wire.key: _slot(workload, num_ranks, layout, wire, wires, seed) for wire in wires}


def _cuts(shape: OpShape, num_ranks: int, wire: OperandWire) -> Iterator[tuple[Axis, set[int]]]:
    """Yield each axis of an operand with its cuts: those of the results that the operand consists of."""
    rows, cols = cuts_of(wire.links)
    if _is_of_all(shape, wire.key):
        yield (MOVED, "rows"), in_blocks(rows, _heights(shape, num_ranks))
        yield (MOVED, "cols"), cols
        return
    if wire.key == ADDED:
        yield axis_of(shape, 0, "rows"), rows
        yield axis_of(shape, 0, "cols"), cols
        return
    kernel, operand = wire.key
    stage = shape.stage(kernel)
    attention, in_turn = attention_of(stage), axis_of(stage, kernel, "rows")
    if operand == 0:
        yield in_turn, in_blocks(rows, _heights(stage, num_ranks)) if in_turn[0] == MOVED else rows
    elif attention is None:
        yield axis_of(stage, kernel, "inner"), in_blocks(rows, (inner_size(stage),))
    else:
        yield axis_of(stage, kernel, "inner"), rows
    if attention is not None:
        yield axis_of(stage, kernel, "cols"), {cut % attention.head_dim for cut in cols}
    else:
        yield axis_of(stage, kernel, "cols" if operand else "inner"), cols


def _slot(shape: OpShape, n: int, layout: Layout, wire: OperandWire, wires: Sequence[OperandWire], seed: int) -> Slot:
    slot = partial(
        Slot, wire.tensor, wire.links, seed=seed, alike=wire.alike, transposed=wire.transposed, part=wire.part
    )
    if _is_of_all(shape, wire.key):
        return slot(n, cache(partial(_moved_blocks, shape, n)), layout.rows, layout.cols)
    if wire.key == ADDED:
        axes = layout.kernels[0]
        return slot(1, partial(_one_block, axes.rows.cuts[-1]), axes.rows, axes.cols)
    kernel, operand = wire.key
    axes, stage = layout.kernels[kernel], shape.stage(kernel)
    computed = cache(partial(_computed_blocks, stage, n))
    if attention_of(stage) is not None:
        count = sum(each.key[0] == kernel for each in wires)
        num_blocks, rows, cols = Attention(stage, layout, axes, n, count).operand_axes(operand)
        one = partial(_one_block, rows.cuts[-1])
        return slot(num_blocks, computed if num_blocks > 1 else one, rows, cols)
    if operand == 1:
        count = n if cutting_of(stage).adds is Adds.BLOCKS else 1
        blocks = tuple((block, axes.inner.cuts[-1]) for block in range(count))
        return slot(count, lambda rank: blocks, axes.inner, axes.cols)
    if shape.pattern.produces:
        return slot(n, computed, axes.rows, axes.inner)
    return slot(1, partial(_one_block, axes.rows.cuts[-1]), axes.rows, axes.inner)


def _is_of_all(shape: OpShape, key: Key) -> bool:
    """Whether an operand has a block for each rank: what moves, or what a kernel adds to before it moves."""
    return key == MOVED_IN or (key == ADDED and shape.pattern.produces)


def _moved_blocks(shape: OpShape, num_ranks: int, rank: int) -> Blocks:
    """The blocks that a rank has before anything moves."""
    pattern = shape.pattern
    if pattern.exchanges:
        own = shape.at(rank)
        return tuple((block, moved_rows(own, num_ranks, block - rank)) for block in range(num_ranks))
    heights = _heights(shape, num_ranks)
    if pattern in GATHERS:
        return ((rank, heights[rank]),)
    return tuple(enumerate(heights)) if pattern not in FROM_FIRST or rank == 0 else ()


def _heights(shape: OpShape, num_ranks: int) -> tuple[int, ...]:
    """Rows of the block of each rank, one below the other in what moves; of an exchange those of the own one."""
    if shape.pattern.exchanges:
        return (moved_rows(shape, num_ranks),) * num_ranks
    return tuple(rows_of_block(shape, num_ranks, block) for block in range(num_ranks))


def _computed_blocks(stage: OpShape, num_ranks: int, rank: int) -> Blocks:
    own = stage.at(rank)
    return tuple((block, tile_rows(own, num_ranks, block - rank)) for block in range(num_ranks))


def _of_kernel(
    graph: Workload, part: Part, num_ranks: int, wires: Sequence[OperandWire], detail: int | None, seed: int
) -> tuple[Layout, dict[Key, Slot]]:
    """A lone kernel that is no GEMM: its operands and its output are tensors of the text, and it is one tile."""
    workload, op = part.shape, graph.op(part.op)
    operands = kernel_operands(op, workload)
    output = next((tensor for tensor in workload.tensors if tensor.name == workload.output), operands[0])
    sizes, (rows, cols) = [tensor.shape_at(num_ranks) for tensor in operands], output.shape_at(num_ranks)
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
        slots[wire.key] = Slot(
            wire.tensor, wire.links, 1, blocks, own, columns, seed, wire.alike, wire.transposed, wire.part
        )
    axes = KernelAxes(shared, CutAxis.of({0, cols} | part_edges(graph, op, cols), detail), _ONE)
    return Layout(_ONE, _ONE, (axes,)), slots


def _one_block(rows: int, rank: int) -> Blocks:
    return ((0, rows),)


def _below(cuts: Iterable[int], end: int) -> set[int]:
    return {cut for cut in cuts if cut < end}
