"""Write a schedule of a lone collective as an execution plan of MSCCL++.

Each engine of the schedule is a threadblock with a channel of its own: as many for each peer. As many of them share a
transfer as their operations allow; transfers are dealt to them in turn. Where engines are fewer than peers, a
threadblock serves several.
What arrives is awaited by the threadblock that sends the other way, and semaphores tell others of it. Operations are
written in one order of all steps, so that no two threadblocks wait for each other.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from .... import __version__
from ...ir import Direction, EngineChoice, EngineKind, JsonObject, OpCase, OpPlan, Pattern, Reach, Reduction, Transfer
from ...planning.build import ScheduleError
from ..write import op_plan_document, unwritable
from .document import ALIGNMENT
from .lone_collective import COLLECTIVE_NAMES, Key, LoneCollective
from .parse import ANY_SIZE
from .threadblocks import MAX_BLOCK_OPS, Foreseen, GpuUnderConstruction, Threadblock, WaitsSoFar, here

# Write a schedule by switch (nvls) as an execution plan of MSCCL++.
#
# Each engine of the schedule is a threadblock, and transfers share them evenly. A threadblock has the switch sum its
# part of a transfer over all GPUs and store the sum at all (``glres``), or store what its GPU has at all (``gstore``).
# Before and after, the threadblocks of one number on all GPUs signal each other.

MAX_BLOCKS = 64
MAX_CHANNELS = 8
"""Channels that an operation of the executor takes."""


def written_by_switch(collective: LoneCollective) -> list[JsonObject]:
    """Return all GPUs as JSON.

    Raises
    ------
    ScheduleError
        If the executor has no operation for a transfer, or too few threadblocks.
    """
    n, pattern = collective.scenario.num_ranks, collective.scenario.shape.pattern
    engine = collective.schedule.engine
    if engine.kind is not EngineKind.SM or collective.packets:
        raise unwritable("a switch is reached by SMs, without packets", f"engine=sm({engine.count}), protocol=simple")
    if engine.count > MAX_BLOCKS:
        message = f"{engine} are {engine.count} threadblocks, more than the {MAX_BLOCKS} of a plan"
        raise unwritable(message, f"engine=sm({MAX_BLOCKS})")
    unit, count = collective.unit_rows, engine.count
    most = max(1, count // len(list(_stores(collective, 0))))
    share = next(each for each in range(most, 0, -1) if each == 1 or collective.unit_bytes % (each * ALIGNMENT) == 0)
    per_block, gpus = collective.per_block, list[GpuUnderConstruction]()
    for rank in range(n):
        gpu = GpuUnderConstruction(rank, [Threadblock("memory") for _ in range(count)])
        gpu.peers = [(rank + peer) % n for peer in range(1, n) for _ in range(count)]
        gpu.switched = ["o"] if pattern is Pattern.ALL_GATHER else ["i", "o"]
        _synchronize(gpu, n)
        for place, step in enumerate(_stores(collective, rank)):
            owner = (rank + step.region.owner) % n
            first, size = owner * per_block + step.region.rows.start // unit, step.region.rows.size // unit
            for part in range(share):
                block = gpu.blocks[(place * share + part) % count]
                _store(block, pattern, first, size, {"tb_id": part, "tbg_size": share})
        _synchronize(gpu, n)
        gpus.append(gpu)
    inputs = per_block if pattern is Pattern.ALL_GATHER else n * per_block
    return [gpu.document("memory", inputs, n * per_block) for gpu in gpus]


def _synchronize(gpu: GpuUnderConstruction, n: int) -> None:
    """Have each threadblock signal those of its number on all peers, and wait for theirs."""
    count = len(gpu.blocks)
    for number, block in enumerate(gpu.blocks):
        channels = [peer * count + number for peer in range(n - 1)]
        for name in ("signal", "wait"):
            for first in range(0, n - 1, MAX_CHANNELS):
                block.sync(name, **block.on(channels[first : first + MAX_CHANNELS]))


def _store(block: Threadblock, pattern: Pattern, first: int, size: int, group: JsonObject) -> None:
    more = {"tbg_info": group} if group["tbg_size"] != 1 else {}
    if pattern is Pattern.ALL_GATHER:
        block.move("gstore", [here("o", first, size)], [block.at_all(0, first, size)], channel_type="switch", **more)
        return
    sources, targets = [block.at_all(0, first, size)], [block.at_all(1, first, size)]
    block.move("glres", sources, targets, channel_type="switch", reduce_op="sum", **more)


def _stores(collective: LoneCollective, rank: int) -> Iterator[Transfer]:
    """Yield the puts to all of a rank; in an all_reduce each must store a sum that the switch has made."""
    steps = collective.schedule.steps_of(rank)
    made = {step.signal: step for step in steps if isinstance(step, Transfer) and step.direction is Direction.GET}
    for step in steps:
        if not isinstance(step, Transfer) or step.reach is not Reach.ALL:
            raise unwritable(f"{step.name} does not go by the switch, as others do", "algorithm nvls, or direct")
        if step.direction is Direction.GET:
            continue
        sums = [made.pop(name, None) for name in step.after]
        if [each.region for each in sums if each] != ([step.region] if made or sums else []):
            raise unwritable(f"{step.name} does not store one sum of its rows", "algorithm nvls, or direct")
        yield step
    if made:
        message = f"{next(iter(made))} is a sum for one rank, and the executor stores sums of a switch at all"
        raise unwritable(message, "algorithm direct or one_shot; nvls for an all_reduce")


def mscclpp_document(scenario: OpCase, schedule: OpPlan) -> JsonObject:
    """Return the execution plan; under ``magus``, which its loader passes over, stands what it was written from.

    Raises
    ------
    ScheduleError
        If there is none, with the reason.
    """
    collective = LoneCollective.of(scenario, schedule)
    gpus = written_by_switch(collective) if collective.by_switch else _written(collective)
    plan = op_plan_document(scenario, schedule)
    in_place = scenario.shape.pattern is Pattern.ALL_GATHER
    return {
        "name": f"magus_{COLLECTIVE_NAMES[scenario.shape.pattern]}",
        "collective": COLLECTIVE_NAMES[scenario.shape.pattern],
        "protocol": "LL" if collective.packets else "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": collective.packets,  # so that a launch writes beside what the one before reads
        "buffer_alignment": ALIGNMENT,
        "min_message_size": 0,
        "max_message_size": ANY_SIZE,
        "magus": {"version": __version__, "schedule": schedule.expression, "plan": plan["hash"]},
    }


def _written(collective: LoneCollective) -> list[JsonObject]:
    """Return all GPUs, with as many threadblocks at each transfer as their operations allow."""
    *shares, last = _shares(collective)
    for share in shares:
        with suppress(ScheduleError):
            return _with_share(collective, share)
    return _with_share(collective, last)


def _with_share(collective: LoneCollective, share: int) -> list[JsonObject]:
    """Return all GPUs, written a second time once it is known who waits for whom."""
    first = _Writer.of(collective, share)
    first.write()
    second = _Writer.of(collective, share, first.waits.found)
    second.write()
    return second.documents()


def _shares(collective: LoneCollective) -> list[int]:
    """How many threadblocks may share a transfer, most first: of copy engines each does one alone."""
    width = _layout(collective)[1]
    by_sms = collective.schedule.engine.kind is EngineKind.SM
    fit = [share for share in range(width, 1, -1) if collective.unit_bytes % (share * ALIGNMENT) == 0]
    return [*(fit if by_sms else ()), 1]


def _layout(collective: LoneCollective) -> tuple[list[int], int, int]:
    """Return the relative peers, how many threadblocks serve each, and how many there are of a GPU."""
    engine, n = collective.schedule.engine, collective.scenario.num_ranks
    sent_to = [
        dict.fromkeys(step.peer for step in collective.schedule.steps_of(rank) if isinstance(step, Transfer))
        for rank in range(n)
    ]
    used = dict.fromkeys(peer for each in sent_to for peer in each)
    peers = list(dict.fromkeys((*used, *(-peer % n for peer in used))))
    most = max(map(len, sent_to))
    width = max(1, engine.count // most)
    blocks = len(peers) * width if engine.count >= most else engine.count
    _check_engines(engine, blocks, most)
    return peers, width, blocks


@dataclass(slots=True)
class _Writer:
    """The GPUs so far. Each transfer is shared by ``share`` threadblocks of its peer.

    Chunks have ``unit`` rows, the row block of a rank has ``per_block`` chunks. ``dealt`` counts the parts of transfers
    of a rank to a relative peer, and its sums (0). ``slots`` has the first scratch chunk of what a transfer brings.
    """

    collective: LoneCollective
    waits: WaitsSoFar
    kind: str
    share: int
    unit: int
    per_block: int
    dealt: Counter[tuple[int, int]] = field(default_factory=Counter)
    slots: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, collective: LoneCollective, share: int, foreseen: Foreseen | None = None) -> "_Writer":
        """Begin; ``share`` is the number of threadblocks of a transfer, ``foreseen`` what a first writing has found."""
        engine, n = collective.schedule.engine, collective.scenario.num_ranks
        peers, width, blocks = _layout(collective)
        kind = "port" if engine.kind is EngineKind.DMA else "memory"
        gpus = [GpuUnderConstruction(rank, [Threadblock(kind) for _ in range(blocks)]) for rank in range(n)]
        for gpu in gpus:
            gpu.peers = [(gpu.rank + peer) % n for peer in peers for _ in range(width)]
        waits = WaitsSoFar(collective, peers, width, gpus, foreseen=foreseen or Foreseen())
        return cls(collective, waits, kind, share, collective.unit_rows, collective.per_block)

    @property
    def gpus(self) -> list[GpuUnderConstruction]:
        return self.waits.gpus

    @property
    def pattern(self) -> Pattern:
        return self.collective.scenario.shape.pattern

    def write(self) -> None:
        """Write the operations of all GPUs."""
        for gpu in self.gpus:
            if not self.collective.packets:
                self.waits.greet(gpu)
            if self.pattern is Pattern.ALL_TO_ALL:
                own = gpu.rank * self.per_block
                gpu.blocks[0].move("copy", [here("i", own, self.per_block)], [here("o", own, self.per_block)])
        for rank, step in self.collective.in_order():
            if isinstance(step, Transfer):
                self._put(rank, step)
            elif isinstance(step, Reduction):
                self._sum(rank, step)
        for gpu in self.gpus:
            self.waits.drain(gpu)
            for number, block in enumerate(gpu.blocks):
                if self.kind == "port":
                    block.sync("flush", **block.on(self.waits.channels_of(number)))

    def documents(self) -> list[JsonObject]:
        """Return all GPUs as JSON."""
        for number, block in ((number, block) for gpu in self.gpus for number, block in enumerate(gpu.blocks)):
            if len(block.ops) > MAX_BLOCK_OPS:
                message = f"threadblock {number} has {len(block.ops)} operations, at most {MAX_BLOCK_OPS} are taken"
                raise unwritable(message, "fewer chunks, or more engines")
        whole = len(self.gpus) * self.per_block
        inputs = self.per_block if self.pattern is Pattern.ALL_GATHER else whole
        outputs = self.per_block if self.pattern is Pattern.REDUCE_SCATTER else whole
        return [gpu.document(self.kind, inputs, outputs) for gpu in self.gpus]

    def _put(self, rank: int, step: Transfer) -> None:
        peer, size = (rank + step.peer) % len(self.gpus), step.region.rows.size // self.unit
        index, landing = self._index(rank, step), self._landing(rank, self._index(rank, step))
        packets, staged = self.collective.packets, self.collective.is_staged(rank, step)
        buffer, target = "o", landing
        if staged or packets:
            buffer, target = "s", self.gpus[peer].scratch
            self.slots[rank, step.name] = target
            self.gpus[peer].scratch += size
        own = self.collective.is_own(rank, step) and self.pattern is not Pattern.ALL_GATHER
        source = here("i" if own else "o", index, size)
        unpacked = {"name": "upkt", "sources": [here("s", target, size)], "targets": [here("o", landing, size)]}
        first = self.dealt[rank, step.peer] if step.lane is None else step.lane
        self.dealt[rank, step.peer] += self.share
        for part in range(self.share):
            number = (first + part) % self.waits.width
            channel = self.waits.channel(step.peer, number)
            block_number = self.waits.block_of(channel)
            block, shared = self.gpus[rank].blocks[block_number], self._shared(part)
            self.waits.before(rank, step, block_number, part if self.share > 1 else None)
            remote = block.remote(self.gpus[rank].remote_buffer(peer, buffer), target, size)
            on = block.on([channel])
            if packets:
                block.move("ppkt", [source], [remote], channel_type=self.kind, **shared)
            else:
                block.move("put", [source], [remote], **on, **shared)
            if packets and staged:
                self.waits.finish((rank, step.name), block_number)  # the sum takes them as they come
            else:
                self.waits.signal((rank, step.name), step.peer, number, {**unpacked, **shared} if packets else None)

    def _landing(self, rank: int, index: int) -> int:
        """Where chunks of the tensor from ``rank`` lie in the output of others."""
        return rank * self.per_block + index % self.per_block if self.pattern is Pattern.ALL_TO_ALL else index

    def _index(self, rank: int, step: Transfer | Reduction) -> int:
        """First chunk of the region of a step, in the whole tensor."""
        return (rank + step.region.owner) % len(self.gpus) * self.per_block + step.region.rows.start // self.unit

    def _sum(self, rank: int, step: Reduction) -> None:
        gpu, size, index = self.gpus[rank], step.region.rows.size // self.unit, self._index(rank, step)
        first = self.dealt[rank, 0]
        self.dealt[rank, 0] += self.share
        staged = self.collective.staged_for(rank, step)
        parts = [here("s", self.slots[each.issuer, each.transfer.name], size) for each in staged]
        target = step.region.rows.start // self.unit if self.pattern is Pattern.REDUCE_SCATTER else index
        for part in range(self.share):
            number = (first + part) % len(gpu.blocks)
            self.waits.before(rank, step, number, part if self.share > 1 else None)
            sources, targets = [here("i", index, size), *parts], [here("o", target, size)]
            gpu.blocks[number].move(
                "repkt" if self.collective.packets else "re", sources, targets, reduce_op="sum", **self._shared(part)
            )
            self.waits.finish((rank, step.name), number)
        if self.share > 1:
            self.waits.shared[rank, step.name] = step.region

    def _shared(self, part: int) -> JsonObject:
        """Return the keys of an operation that a group of threadblocks shares."""
        return {"tbg_info": {"tb_id": part, "tbg_size": self.share}} if self.share > 1 else {}


def _check_engines(engine: EngineChoice, blocks: int, most: int) -> None:
    if blocks > MAX_BLOCKS:
        message = f"{engine} are {blocks} threadblocks, more than the {MAX_BLOCKS} of a plan"
        raise unwritable(message, f"fewer engines, such as {MAX_BLOCKS // 2 // most * most}")
    if engine.kind is EngineKind.DMA and engine.count < most:
        raise unwritable(f"{engine} are fewer engines than peers", f"engine=dma({most})")
