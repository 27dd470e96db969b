"""Read execution plans of MSCCL++ from JSON, and resolve numbers of channels and buffers.

Unknown keys are ignored, as in the loader of MSCCL++.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ...codes import Code
from ...text.json_forms import Item
from .document import ALIGNMENT, LOOP, BlockOp, Buffer, Channel, ChannelKind, Chunk, Execution, GpuDocument

MAX_GPUS = 64
MAX_THREADBLOCKS = 64
MAX_CHUNKS = 1 << 12
MAX_OPS = 1 << 14
"""Operations of all GPUs, loops unrolled."""
MAX_GROUP = 64
MAX_UNIT = (1 << 32) - 1
"""Bytes of each run through a loop, which are a 32-bit number in the executor."""
_PROTOCOLS = ("Simple", "LL")
ANY_SIZE = (1 << 64) - 1


def read_execution(document: Item) -> Execution:
    """Read the form of an execution plan; ``read.py`` runs it."""
    gpus = _key(document, "gpus").items(MAX_GPUS, least=1)
    documents = tuple(_GpuReader(item, rank, len(gpus)).gpu() for rank, item in enumerate(gpus))
    total = sum(len(block) for gpu in documents for block in gpu.threadblocks)
    if total > MAX_OPS:
        raise document.fail(f"at most {MAX_OPS} operations are read, got {total}")
    return Execution(
        _key(document, "collective").text(),
        _key(document, "protocol").word(_PROTOCOLS) == "LL",
        _key(document, "inplace").flag(),
        documents,
        _number(document, "min_message_size", 0, ANY_SIZE, 0),
        _number(document, "max_message_size", 0, ANY_SIZE, ANY_SIZE),
    )


class _GpuReader:
    """Reads one GPU."""

    def __init__(self, item: Item, rank: int, num_ranks: int) -> None:
        self._item, self._rank, self._n = item, rank, num_ranks
        if _number(item, "id", 0, MAX_GPUS) != rank:
            raise item.fail(f"its id is not {rank}: GPUs stand in the order of their ranks")
        self._channels: dict[ChannelKind, list[Channel]] = {kind: [] for kind in ChannelKind}
        self._switched: list[Buffer] = []
        for channel in _items(item, "channels", MAX_OPS):
            self._channel(channel)
        self._remote = [
            (self._rank_in(each, "rank"), _buffer(each, "type")) for each in _items(item, "remote_buffers", MAX_OPS)
        ]

    def gpu(self) -> GpuDocument:
        """Return the whole GPU."""
        semaphores = (_number(each, "init_value", 0, MAX_OPS) for each in _items(self._item, "semaphores", MAX_OPS))
        return GpuDocument(
            _number(self._item, "input_chunks", 0, MAX_CHUNKS),
            _number(self._item, "output_chunks", 0, MAX_CHUNKS),
            tuple(semaphores),
            tuple(
                self._threadblock(each, at)
                for at, each in enumerate(_items(self._item, "threadblocks", MAX_THREADBLOCKS))
            ),
        )

    def _rank_in(self, item: Item, key: str) -> int:
        rank = _number(item, key, 0, self._n - 1)
        if rank == self._rank:
            raise item.fail("this is the GPU itself")
        return rank

    def _channel(self, item: Item) -> None:
        kind = _kind(item, "channel_type")
        if kind is ChannelKind.SWITCH:
            for group in _items(item, "rank_groups", MAX_GPUS):
                members = {each.number(0, self._n - 1) for each in _items(group, "ranks", MAX_GPUS)}
                if len(members) != self._n:
                    message = "a switch that joins some of the GPUs is not in the reach of plans"
                    raise group.fail(message, code=Code.MGS526)
                self._channels[kind].append(Channel(kind, self._rank, len(self._switched)))
                self._switched.append(_buffer(item, "buffer_type"))
            return
        for peer in _items(item, "connected_to", MAX_OPS):
            before = sum(channel.peer == peer.value for channel in self._channels[kind])
            rank = peer.number(0, self._n - 1)
            if rank == self._rank:
                raise peer.fail("this is the GPU itself")
            self._channels[kind].append(Channel(kind, rank, before))

    def _threadblock(self, item: Item, at: int) -> tuple[BlockOp, ...]:
        if _number(item, "id", 0, MAX_THREADBLOCKS) != at:
            raise item.fail(f"its id is not {at}: threadblocks stand in the order of their numbers")
        channels: dict[ChannelKind, list[Channel]] = {kind: [] for kind in ChannelKind}
        for used in _items(item, "channels", MAX_OPS):
            kind = _kind(used, "channel_type")
            ids = _items(used, "channel_ids", MAX_OPS)
            channels[kind] += [_pick(each, self._channels[kind], "channel of this GPU") for each in ids]
        remote: dict[ChannelKind, list[tuple[int, Buffer]]] = {kind: [] for kind in ChannelKind}
        for used in _items(item, "remote_buffer_refs", MAX_OPS):
            ids = _items(used, "remote_buffer_ids", MAX_OPS)
            picked = [_pick(each, self._remote, "remote buffer of this GPU") for each in ids]
            remote[_kind(used, "access_channel_type")] += picked
        reader = _OpReader(self._rank, channels, remote, self._switched)
        return tuple(reader.read(each) for each in _items(item, "ops", MAX_OPS))


@dataclass(frozen=True, slots=True)
class _OpReader:
    """Reads the operations of one threadblock."""

    rank: int
    channels: dict[ChannelKind, list[Channel]]
    remote: dict[ChannelKind, list[tuple[int, Buffer]]]
    switched: list[Buffer]

    def read(self, item: Item) -> BlockOp:
        """Read one operation."""
        members = item.members()
        if _key(item, "name").name() == LOOP:
            return self._loop(item)
        kind = _kind(item, "channel_type") if "channel_type" in members else None
        channels: tuple[Channel, ...] = ()
        if kind is not None:
            ids = _items(item, "channel_ids", MAX_GPUS)
            channels = tuple(_pick(each, self.channels[kind], "channel of this threadblock") for each in ids)
        part, group = self._part(members["tbg_info"]) if "tbg_info" in members else (0, 1)
        numbers = tuple(each.number(0, MAX_OPS) for each in _items(item, "semaphore_ids", MAX_GPUS))
        return BlockOp(
            _key(item, "name").name(),
            item,
            tuple(self._chunk(each, kind) for each in _items(item, "src_buff", MAX_GPUS)),
            tuple(self._chunk(each, kind) for each in _items(item, "dst_buff", MAX_GPUS)),
            kind,
            channels,
            (_number(item, "barrier_id", 0, MAX_OPS),) if "barrier_id" in members else numbers,
            _number(item, "num_threadblocks", 0, MAX_THREADBLOCKS, 0),
            part,
            group,
        )

    def _loop(self, item: Item) -> BlockOp:
        context, inner = _key(item, "iter_context"), _items(item, "ops", MAX_OPS)
        for each in inner:
            if _key(each, "name").name() == LOOP:
                raise each.fail("a loop in a loop is not in the reach of plans", "the executor has none", Code.MGS526)
        unit = _number(context, "unit_size", 1, MAX_UNIT)
        if unit % ALIGNMENT:
            message = f"{unit} bytes do not divide into the {ALIGNMENT} that a thread reads at once"
            raise _key(context, "unit_size").fail(message, f"a multiple of {ALIGNMENT}", Code.MGS512)
        count = _number(context, "num_chunks", 0, MAX_CHUNKS)
        return BlockOp(LOOP, item, count=count, inner=tuple(map(self.read, inner)), unit_bytes=unit)

    def _part(self, item: Item) -> tuple[int, int]:
        group = _number(item, "tbg_size", 1, MAX_GROUP)
        return _number(item, "tb_id", 0, group - 1), group

    def _chunk(self, item: Item, kind: ChannelKind | None) -> Chunk:
        members = item.members()
        index, size = _number(item, "index", 0, MAX_CHUNKS), _number(item, "size", 1, MAX_CHUNKS)
        if "switch_channel_id" in members:
            channel = _pick(members["switch_channel_id"], self.channels[ChannelKind.SWITCH], "switch channel")
            return Chunk(self.rank, self.switched[channel.number], index, size, everywhere=True)
        if "buffer_id" in members:
            if kind is None:
                raise item.fail("a remote buffer is reached by a channel, and channel_type is missing")
            return Chunk(*_pick(members["buffer_id"], self.remote[kind], "remote buffer"), index, size)
        return Chunk(self.rank, _buffer(item, "type"), index, size)


_Picked = TypeVar("_Picked", Channel, tuple[int, Buffer])


def _pick(item: Item, known: list[_Picked], kind: str) -> _Picked:
    """Return the entry of ``known`` whose number ``item`` holds."""
    if not known:
        raise item.fail(f"there is no {kind}")
    return known[item.number(0, len(known) - 1)]


def _key(item: Item, key: str) -> Item:
    members = item.members()
    if key not in members:
        raise item.fail(f"'{key}' is missing")
    return members[key]


def _number(item: Item, key: str, low: int, high: int, default: int | None = None) -> int:
    if default is not None and key not in item.members():
        return default
    return _key(item, key).number(low, high)


def _items(item: Item, key: str, most: int) -> tuple[Item, ...]:
    members = item.members()
    return members[key].items(most) if key in members else ()


def _kind(item: Item, key: str) -> ChannelKind:
    return ChannelKind(_key(item, key).word(tuple(kind.value for kind in ChannelKind)))


def _buffer(item: Item, key: str) -> Buffer:
    return Buffer(_key(item, key).word(tuple(buffer.value for buffer in Buffer)))


# Unroll the loops of an execution plan of MSCCL++.
#
# A loop (``pipeline``) repeats its operations; each time those on data do the next ``unit_size`` bytes of their chunks.
# It repeats them until it is through ``num_chunks`` chunks, whatever the sizes of its operations, and the last time may
# be shorter (github.com/microsoft/mscclpp, src/core/include/execution_kernel.hpp, handlePipeline).


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
