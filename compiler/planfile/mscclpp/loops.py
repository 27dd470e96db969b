"""Unroll the loops of an execution plan of MSCCL++.

A loop (``pipeline``) repeats its operations; each time those on data do the next ``unit_size`` bytes of their chunks.
It repeats them until it is through ``num_chunks`` chunks, whatever the sizes of its operations, and the last time may
be shorter (github.com/microsoft/mscclpp, src/core/include/execution_kernel.hpp, handlePipeline).
"""

from collections.abc import Iterator
from dataclasses import replace

from ...codes import Code
from ...text.json_forms import Item
from .document import BlockOp, Execution
from .parse import MAX_OPS


def unrolled(execution: Execution, chunk_bytes: int, document: Item) -> Execution:
    """Return ``execution`` with the operations of its loops one after the other, for chunks of ``chunk_bytes``.

    Raises
    ------
    Stopped
        If these are more than ``MAX_OPS``, or if an operation has less data than its loop goes through.
    """
    gpus = execution.gpus
    total = sum(_repeats(op, chunk_bytes) * len(op.inner) for gpu in gpus for block in gpu.threadblocks for op in block)
    if total > MAX_OPS:
        raise document.fail(f"the loops make {total} operations, at most {MAX_OPS} are read")
    return replace(
        execution,
        gpus=tuple(
            replace(gpu, threadblocks=tuple(tuple(_unrolled(block, chunk_bytes)) for block in gpu.threadblocks))
            for gpu in gpus
        ),
    )


def _repeats(loop: BlockOp, chunk_bytes: int) -> int:
    """How often a loop repeats its operations; what is no loop does not."""
    return -(-loop.count * chunk_bytes // loop.unit_bytes) if loop.unit_bytes else 0


def _unrolled(block: tuple[BlockOp, ...], chunk_bytes: int) -> Iterator[BlockOp]:
    for op in block:
        if not op.unit_bytes:
            yield op
        for index in range(_repeats(op, chunk_bytes)):
            yield from (_part(each, index * op.unit_bytes, op.unit_bytes, chunk_bytes) for each in op.inner)


def _part(op: BlockOp, start: int, unit_bytes: int, chunk_bytes: int) -> BlockOp:
    """Return what is done of ``op`` from byte ``start`` of its chunks on, at most ``unit_bytes``."""
    sizes = {chunk.size * chunk_bytes // op.group for chunk in (*op.sources, *op.targets)}
    if not sizes:
        return op
    if op.name.endswith("pkt"):
        raise op.beyond("a loop repeats the whole of an operation on packets, and not the next part of it")
    size = min(sizes)
    if size <= start:
        message = f"{op.name} has {size} bytes, and its loop comes to byte {start}"
        raise op.item.fail(message, "iter_context.num_chunks chunks of each operation", Code.MGS512)
    return replace(op, window=(start, min(unit_bytes, size - start)))
