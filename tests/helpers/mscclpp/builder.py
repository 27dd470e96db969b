"""A builder of execution plans of MSCCL++ for tests, written from what its loader reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Json = dict[str, Any]


class Block:
    """One threadblock under construction; channels and remote buffers get their numbers as they are used."""

    def __init__(self, gpu: "Gpu", kind: str = "memory") -> None:
        self.gpu, self.kind, self.ops = gpu, kind, list[Json]()
        self.channels, self.buffers, self.switches = list[int](), list[int](), list[int]()
        gpu.blocks.append(self)

    def channel(self, peer: int, number: int = 0) -> int:
        found = self.gpu.channel(self.kind, peer, number)
        if found not in self.channels:
            self.channels.append(found)
        return self.channels.index(found)

    def remote(self, peer: int, buffer: str, index: int, size: int = 1) -> Json:
        found = self.gpu.remote(peer, buffer)
        if found not in self.buffers:
            self.buffers.append(found)
        return {"buffer_id": self.buffers.index(found), "index": index, "size": size}

    def switch(self, buffer: str, index: int, size: int = 1) -> Json:
        found = self.gpu.switch(buffer)
        if found not in self.switches:
            self.switches.append(found)
        return {"switch_channel_id": self.switches.index(found), "index": index, "size": size}

    def sync(self, name: str, *peers: int, number: int = 0) -> None:
        ids = [self.channel(peer, number) for peer in peers]
        self.ops += [{"name": "nop"}, {"name": name, "channel_ids": ids, "channel_type": self.kind}]

    def handshake(self, *peers: int) -> None:
        self.sync("signal", *peers)
        self.sync("wait", *peers)

    def do(self, name: str, sources: list[Json], targets: list[Json], **more: object) -> None:
        self.ops.append({"name": name, "src_buff": sources, "dst_buff": targets, **more})

    @contextmanager
    def loop(self, unit_bytes: int, num_chunks: int = 1) -> Iterator[None]:
        """Put what is added meanwhile into a loop."""
        outer, self.ops = self.ops, []
        yield
        context = {"unit_size": unit_bytes, "num_chunks": num_chunks}
        outer.append({"name": "pipeline", "iter_context": context, "ops": self.ops})
        self.ops = outer

    def document(self, number: int) -> Json:
        channels = [{"channel_type": self.kind, "channel_ids": self.channels}]
        switches = [{"channel_type": "switch", "channel_ids": self.switches}]
        return {
            "id": number,
            "ops": self.ops,
            "channels": [*(channels if self.channels else []), *(switches if self.switches else [])],
            "remote_buffer_refs": [{"access_channel_type": self.kind, "remote_buffer_ids": self.buffers}]
            if self.buffers
            else [],
        }


class Gpu:
    """One GPU under construction."""

    def __init__(self, rank: int, chunks: tuple[int, int, int], num_ranks: int, kind: str) -> None:
        self.rank, self.chunks, self.n, self.kind = rank, chunks, num_ranks, kind
        self.blocks, self.buffers = list[Block](), list[tuple[int, str]]()
        self.peers: dict[str, list[int]] = {kind: []}
        self.switches, self.semaphores = list[str](), list[int]()

    def channel(self, kind: str, peer: int, number: int) -> int:
        peers = self.peers.setdefault(kind, [])
        while peers.count(peer) <= number:
            peers.append(peer)
        return [at for at, each in enumerate(peers) if each == peer][number]

    def remote(self, peer: int, buffer: str) -> int:
        if (peer, buffer) not in self.buffers:
            self.buffers.append((peer, buffer))
        return self.buffers.index((peer, buffer))

    def switch(self, buffer: str) -> int:
        if buffer not in self.switches:
            self.switches.append(buffer)
        return self.switches.index(buffer)

    @property
    def others(self) -> list[int]:
        return [peer for peer in range(self.n) if peer != self.rank]

    def document(self) -> Json:
        group = {"size": self.n, "ranks": list(range(self.n))}
        switches = [{"channel_type": "switch", "buffer_type": each, "rank_groups": [group]} for each in self.switches]
        channels = [{"channel_type": kind, "connected_to": peers} for kind, peers in self.peers.items()]
        kinds = [*self.peers]
        remote = [{"rank": peer, "type": buffer, "access_channel_types": kinds} for peer, buffer in self.buffers]
        return {
            "id": self.rank,
            "input_chunks": self.chunks[0],
            "output_chunks": self.chunks[1],
            "scratch_chunks": self.chunks[2],
            "threadblocks": [block.document(number) for number, block in enumerate(self.blocks)],
            "channels": [*channels, *switches],
            "remote_buffers": remote,
            "semaphores": [{"init_value": value} for value in self.semaphores],
        }


class Program:
    """A whole execution plan under construction."""

    def __init__(self, collective: str, n: int, chunks: tuple[int, int, int], *, kind: str = "memory") -> None:
        self.collective, self.n, self.packets, self.in_place = collective, n, False, True
        self.gpus = [Gpu(rank, chunks, n, kind) for rank in range(n)]

    def document(self) -> Json:
        return {
            "name": f"test_{self.collective}",
            "collective": self.collective,
            "protocol": "LL" if self.packets else "Simple",
            "inplace": self.in_place,
            "reuse_resources": False,
            "gpus": [gpu.document() for gpu in self.gpus],
            "num_threads_per_block": 1024,
            "use_double_scratch_buffer": False,
            "buffer_alignment": 16,
            "min_message_size": 0,
            "max_message_size": 18446744073709551615,
        }


def here(buffer: str, index: int, size: int = 1) -> Json:
    return {"type": buffer, "index": index, "size": size}
