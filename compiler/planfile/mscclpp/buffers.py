"""Chunks of an execution plan of MSCCL++ as pieces of the moved tensor: initial and final owners.

All buffers are counted in pieces. A piece is a chunk, or a part of one where threadblocks share it or where it would
lie in the row blocks of two ranks.
"""

import math
from dataclasses import dataclass

from ...codes import Code
from ...ir import IndexRange, Pattern, Region, Scenario, Tensor
from ...text.json_items import Item
from .document import Buffer, Chunk, Execution, Op

MAX_PIECES = 1 << 12
"""Pieces of the moved tensor."""
MAX_MOVED = 1 << 20
"""Pieces read and written by all operations together."""
_COLLECTIVES = {
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

    def slots(self, op: Op, chunk: Chunk) -> list[Slot]:
        """Return the slots of a chunk that ``op`` works on."""
        size = chunk.size * self.scale // op.group
        start = chunk.index * self.scale + op.part * size
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

    def region(self, op: Op, first: int, count: int, rank: int) -> Region:
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
        raise op.beyond(message)


def space_of(scenario: Scenario, execution: Execution, document: Item) -> BufferSpace:
    """Cut ``execution``, which must be a plan for the workload of ``scenario``, into pieces."""
    workload, n = scenario.workload, scenario.num_ranks
    pattern = _COLLECTIVES.get(execution.collective)
    if pattern is None:
        message = f"collective '{execution.collective[:32]}' is not in the reach of plans"
        raise document.fail(message, f"collectives are {', '.join(_COLLECTIVES)}", Code.MGS526)
    if pattern is not workload.pattern or workload.uneven or workload.loads:
        message = f"the plan is an {execution.collective}, {workload.name} is {workload.label}"
        raise document.fail(message, "a plan of MSCCL++ is for a collective alone, with equal blocks", Code.MGS524)
    if len(execution.gpus) != n:
        raise document.fail(f"the plan is for {len(execution.gpus)} GPUs, here are {n}", code=Code.MGS524)
    moved = workload.moved
    assert moved is not None, "these patterns move a tensor"
    if not execution.min_bytes <= moved.num_bytes <= execution.max_bytes:
        limits = f"{execution.min_bytes} to {execution.max_bytes} bytes"
        raise document.fail(f"the plan is for {limits}, here are {moved.num_bytes}", code=Code.MGS524)
    chunks = _chunks(execution, pattern, document)
    groups = {op.group for gpu in execution.gpus for block in gpu.threadblocks for op in block}
    scale = math.lcm(*groups, n // math.gcd(n, chunks))
    elements = moved.rows * moved.cols
    if chunks * scale > MAX_PIECES or elements % (chunks * scale):
        message = f"{elements} elements do not divide into {chunks} chunks"
        hint = f"threadblocks and ranks cut each into {scale}" if scale > 1 else ""
        raise document.fail(message, hint, Code.MGS512)
    ops = [op for gpu in execution.gpus for block in gpu.threadblocks for op in block]
    touched = sum(chunk.size * scale // op.group for op in ops for chunk in (*op.sources, *op.targets))
    if touched > MAX_MOVED:
        raise document.fail(f"the operations move {touched} pieces, at most {MAX_MOVED} are followed")
    return BufferSpace(pattern, moved, n, chunks * scale, scale, execution.in_place)


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
