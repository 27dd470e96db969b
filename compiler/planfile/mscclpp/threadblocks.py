"""Threadblocks of an execution plan of MSCCL++ under construction: their operations, channels and buffers.

An executor has all threads of a threadblock do an operation on data, and one of them a signal or a wait; ``nop`` is the
barrier of its threads in between.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ...ir import JsonObject, Reduction, Region, Step, Transfer
from .lone_collective import Key, LoneCollective

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
    switches: list[int] = field(default_factory=list)
    _moves_data: bool = False

    def rest(self) -> None:
        """Have all threads wait for each other."""
        if self.ops and self.ops[-1]["name"] != "nop":
            self.ops.append({"name": "nop"})
        self._moves_data = True

    def move(self, name: str, sources: Sequence[JsonObject], targets: Sequence[JsonObject], **more: object) -> None:
        """Add an operation on data."""
        if not self._moves_data:
            self.rest()
        self.ops.append({"name": name, "src_buff": list(sources), "dst_buff": list(targets), **more})
        self._moves_data = True

    def sync(self, name: str, **numbers: object) -> None:
        """Add an operation that sets or awaits a flag."""
        waits_on = bool(self.ops) and name == self.ops[-1]["name"] and name in ("wait", "sem_acquire")
        if not waits_on:
            self.rest()
        self.ops.append({"name": name, **numbers})
        self._moves_data = False

    def on(self, channels: Sequence[int]) -> JsonObject:
        """Return the keys of an operation on these channels of the GPU."""
        return {"channel_ids": [_number(self.channels, each) for each in channels], "channel_type": self.kind}

    def remote(self, buffer: int, index: int, size: int) -> JsonObject:
        """Return chunks of a remote buffer of the GPU."""
        return {"buffer_id": _number(self.buffers, buffer), "index": index, "size": size}

    def at_all(self, switch: int, index: int, size: int) -> JsonObject:
        """Return chunks that all GPUs have, reached by a switch channel of the GPU."""
        return {"switch_channel_id": _number(self.switches, switch), "index": index, "size": size}

    def document(self, number: int) -> JsonObject:
        """Return the threadblock as JSON."""
        refs = {"access_channel_type": self.kind, "remote_buffer_ids": self.buffers}
        used = ((self.kind, self.channels), ("switch", self.switches))
        return {
            "id": number,
            "ops": self.ops,
            "channels": [{"channel_type": kind, "channel_ids": numbers} for kind, numbers in used if numbers],
            "remote_buffer_refs": [refs] if self.buffers else [],
        }


@dataclass(slots=True)
class GpuUnderConstruction:
    """One GPU: ``peers`` has the other end of each channel, ``remote`` (peer, buffer) of each remote buffer.

    ``switched`` has the buffer of each switch channel.
    """

    rank: int
    blocks: list[Threadblock]
    peers: list[int] = field(default_factory=list)
    remote: list[tuple[int, str]] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    semaphores: int = 0
    scratch: int = 0

    def remote_buffer(self, peer: int, buffer: str) -> int:
        """Return the number of a buffer of a peer."""
        return _number(self.remote, (peer, buffer))

    def document(self, kind: str, input_chunks: int, output_chunks: int) -> JsonObject:
        """Return the GPU as JSON."""
        ranks = sorted({self.rank, *self.peers})
        groups = [{"size": len(ranks), "ranks": ranks}]
        switches = [{"channel_type": "switch", "buffer_type": each, "rank_groups": groups} for each in self.switched]
        return {
            "id": self.rank,
            "input_chunks": input_chunks,
            "output_chunks": output_chunks,
            "scratch_chunks": self.scratch,
            "threadblocks": [
                block.document(number) for number, block in enumerate(each for each in self.blocks if each.ops)
            ],
            "channels": [{"channel_type": kind, "connected_to": self.peers}, *switches],
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


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Who waits for whom, which is known once all is written.

    ``listeners`` are the threadblocks that wait for the signals of a channel, by (rank, peer, number): the first whose
    transfer needs one, so that it waits for no other threadblock, else the one that serves the channel. ``requested``
    are the threadblocks that wait for a part of a step: they are told before what the threadblock does next.
    """

    listeners: dict[tuple[int, int, int], int] = field(default_factory=dict)
    requested: dict[tuple[Key, int], list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class WaitsSoFar:
    """Who waits for what so far.

    ``peers`` are relative; ``width`` channels lead to each, served by as many threadblocks.
    ``sent`` counts the signals of a channel and ``awaited`` those that were waited for, by (rank, peer, number).
    ``arrived`` has the channels that bring a transfer, with the count of their signals until then; ``done`` the
    threadblocks that do a step of a rank, with the count of their operations until then. ``reported`` has, for two
    threadblocks of a rank, up to which operation of the first the second knows. ``shared`` has the regions of sums
    that several threadblocks share. ``foreseen`` is what a first writing has ``found``; ``early`` has the semaphores
    that were released for it, by (rank, threadblock, count of its operations, threadblock that acquires it). Packets
    need no signals: ``packets`` has the operations that take them out of scratch memory, by channel as ``sent``.
    """

    collective: LoneCollective
    peers: list[int]
    width: int
    gpus: list[GpuUnderConstruction]
    sent: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    awaited: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    arrived: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    done: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    reported: dict[tuple[int, int, int], int] = field(default_factory=dict)
    shared: dict[Key, Region] = field(default_factory=dict)
    foreseen: Foreseen = field(default_factory=Foreseen)
    found: Foreseen = field(default_factory=Foreseen)
    early: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    packets: dict[tuple[int, int, int], list[JsonObject]] = field(default_factory=lambda: defaultdict(list))

    def channel(self, peer: int, number: int) -> int:
        """Return the channel with that number to a relative peer."""
        return self.peers.index(peer) * self.width + number

    def block_of(self, channel: int) -> int:
        """Return the threadblock that serves a channel."""
        return channel % len(self.gpus[0].blocks)

    def channels_of(self, block: int) -> list[int]:
        """Return the channels that a threadblock serves."""
        return [channel for channel in range(len(self.peers) * self.width) if self.block_of(channel) == block]

    def greet(self, gpu: GpuUnderConstruction) -> None:
        """Have a GPU tell its peers that its buffers are there, and wait until theirs are; listeners begin then."""
        for number, block in enumerate(gpu.blocks):
            for name in ("signal", "wait"):
                block.sync(name, **block.on(self.channels_of(number)))
        for (rank, peer, number), listener in self.foreseen.listeners.items():
            if rank == gpu.rank:
                self._tell(rank, self.block_of(self.channel(peer, number)), listener, 0)

    def signal(self, key: Key, peer: int, number: int, unpacked: JsonObject | None = None) -> None:
        """Have the threadblock of a channel signal what it has put, for the transfer ``key``, unless it is packets."""
        rank, channel = key[0], self.channel(peer, number)
        block_number = self.block_of(channel)
        block = self.gpus[rank].blocks[block_number]
        if unpacked is None:
            block.sync("signal", **block.on([channel]))
        else:
            self.packets[rank, peer, number].append(unpacked)
        self.sent[rank, peer, number] += 1
        self.arrived[key].append((number, self.sent[rank, peer, number]))
        self.finish(key, block_number)

    def finish(self, key: Key, block: int) -> None:
        """Note that a threadblock has done a step, or its part of it."""
        gpu, done = self.gpus[key[0]], self.done[key]
        until = len(gpu.blocks[block].ops)
        done.append((block, until))
        for other in self.foreseen.requested.get((key, len(done) - 1), ()):
            self.early[gpu.rank, block, until, other] = self._release(gpu, block)

    def before(self, rank: int, step: Step, block: int, part: int | None = None) -> None:
        """Have a threadblock wait until all that ``step`` comes after is done, or has arrived.

        A ``part`` of what has arrived, or was summed, in as many parts waits for its own one.
        """
        assert isinstance(step, Transfer | Reduction), "a collective alone has no other steps"
        for name in step.after:
            done = list(enumerate(self.done.get((rank, name), ())))
            if part is not None and self.shared.get((rank, name)) == step.region:
                done = done[part : part + 1]
            for place, (other, until) in done:
                if other == block:
                    self.gpus[rank].blocks[block].rest()
                if self._tell(rank, other, block, until):
                    self.found.requested.setdefault(((rank, name), place), []).append(block)
            for arrival in self.collective.arrived.get((rank, name), ()):
                peer = (arrival.issuer - rank) % len(self.gpus)
                arrived = self.arrived[arrival.issuer, arrival.transfer.name]
                if part is not None and arrival.region == step.region:
                    arrived = arrived[part : part + 1]
                for number, count in arrived:
                    served = self.block_of(self.channel(peer, number))
                    needs = block if isinstance(step, Transfer) else served
                    other, until = self._await(rank, peer, number, count, needs)
                    self._tell(rank, other, block, until)

    def drain(self, gpu: GpuUnderConstruction) -> None:
        """Have a GPU wait for all signals that are left, so that a next launch finds none."""
        for channel, peer in enumerate(gpu.peers):
            relative, number = (peer - gpu.rank) % len(self.gpus), channel % self.width
            count = self.sent[peer, -relative % len(self.gpus), number]
            self._await(gpu.rank, relative, number, count, self.block_of(channel))

    def _await(self, rank: int, peer: int, number: int, count: int, needs: int) -> tuple[int, int]:
        """Have the first ``count`` signals of a channel awaited, which threadblock ``needs`` needs.

        Return the threadblock that waits, and its operations until then.
        """
        channel = self.channel(peer, number)
        block_number = self.found.listeners.setdefault((rank, peer, number), needs)
        block = self.gpus[rank].blocks[block_number]
        while self.awaited[rank, peer, number] < count:
            packets = self.packets[(rank + peer) % len(self.gpus), -peer % len(self.gpus), number]
            if packets:
                block.move(**packets[self.awaited[rank, peer, number]])
                block.rest()
            else:
                block.sync("wait", **block.on([channel]))
            self.awaited[rank, peer, number] += 1
        return block_number, len(block.ops)

    def _tell(self, rank: int, one: int, other: int, until: int) -> bool:
        """Let threadblock ``other`` wait until ``one`` has done its first ``until`` operations; say if it had to."""
        gpu, key = self.gpus[rank], (rank, one, other)
        number = self.early.pop((rank, one, until, other), None)
        if number is None:
            if one == other or self.reported.get(key, -1) >= until:
                return False
            number, until = self._release(gpu, one), len(gpu.blocks[one].ops)
        gpu.blocks[other].sync("sem_acquire", semaphore_ids=[number])
        self.reported[key] = max(until, self.reported.get(key, -1))
        return True

    def _release(self, gpu: GpuUnderConstruction, block: int) -> int:
        """Have a threadblock release a new semaphore; return its number."""
        gpu.semaphores += 1
        gpu.blocks[block].sync("sem_release", semaphore_ids=[gpu.semaphores - 1])
        return gpu.semaphores - 1
