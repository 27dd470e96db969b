"""Threadblocks of an execution plan of MSCCL++ under construction: their operations, channels and buffers.

An executor has all threads of a threadblock do an operation on data, and one of them a signal or a wait; ``nop`` is the
barrier of its threads in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ...ir import JsonObject

_T = TypeVar("_T")

MAX_BLOCK_OPS = 64
"""Operations that the executor takes of a threadblock."""


@dataclass(slots=True)
class Threadblock:
    """One threadblock; channels and remote buffers have numbers of its own, in the order of use."""

    kind: str
    ops: list[JsonObject] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    _moves_data: bool = False

    def move(self, name: str, sources: Sequence[JsonObject], targets: Sequence[JsonObject], **more: object) -> None:
        """Add an operation on data."""
        if self.ops and not self._moves_data:
            self.ops.append({"name": "nop"})
        self.ops.append({"name": name, "src_buff": list(sources), "dst_buff": list(targets), **more})
        self._moves_data = True

    def sync(self, name: str, **numbers: object) -> None:
        """Add an operation that sets or awaits a flag."""
        waits_on = bool(self.ops) and name == self.ops[-1]["name"] and name in ("wait", "sem_acquire")
        if self.ops and not waits_on:
            self.ops.append({"name": "nop"})
        self.ops.append({"name": name, **numbers})
        self._moves_data = False

    def on(self, channels: Sequence[int]) -> JsonObject:
        """Return the keys of an operation on these channels of the GPU."""
        return {"channel_ids": [_number(self.channels, each) for each in channels], "channel_type": self.kind}

    def remote(self, buffer: int, index: int, size: int) -> JsonObject:
        """Return chunks of a remote buffer of the GPU."""
        return {"buffer_id": _number(self.buffers, buffer), "index": index, "size": size}

    def document(self, number: int) -> JsonObject:
        """Return the threadblock as JSON."""
        refs = {"access_channel_type": self.kind, "remote_buffer_ids": self.buffers}
        return {
            "id": number,
            "ops": self.ops,
            "channels": [{"channel_type": self.kind, "channel_ids": self.channels}] if self.channels else [],
            "remote_buffer_refs": [refs] if self.buffers else [],
        }


@dataclass(slots=True)
class GpuUnderConstruction:
    """One GPU: ``peers`` has the other end of each channel, ``remote`` (peer, buffer) of each remote buffer."""

    rank: int
    blocks: list[Threadblock]
    peers: list[int] = field(default_factory=list)
    remote: list[tuple[int, str]] = field(default_factory=list)
    semaphores: int = 0
    scratch: int = 0

    def remote_buffer(self, peer: int, buffer: str) -> int:
        """Return the number of a buffer of a peer."""
        return _number(self.remote, (peer, buffer))

    def document(self, kind: str, input_chunks: int, output_chunks: int) -> JsonObject:
        """Return the GPU as JSON."""
        return {
            "id": self.rank,
            "input_chunks": input_chunks,
            "output_chunks": output_chunks,
            "scratch_chunks": self.scratch,
            "threadblocks": [block.document(number) for number, block in enumerate(self.blocks)],
            "channels": [{"channel_type": kind, "connected_to": self.peers}],
            "remote_buffers": [
                {"rank": rank, "type": buffer, "access_channel_types": [kind]} for rank, buffer in self.remote
            ],
            "semaphores": [{"init_value": 0} for _ in range(self.semaphores)],
        }


def here(buffer: str, index: int, size: int) -> JsonObject:
    """Return chunks of a buffer of the GPU itself."""
    return {"type": buffer, "index": index, "size": size}


def _number(known: list[_T], one: _T) -> int:
    if one not in known:
        known.append(one)
    return known.index(one)
