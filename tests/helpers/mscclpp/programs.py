"""Collectives as programs for MSCCL++, on ``n`` GPUs."""

from tests.helpers.mscclpp.builder import Block, Gpu, Json, Program, here


def all_gather(n: int, *, kind: str = "memory", group: int = 1) -> Program:
    """Every GPU puts its chunk into the output of each peer; ``group`` threadblocks share each put."""
    program = Program("allgather", n, (1, n, 0), kind=kind)
    for gpu in program.gpus:
        for peer in gpu.others:
            for part in range(group):
                block = Block(gpu, kind)
                block.sync("signal", peer, number=part)
                block.sync("wait", peer, number=part)
                more: Json = {"tbg_info": {"tb_id": part, "tbg_size": group}} if group > 1 else {}
                ids = [block.channel(peer, part)]
                target = block.remote(peer, "o", gpu.rank)
                block.do("put", [here("o", gpu.rank)], [target], channel_ids=ids, channel_type=kind, **more)
                block.sync("signal", peer, number=part)
                block.sync("wait", peer, number=part)
    return program


def reduce_scatter(n: int) -> Program:
    """Every GPU puts its part for each peer into the peer's scratch, and sums what it was sent."""
    program = Program("reducescatter", n, (n, 1, n))
    for gpu in program.gpus:
        block = Block(gpu)
        _exchange(gpu, block)
        _sum(gpu, block, "re", [])
    return program


def all_reduce(n: int) -> Program:
    """In two steps: a reduce_scatter through scratch, then every GPU puts its sum to each peer."""
    program = Program("allreduce", n, (n, n, n))
    for gpu in program.gpus:
        block = Block(gpu)
        _exchange(gpu, block)
        _sum(gpu, block, "res", [block.remote(peer, "i", gpu.rank) for peer in gpu.others])
        block.handshake(*gpu.others)
    return program


def all_reduce_by_reading(n: int) -> Program:
    """In two steps without scratch: every GPU reads and sums its part of each peer, then puts the sum to each."""
    program = Program("allreduce", n, (n, n, 0))
    for gpu in program.gpus:
        block = Block(gpu)
        block.handshake(*gpu.others)
        sources = [here("i", gpu.rank), *(block.remote(peer, "i", gpu.rank) for peer in gpu.others)]
        targets = [here("i", gpu.rank), *(block.remote(peer, "i", gpu.rank) for peer in gpu.others)]
        block.do("rres", sources, targets, channel_type="memory", reduce_op="sum")
        block.handshake(*gpu.others)
    return program


def all_reduce_by_packets(n: int) -> Program:
    """One step: every GPU puts all it has into the scratch of each peer as packets, and sums what it reads there."""
    program = Program("allreduce", n, (n, n, n * n))
    program.packets = True
    for gpu in program.gpus:
        for peer in gpu.others:
            block = Block(gpu)
            target = block.remote(peer, "s", gpu.rank * n, n)
            block.do("ppkt", [here("i", 0, n)], [target], channel_type="memory")
        block = Block(gpu)
        parts = [here("i", 0, n), *(here("s", peer * n, n) for peer in gpu.others)]
        block.do("repkt", parts, [here("o", 0, n)], reduce_op="sum")
    return program


def all_reduce_by_switch(n: int) -> Program:
    """Every GPU lets the switch sum its chunk of all and store the sum at all."""
    program = Program("allreduce", n, (n, n, 0))
    for gpu in program.gpus:
        block = Block(gpu)
        block.sync("rlxsignal", *gpu.others)
        block.sync("rlxwait", *gpu.others)
        chunk = block.switch("i", gpu.rank)
        block.do("glres", [chunk], [dict(chunk)], channel_type="switch", reduce_op="sum")
        block.sync("rlxsignal", *gpu.others)
        block.sync("rlxwait", *gpu.others)
    return program


def all_to_all(n: int) -> Program:
    """Every GPU gets its block from each peer and copies its own; not in place."""
    program = Program("alltoall", n, (n, n, 0))
    program.in_place = False
    for gpu in program.gpus:
        for peer in gpu.others:
            block = Block(gpu)
            block.handshake(peer)
            source, ids = block.remote(peer, "i", gpu.rank), [block.channel(peer)]
            block.do("get", [source], [here("o", peer)], channel_ids=ids, channel_type="memory")
        Block(gpu).do("copy", [here("i", gpu.rank)], [here("o", gpu.rank)])
    return program


def all_gather_round(n: int) -> Program:
    """Round a ring: every GPU puts on to the next what it has from the start, then what came from the one before."""
    program = Program("allgather", n, (1, n, 0))
    for gpu in program.gpus:
        block = Block(gpu)
        after, before = (gpu.rank + 1) % n, (gpu.rank - 1) % n
        for step in range(n - 1):
            chunk = (gpu.rank - step) % n
            ids = [block.channel(after)]
            block.do(
                "pws", [here("o", chunk)], [block.remote(after, "o", chunk)], channel_ids=ids, channel_type="memory"
            )
            block.sync("wait", before)
    return program


def all_reduce_round(n: int) -> Program:
    """Round a ring: sums pass on through scratch to the owner of each chunk, and results on from there."""
    program = Program("allreduce", n, (n, n, n))
    for gpu in program.gpus:
        block = Block(gpu)
        after, before = (gpu.rank + 1) % n, (gpu.rank - 1) % n
        first = (gpu.rank - 1) % n
        block.do("put", [here("i", first)], [block.remote(after, "s", first)], channel_type="memory")
        block.sync("signal", after)
        for step in range(1, n):
            chunk = (gpu.rank - 1 - step) % n
            block.sync("wait", before)
            target = block.remote(after, "i" if chunk == gpu.rank else "s", chunk)
            block.do("res", [here("i", chunk), here("s", chunk)], [here("i", chunk), target], channel_type="memory")
            block.sync("signal", after)
        for step in range(n - 2):
            chunk = (gpu.rank - 1 - step) % n
            block.sync("wait", before)
            block.do("put", [here("i", chunk)], [block.remote(after, "i", chunk)], channel_type="memory")
            block.sync("signal", after)
        block.sync("wait", before)
    return program


def _exchange(gpu: Gpu, block: Block) -> None:
    block.handshake(*gpu.others)
    for peer in gpu.others:
        block.do("put", [here("i", peer)], [block.remote(peer, "s", gpu.rank)], channel_type="memory")
    block.handshake(*gpu.others)


def _sum(gpu: Gpu, block: Block, name: str, targets: list[Json]) -> None:
    parts = [here("i", gpu.rank), *(here("s", peer) for peer in gpu.others)]
    kind: Json = {"channel_type": "memory"} if targets else {}
    block.do(name, parts, [here("i", gpu.rank), *targets], reduce_op="sum", **kind)
