"""Waits between the threadblocks of an execution plan of MSCCL++: signals from peers, and semaphores inside a GPU."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ...ir import Step
from .lone_collective import Key, LoneCollective
from .threadblocks import GpuUnderConstruction


@dataclass(slots=True)
class WaitsSoFar:
    """Who waits for what so far.

    ``peers`` are relative; ``width`` channels lead to each, served by as many threadblocks.
    ``sent`` counts the signals of a channel and ``awaited`` those that were waited for, by (rank, peer, number).
    ``arrived`` has the channels that bring a transfer, with the count of their signals until then; ``done`` the
    threadblocks that do a step of a rank, with the count of their operations until then. ``told`` has, for two
    threadblocks of a rank, up to which operation of the first the second knows.
    """

    collective: LoneCollective
    peers: list[int]
    width: int
    gpus: list[GpuUnderConstruction]
    sent: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    awaited: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    arrived: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    done: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    told: dict[tuple[int, int, int], int] = field(default_factory=dict)

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
        """Have a GPU tell its peers that its buffers are there, and wait until theirs are."""
        for number, block in enumerate(gpu.blocks):
            for name in ("signal", "wait"):
                block.sync(name, **block.on(self.channels_of(number)))

    def signal(self, key: Key, peer: int, number: int) -> None:
        """Have the threadblock of a channel signal what it has put, for the transfer ``key``."""
        rank, channel = key[0], self.channel(peer, number)
        block_number = self.block_of(channel)
        block = self.gpus[rank].blocks[block_number]
        block.sync("signal", **block.on([channel]))
        self.sent[rank, peer, number] += 1
        self.arrived[key].append((number, self.sent[rank, peer, number]))
        self.finish(key, block_number)

    def finish(self, key: Key, block: int) -> None:
        """Note that a threadblock has done a step, or its part of it."""
        self.done[key].append((block, len(self.gpus[key[0]].blocks[block].ops)))

    def before(self, rank: int, step: Step, block: int) -> None:
        """Have a threadblock wait until all that ``step`` comes after is done, or has landed."""
        for name in step.after:
            for other, until in self.done.get((rank, name), ()):
                self._tell(rank, other, block, until)
            for arrival in self.collective.landed.get((rank, name), ()):
                peer = (arrival.issuer - rank) % len(self.gpus)
                for number, count in self.arrived[arrival.issuer, arrival.transfer.name]:
                    other, until = self._await(rank, peer, number, count)
                    self._tell(rank, other, block, until)

    def drain(self, gpu: GpuUnderConstruction) -> None:
        """Have a GPU wait for all signals that are left, so that a next launch finds none."""
        for channel, peer in enumerate(gpu.peers):
            relative, number = (peer - gpu.rank) % len(self.gpus), channel % self.width
            self._await(gpu.rank, relative, number, self.sent[peer, -relative % len(self.gpus), number])

    def _await(self, rank: int, peer: int, number: int, count: int) -> tuple[int, int]:
        """Wait for the first ``count`` signals of a channel; return the threadblock, and its operations until then."""
        channel = self.channel(peer, number)
        block_number = self.block_of(channel)
        block = self.gpus[rank].blocks[block_number]
        while self.awaited[rank, peer, number] < count:
            self.awaited[rank, peer, number] += 1
            block.sync("wait", **block.on([channel]))
        return block_number, len(block.ops)

    def _tell(self, rank: int, one: int, other: int, until: int) -> None:
        """Let threadblock ``other`` wait until threadblock ``one`` has done its first ``until`` operations."""
        gpu, key = self.gpus[rank], (rank, one, other)
        if one == other or self.told.get(key, -1) >= until:
            return
        numbers = {"semaphore_ids": [gpu.semaphores]}
        gpu.semaphores += 1
        gpu.blocks[one].sync("sem_release", **numbers)
        gpu.blocks[other].sync("sem_acquire", **numbers)
        self.told[key] = len(gpu.blocks[one].ops)
