"""Collectives as programs for MSCCL++, on ``n`` GPUs."""

import copy

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


def all_reduce_in_loops(n: int, unit_bytes: int = 4096) -> Program:
    """By switch through scratch: three threadblocks of each GPU copy in, sum and copy out, part by part, in turn."""
    program = Program("allreduce", n, (n, n, n))
    for gpu in program.gpus:
        gpu.semaphores = [0, 0]
        copy_in, total, copy_out = Block(gpu), Block(gpu), Block(gpu)
        with copy_in.loop(unit_bytes), total.loop(unit_bytes), copy_out.loop(unit_bytes):
            for chunk in range(n):
                copy_in.do("copy", [here("i", chunk)], [here("s", chunk)])
            copy_in.handshake(*gpu.others)
            copy_in.ops.append({"name": "sem_release", "semaphore_ids": [0]})
            total.ops.append({"name": "sem_acquire", "semaphore_ids": [0]})
            chunk_at_all = total.switch("s", gpu.rank)
            total.do("glres", [chunk_at_all], [dict(chunk_at_all)], channel_type="switch", reduce_op="sum")
            for peer in gpu.others:
                total.sync("signal", peer, number=1)
            total.ops.append({"name": "sem_release", "semaphore_ids": [1]})
            copy_out.ops.append({"name": "sem_acquire", "semaphore_ids": [1]})
            for peer in gpu.others:
                copy_out.sync("wait", peer, number=1)
            for chunk in range(n):
                copy_out.do("copy", [here("s", chunk)], [here("o", chunk)])
    return program


def all_to_all_in_loops(n: int, unit_bytes: int = 4096, kind: str = "memory") -> Program:
    """In place, two threadblocks of each peer: one puts a part into its scratch, the other copies what has come."""
    program = Program("alltoall", n, (n, n, n), kind=kind)
    for gpu in program.gpus:
        for number, peer in enumerate(gpu.others):
            gpu.semaphores.append(0)
            put, take = Block(gpu, kind), Block(gpu, kind)
            with put.loop(unit_bytes), take.loop(unit_bytes):
                ids = [put.channel(peer)]
                target = put.remote(peer, "s", gpu.rank)
                put.do("put", [here("i", peer)], [target], channel_ids=ids, channel_type=kind)
                put.sync("signal", peer)
                put.ops.append({"name": "sem_release", "semaphore_ids": [number]})
                take.ops.append({"name": "sem_acquire", "semaphore_ids": [number]})
                take.sync("wait", peer)
                take.do("copy", [here("s", peer)], [here("i", peer)])
    return program


def all_reduce_round_in_loops(n: int, unit_bytes: int = 4096) -> Program:
    """Round a ring as ``all_reduce_round`` does, part by part."""
    program = all_reduce_round(n)
    for gpu in program.gpus:
        (block,) = gpu.blocks
        context = {"unit_size": unit_bytes, "num_chunks": 1}
        block.ops = [{"name": "pipeline", "iter_context": context, "ops": block.ops}]
    return program


def without_loops(program: Program, chunk_bytes: int) -> Program:
    """Return a program with the operations of its loops one by one, on chunks that are as large as a unit."""
    made = copy.deepcopy(program)
    units = {op["iter_context"]["unit_size"] for gpu in made.gpus for block in gpu.blocks for op in block.ops}
    (unit_bytes,) = units
    cuts = chunk_bytes // unit_bytes
    for gpu in made.gpus:
        gpu.chunks = gpu.chunks[0] * cuts, gpu.chunks[1] * cuts, gpu.chunks[2] * cuts
        for block in gpu.blocks:
            block.ops = [_cut(each, cuts, part) for op in block.ops for part in range(cuts) for each in op["ops"]]
    return made


def _cut(op: Json, cuts: int, part: int) -> Json:
    made = copy.deepcopy(op)
    for chunk in (*made.get("src_buff", ()), *made.get("dst_buff", ())):
        chunk["index"] = chunk["index"] * cuts + part
    return made


def _exchange(gpu: Gpu, block: Block) -> None:
    block.handshake(*gpu.others)
    for peer in gpu.others:
        block.do("put", [here("i", peer)], [block.remote(peer, "s", gpu.rank)], channel_type="memory")
    block.handshake(*gpu.others)


def _sum(gpu: Gpu, block: Block, name: str, targets: list[Json]) -> None:
    parts = [here("i", gpu.rank), *(here("s", peer) for peer in gpu.others)]
    kind: Json = {"channel_type": "memory"} if targets else {}
    block.do(name, parts, [here("i", gpu.rank), *targets], reduce_op="sum", **kind)


def all_gather_over_nodes(n: int) -> Program:
    """Over two nodes: a port to the same place in the other node, threads to each peer in the own one.

    What comes over the network is passed on by threads.
    """
    program, node = Program("allgather", n, (1, n, 0)), n // 2
    for gpu in program.gpus:
        near, mate = _near(gpu, node), (gpu.rank + node) % n
        gpu.semaphores = [0] * len(near)
        port = Block(gpu, "port")
        port.handshake(mate)
        port.do("put", [here("o", gpu.rank)], [port.remote(mate, "o", gpu.rank)], **_over(port, mate))
        port.handshake(mate)
        for place, peer in enumerate(near):
            port.ops.append({"name": "sem_release", "semaphore_ids": [place]})
            block = Block(gpu)
            block.handshake(peer)
            block.do("put", [here("o", gpu.rank)], [block.remote(peer, "o", gpu.rank)], **_over(block, peer))
            block.ops.append({"name": "sem_acquire", "semaphore_ids": [place]})
            block.do("put", [here("o", mate)], [block.remote(peer, "o", mate)], **_over(block, peer))
            block.handshake(peer)
    return program


def all_reduce_over_nodes(n: int) -> Program:
    """Over two nodes by packets: sums in each node, their exchange by ports, and the results to all in each node.

    So does the second all_reduce of MSCCL++'s tests (github.com/microsoft/mscclpp).
    """
    node = n // 2
    program, far = Program("allreduce", n, (node, node, 2 * node + 2)), 2 * node
    program.packets = True
    for gpu in program.gpus:
        near, mate, own = _near(gpu, node), (gpu.rank + node) % n, gpu.rank % node
        gpu.semaphores = [0] * len(near)
        blocks = [Block(gpu) for _ in near]
        for block, peer in zip(blocks, near, strict=True):
            target = block.remote(peer, "s", own)
            block.do("ppkt", [here("i", peer % node)], [target], channel_type="memory")
        summing = Block(gpu, "port")
        parts = [here("i", own), *(here("s", peer % node) for peer in near)]
        summing.do("recpkt", parts, [here("i", own), here("s", far)], reduce_op="sum")
        summing.do("ppkt", [here("s", far)], [summing.remote(mate, "s", far + 1)], **_over(summing, mate))
        summing.do("recpkt", [here("i", own), here("s", far + 1)], [here("i", own)], reduce_op="sum")
        for place, (block, peer) in enumerate(zip(blocks, near, strict=True)):
            summing.ops.append({"name": "sem_release", "semaphore_ids": [place]})
            block.ops.append({"name": "sem_acquire", "semaphore_ids": [place]})
            target = block.remote(peer, "s", node + own)
            block.do("ppkt", [here("i", own)], [target], channel_type="memory")
            block.do("upkt", [here("s", node + peer % node)], [here("i", peer % node)])
    return program


def reduce_scatter_over_nodes(n: int) -> Program:
    """Over two nodes: sums that read from peers of the node, of the own chunk and of that for the other node."""
    program, node = Program("reducescatter", n, (n, 1, 1)), n // 2
    for gpu in program.gpus:
        near, mate = _near(gpu, node), (gpu.rank + node) % n
        gpu.semaphores = [0]
        reading, port = Block(gpu), Block(gpu, "port")
        reading.handshake(*near)
        for chunk in (gpu.rank, mate):
            parts = [here("i", chunk), *(reading.remote(peer, "i", chunk) for peer in near)]
            reading.do("rre", parts, [here("i", chunk)], channel_type="memory", reduce_op="sum")
        reading.ops.append({"name": "sem_release", "semaphore_ids": [0]})
        port.handshake(mate)
        port.ops.append({"name": "sem_acquire", "semaphore_ids": [0]})
        port.do("put", [here("i", mate)], [port.remote(mate, "s", 0)], **_over(port, mate))
        port.handshake(mate)
        port.do("re", [here("i", gpu.rank), here("s", 0)], [here("i", gpu.rank)], reduce_op="sum")
    return program


def _near(gpu: Gpu, node: int) -> list[int]:
    """The other GPUs of the node."""
    return [peer for peer in gpu.others if peer // node == gpu.rank // node]


def _over(block: Block, peer: int) -> Json:
    return {"channel_ids": [block.channel(peer)], "channel_type": block.kind}
