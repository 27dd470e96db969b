"""Execution plans of MSCCL++ as data: GPUs, their threadblocks and what each does.

The form is that of the executor's loader (github.com/microsoft/mscclpp, src/core/executor/execution_plan.cc): an
operation names channels and remote buffers by their numbers in its threadblock, which names those of its GPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ...codes import Code
from ...ir import Direction, IndexRange, OpCase, Pattern, Region, Tensor
from ...text.diagnostics import Stopped
from ...text.json_forms import Item

ALIGNMENT = 16
"""Bytes that the executor's kernels read and write at once."""
LOOP = "pipeline"


class Buffer(Enum):
    """The buffers of a GPU; the value is the letter in the file."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class ChannelKind(Enum):
    """The means to reach a peer: threads, copy engines, or a switch that copies and sums."""

    MEMORY = "memory"
    PORT = "port"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Channel:
    """The ``number``-th channel of its kind between a GPU and ``peer``."""

    kind: ChannelKind
    peer: int
    number: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """``size`` chunks from ``index`` on in a buffer of GPU ``rank``; ``everywhere`` means that of all GPUs."""

    rank: int
    buffer: Buffer
    index: int
    size: int
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class BlockOp:
    """One operation of a threadblock, which does part ``part`` of ``group`` equal ones.

    ``numbers`` identify a barrier or semaphores; a barrier waits for ``count`` threadblocks. A loop does ``inner`` on
    ``unit_bytes`` after ``unit_bytes`` of ``count`` chunks. An operation out of a loop does no more of its chunks than
    ``window``: the first byte and the number of bytes. ``written`` is how the source names it, where that is not
    ``name``.
    """

    name: str
    item: Item
    sources: tuple[Chunk, ...] = ()
    targets: tuple[Chunk, ...] = ()
    kind: ChannelKind | None = None
    channels: tuple[Channel, ...] = ()
    numbers: tuple[int, ...] = ()
    count: int = 0
    part: int = 0
    group: int = 1
    inner: tuple["BlockOp", ...] = ()
    unit_bytes: int = 0
    window: tuple[int, int] | None = None
    written: str = ""

    @property
    def word(self) -> str:
        """The operation as its source names it."""
        return self.written or self.name

    def beyond(self, reason: str, hint: str = "") -> Stopped:
        """Report an operation that a plan cannot express."""
        return self.item.fail(f"{self.word} is not in the reach of plans: {reason}", hint, Code.MGS526)


@dataclass(frozen=True, slots=True)
class GpuDocument:
    """One GPU: the chunks of its buffers, the first values of its semaphores, its threadblocks."""

    input_chunks: int
    output_chunks: int
    semaphores: tuple[int, ...]
    threadblocks: tuple[tuple[BlockOp, ...], ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """A whole plan. Sizes of messages are in bytes, both ends included."""

    collective: str
    packets: bool
    in_place: bool
    gpus: tuple[GpuDocument, ...]
    min_bytes: int
    max_bytes: int


MAX_PIECES = 1 << 12
"""Pieces of the moved tensor."""
MAX_MOVED = 1 << 20
"""Pieces read and written by all operations together."""
COLLECTIVES = {
    "allgather": Pattern.ALL_GATHER,
    "allreduce": Pattern.ALL_REDUCE,
    "reducescatter": Pattern.REDUCE_SCATTER,
    "alltoall": Pattern.ALL_TO_ALL,
}
Slot = tuple[int, Buffer, int]
"""A piece of a buffer: rank, buffer, index."""


@dataclass(frozen=True, slots=True)
class BufferSpace:
    """``total`` equal pieces of ``moved``; a chunk of the file is ``scale`` of them."""

    pattern: Pattern
    moved: Tensor
    num_ranks: int
    total: int
    scale: int
    in_place: bool

    @property
    def per_block(self) -> int:
        """Pieces in the row block of a rank."""
        return self.total // self.num_ranks

    def share(self, op: BlockOp, chunk: Chunk) -> tuple[int, int]:
        """Return the first piece of a chunk that ``op`` works on, and how many: as equal a part as pieces allow."""
        first, stop = (chunk.size * self.scale * part // op.group for part in (op.part, op.part + 1))
        start, size = chunk.index * self.scale + first, stop - first
        if op.window is None:
            return start, size
        piece_bytes = self.moved.num_bytes // self.total
        return start + op.window[0] // piece_bytes, op.window[1] // piece_bytes

    def slots(self, op: BlockOp, chunk: Chunk) -> list[Slot]:
        """Return the slots of a chunk that ``op`` works on."""
        start, size = self.share(op, chunk)
        return [self.slot(chunk.rank, chunk.buffer, index) for index in range(start, start + size)]

    def slot(self, rank: int, buffer: Buffer, index: int) -> Slot:
        """Return the slot of a piece; in place, input and output are one buffer."""
        if not self.in_place or buffer is Buffer.SCRATCH:
            return rank, buffer, index
        own = rank * self.per_block
        if self.pattern is Pattern.ALL_GATHER and buffer is Buffer.INPUT:
            return rank, Buffer.OUTPUT, own + index
        if self.pattern is Pattern.REDUCE_SCATTER and buffer is Buffer.OUTPUT:
            return rank, Buffer.INPUT, own + index
        return (rank, buffer, index) if self.pattern is Pattern.REDUCE_SCATTER else (rank, Buffer.OUTPUT, index)

    def begins(self, rank: int) -> list[tuple[Slot, int]]:
        """Return what ``rank`` has at the start: slots and the pieces of the tensor in them."""
        if self.pattern is Pattern.ALL_GATHER:
            own = rank * self.per_block
            return [(self.slot(rank, Buffer.INPUT, index), own + index) for index in range(self.per_block)]
        return [(self.slot(rank, Buffer.INPUT, index), index) for index in range(self.total)]

    def ends(self, rank: int) -> list[tuple[Slot, int, frozenset[int]]]:
        """Return what ``rank`` must have at the end: slots, pieces, and the ranks whose parts are summed."""
        everyone, size, own = frozenset(range(self.num_ranks)), self.per_block, rank * self.per_block
        match self.pattern:
            case Pattern.ALL_GATHER:
                wanted = [(index, index, frozenset([index // size])) for index in range(self.total)]
            case Pattern.ALL_REDUCE:
                wanted = [(index, index, everyone) for index in range(self.total)]
            case Pattern.REDUCE_SCATTER:
                wanted = [(index, own + index, everyone) for index in range(size)]
            case _:
                wanted = [(index, own + index % size, frozenset([index // size])) for index in range(self.total)]
        return [(self.slot(rank, Buffer.OUTPUT, index), piece, parts) for index, piece, parts in wanted]

    def region(self, op: BlockOp, first: int, count: int, rank: int) -> Region:
        """Return the region of ``count`` pieces of one row block from ``first`` on, relative to ``rank``.

        A block is stored row by row, so that pieces are whole rows or lie in one row.
        """
        block, cols = first // self.per_block, self.moved.cols
        elements = self.moved.rows // self.num_ranks * cols // self.per_block
        start, size = first % self.per_block * elements, count * elements
        owner = (block - rank) % self.num_ranks
        if start % cols == 0 and size % cols == 0:
            return Region(owner, IndexRange(start // cols, (start + size) // cols), IndexRange(0, cols))
        row = start // cols
        if (start + size - 1) // cols == row:
            return Region(owner, IndexRange(row, row + 1), IndexRange(start % cols, start % cols + size))
        message = f"{size} elements from {start} of a block on are neither whole rows of {cols} nor part of one"
        raise op.beyond(message, f"as many elements in {self.num_ranks} rows, one for each rank")


def chunks_of(scenario: OpCase, execution: Execution, document: Item) -> int:
    """Return the chunks of the moved tensor; ``execution`` must be a plan for the workload of ``scenario``."""
    shape, n = scenario.shape, scenario.num_ranks
    pattern = COLLECTIVES.get(execution.collective)
    if pattern is None:
        message = f"collective '{execution.collective[:32]}' is not in the reach of plans"
        raise document.fail(message, f"collectives are {', '.join(COLLECTIVES)}", Code.MGS526)
    if pattern is not shape.pattern or shape.uneven or shape.loads:
        message = f"the plan is an {execution.collective}, {shape.name} is {shape.label}"
        raise document.fail(message, "a plan of MSCCL++ is for a collective alone, with equal blocks", Code.MGS524)
    if len(execution.gpus) != n:
        raise document.fail(f"the plan is for {len(execution.gpus)} GPUs, here are {n}", code=Code.MGS524)
    moved = shape.moved_tensor
    if not execution.min_bytes <= moved.num_bytes <= execution.max_bytes:
        limits = f"{execution.min_bytes} to {execution.max_bytes} bytes"
        raise document.fail(f"the plan is for {limits}, here are {moved.num_bytes}", code=Code.MGS524)
    return _chunks(execution, pattern, document)


def space_of(scenario: OpCase, execution: Execution, chunks: int, document: Item) -> BufferSpace:
    """Cut an execution plan without loops into pieces."""
    n, moved = scenario.num_ranks, scenario.shape.moved_tensor
    ops = [op for gpu in execution.gpus for block in gpu.threadblocks for op in block]
    chunk_bytes = moved.num_bytes // chunks
    in_loops = [op for op in ops if op.window is not None]
    cuts = {chunk_bytes // math.gcd(chunk_bytes, *op.window) for op in in_loops if op.window is not None}
    elements, most = moved.rows * moved.cols, max([op.group for op in ops], default=1)
    least = math.lcm(*{op.group for op in in_loops}, *cuts, n // math.gcd(n, chunks))
    scale = math.lcm(*{op.group for op in ops}, least)
    if not _divides(elements, chunks * scale):
        # Threadblocks of a group have parts that differ by a piece, of the smallest that there can be.
        finer = (least << power for power in range(MAX_PIECES.bit_length(), 0, -1))
        scale = next((each for each in finer if each >= most and _divides(elements, chunks * each)), scale)
    if not _divides(elements, chunks * scale):
        parts = f" of {scale} parts" if in_loops else ""
        message = f"{elements} elements do not divide into {chunks} chunks{parts}, at most {MAX_PIECES} together"
        hint = f"threadblocks, loops and ranks cut each into {scale}" if scale > 1 else ""
        raise (in_loops[0].item if in_loops else document).fail(message, hint, Code.MGS512)
    space = BufferSpace(scenario.shape.pattern, moved, n, chunks * scale, scale, execution.in_place)
    touched = sum(space.share(op, chunk)[1] for op in ops for chunk in (*op.sources, *op.targets))
    if touched > MAX_MOVED:
        raise document.fail(f"the operations move {touched} pieces, at most {MAX_MOVED} are followed")
    return space


def _divides(elements: int, pieces: int) -> bool:
    return pieces <= MAX_PIECES and not elements % pieces


def _chunks(execution: Execution, pattern: Pattern, document: Item) -> int:
    """Return the number of chunks of the whole moved tensor, which all GPUs must cut alike."""
    n, gpus = len(execution.gpus), execution.gpus
    by_input = 1 if pattern is not Pattern.ALL_GATHER else n
    by_output = 1 if pattern is not Pattern.REDUCE_SCATTER else n
    counts = {gpu.input_chunks * by_input for gpu in gpus} | {gpu.output_chunks * by_output for gpu in gpus}
    counts -= {0}
    if len(counts) != 1:
        raise document.fail(f"{len(counts)} different numbers of chunks, an {execution.collective} has one")
    (chunks,) = counts
    if pattern is not Pattern.ALL_REDUCE and chunks % n:
        raise document.fail(f"{chunks} chunks do not divide among {n} GPUs", code=Code.MGS512)
    return chunks


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """A piece of the tensor, the ranks whose parts are summed in it, and the bits of the events that wrote it here."""

    piece: int
    parts: frozenset[int]
    made: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """A transfer in ``direction``, or (None) a sum of ``num_parts``; ``peer`` is None where a switch serves all."""

    direction: Direction | None = None
    peer: int | None = None
    reduce: bool = False
    num_parts: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a plan, on ``count`` pieces from ``piece`` on; ``known`` are the bits of all events before it.

    It is of operation ``number`` of threadblock ``block``. ``read`` are the bits of those that made what a get reads.
    """

    rank: int
    block: int
    number: int
    op: BlockOp
    name: str
    piece: int
    count: int
    known: int
    action: Action
    read: int = 0


@dataclass(frozen=True, slots=True)
class RunningOp:
    """Operation ``number`` of a threadblock as it runs; ``known`` are the bits of events that happened before."""

    rank: int
    block: int
    number: int
    op: BlockOp
    known: int


def runs(values: Sequence[SymbolicValue], per_block: int) -> list[tuple[int, int]]:
    """Return (first, count) of runs: consecutive values in one row block, with the same parts.

    Whichever events wrote them: an operation begins when it knows of all.
    """
    ranges: list[tuple[int, int]] = []
    for index, value in enumerate(values):
        before = values[index - 1] if index else None
        joins = before is not None and (before.piece + 1, before.parts) == (value.piece, value.parts)
        if joins and value.piece % per_block:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((index, 1))
    return ranges


def made_by(values: Sequence[SymbolicValue], bits: int) -> list[SymbolicValue]:
    """Return the values as written by the events of ``bits``."""
    return [SymbolicValue(value.piece, value.parts, bits) for value in values]


def all_made(values: Sequence[SymbolicValue]) -> int:
    """Return the bits of all events that wrote any of the values."""
    made = 0
    for value in values:
        made |= value.made
    return made


def where(chunk: Chunk) -> str:
    """Describe a chunk for messages."""
    return f"chunk {chunk.index} of buffer {chunk.buffer.value} of GPU {chunk.rank}"
