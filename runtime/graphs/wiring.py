"""Which operands a part has, and which results of other parts each of them takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import Graph, GraphOp, GraphPlan, Made, Part, Pattern, Read, Shard, Tensor, Workload
from ..axes import attention_of
from .operands import Sheet, SheetLink

MOVED_IN = (-1, 0)
"""The operand that a collective moves."""
Key = tuple[int, int]
"""An operand of a kernel by the numbers of the kernel and of the operand, or MOVED_IN."""
_BY_ROWS = (Pattern.GEMM_RS, Pattern.GEMM_AR)


@dataclass(frozen=True, slots=True)
class OperandWire:
    """An operand of a part: the tensor that the text names, and the Sheets that it takes."""

    key: Key
    tensor: str
    links: tuple[SheetLink, ...] = ()
    alike: bool = False
    transposed: bool = False


def maker_of(plan: GraphPlan, read: Read) -> Part:
    """The part after which what is read is there."""
    halves = [part for part in plan.parts if part.op == read.made_by]
    collective = next((part for part in halves if part.workload.is_collective), halves[0])
    kernel = next((part for part in halves if not part.workload.is_collective), halves[0])
    if len(halves) == 1:
        return halves[0]
    produces = plan.parts.index(kernel) < plan.parts.index(collective)
    return collective if read.what is Made.MOVED or produces else kernel


def wires_of(
    graph: Graph, plan: GraphPlan, part: Part, sheets: Mapping[tuple[str, Made], Sheet]
) -> tuple[OperandWire, ...]:
    """Return the operands of ``part``; ``sheets`` are what parts before it leave."""
    op = graph.op(part.op)
    shards = {tensor.name: tensor.shard for tensor in graph.tensors}
    found: dict[Key, list[tuple[Read | None, SheetLink | None]]] = {key: [] for key in keys_of(op, part)}
    half, named = _other_half(plan, part), list(found)
    if half is not None:
        brought = MOVED_IN if part.workload.is_collective else _brought(op, part.workload)
        turned = part.workload.by_columns is not half.workload.by_columns
        found[brought].append((None, SheetLink(sheets[half.name, Made.OUTPUT], turned)))
        named = [key for key in found if MOVED_IN in (key, brought) or key != brought]
    for key, read in _placed(op, part, named):
        maker = maker_of(plan, read) if read.made_by else None
        link = None
        if maker is not None:
            whole = read.what if maker.workload.pattern.consumes else Made.OUTPUT
            sheet = sheets[maker.name, whole]
            turned = read.transposed ^ maker.workload.by_columns ^ part.workload.by_columns
            link = SheetLink(sheet, turned, read.part, beside=_beside(maker, part, sheet))
        found[key].append((read, link))
    return tuple(_wire(part, key, reads, shards) for key, reads in found.items())


def _beside(maker: Part, part: Part, sheet: Sheet) -> bool:
    """Whether the blocks that an all_to_all brings lie side by side in the input of a GEMM."""
    gemm = part.workload.gemm
    if gemm is None or part.workload.pattern is not Pattern.GEMM or not maker.workload.pattern.exchanges:
        return False
    count, rows, cols = len(sheet.blocks(0)), sheet.rows.cuts[-1], sheet.cols.cuts[-1]
    return count > 1 and (gemm.m, gemm.k) == (rows, count * cols)


def _wire(
    part: Part, key: Key, reads: Sequence[tuple[Read | None, SheetLink | None]], shards: Mapping[str, Shard]
) -> OperandWire:
    links = tuple(link for _, link in reads if link is not None)
    read = next((read for read, _ in reads if read is not None), None)
    if read is None:
        return OperandWire(key, f"operand {key[1]} of {part.name}", links)
    alike = shards.get(read.tensor) is Shard.NONE
    return OperandWire(key, read.tensor, links, alike, read.transposed ^ part.workload.by_columns)


def part_edges(graph: Graph, op: GraphOp, num_cols: int) -> set[int]:
    """Columns at a rank, of ``num_cols`` that ``op`` makes there, where parts of them begin that others take."""
    reads = (read for each in graph.ops for read in each.reads if read.made_by == op.name)
    return {read.part.first_of(num_cols) for read in reads if read.part is not None}


def keys_of(op: GraphOp, part: Part) -> tuple[Key, ...]:
    """The operands of a part."""
    workload, pattern = part.workload, part.workload.pattern
    if pattern is Pattern.KERNEL:
        return tuple((0, index) for index in range(len(kernel_operands(op, workload))))
    moved = () if workload.moved is None or pattern.produces else (MOVED_IN,)
    return (*moved, *((k, i) for k in range(workload.num_kernels) for i in _numbers(op, workload, workload.stage(k))))


def _numbers(op: GraphOp, workload: Workload, stage: Workload) -> Iterable[int]:
    """The operands of one kernel that no collective brings; attention before one has those that the text names."""
    if attention_of(stage) is None:
        return (1,) if stage.pattern.consumes else (0, 1)
    if stage.pattern.consumes:
        return (0,) if stage.pattern.gathers else ()
    return range(len(kernel_operands(op, workload)) - (workload.then is not None))


def kernel_operands(op: GraphOp, workload: Workload) -> tuple[Tensor, ...]:
    """The operands of a lone kernel as it sees them, one for each that the text names.

    Of a pair in two halves what its collective brings is there too, all rows of it.
    """
    by_name = {tensor.name: tensor for tensor in workload.tensors if tensor.name not in workload.made}
    behind = op.workload.pattern.consumes and workload.pattern is Pattern.KERNEL
    operands = [read for read in op.reads if not read.adds and (behind or not read.moves)]
    if operands and all(read.seen in by_name for read in operands):
        named = ((by_name[read.seen], read.moves) for read in operands)
        return tuple(replace(tensor, shard=Shard.NONE) if moves else tensor for tensor, moves in named)
    return tuple(by_name.values())


def _brought(op: GraphOp, workload: Workload) -> Key:
    """The operand of a kernel that the other half of its pair brings."""
    moved = {read.seen for read in op.reads if read.moves}
    operands = kernel_operands(op, workload) if workload.pattern is Pattern.KERNEL else ()
    return 0, next((number for number, tensor in enumerate(operands) if tensor.name in moved), 0)


def _placed(op: GraphOp, part: Part, keys: Sequence[Key]) -> Iterator[tuple[Key, Read]]:
    """Yield each read of a part with its operand, one of ``keys``, those of kernels in turn."""
    whole = part.workload == op.workload
    operands = (read for read in op.reads if not read.adds)
    reads = [read for read in operands if whole or read.moves == part.workload.is_collective]
    of_kernels = [key for key in keys if key != MOVED_IN]
    if part.workload.by_columns:  # the transpose of a product: the second operand, transposed, comes first
        of_kernels.reverse()
    place = 0
    for read in reads:
        if MOVED_IN in keys and (read.moves or not of_kernels):
            yield MOVED_IN, read
        elif read.by_rows and read.made_by and part.workload.pattern in _BY_ROWS:
            yield (0, 0), read
            place = max(place, 1)
        else:
            yield of_kernels[place % len(of_kernels)], read
            place += 1


def _other_half(plan: GraphPlan, part: Part) -> Part | None:
    """The part of the same op that comes before this one."""
    halves = [each for each in plan.parts if each.op == part.op]
    return halves[0] if len(halves) == 2 and halves[1] is part else None
