"""Write a schedule of a lone collective as an execution plan of MSCCL++.

Each engine of the schedule is a threadblock with a channel of its own: as many for each peer, to which the transfers to
that peer are dealt in turn, cut where they are fewer. Where engines are fewer than peers, a threadblock serves several.
What lands is awaited by the threadblock that sends the other way, and semaphores tell others of it. Operations are
written in one order of all steps, so that no two threadblocks wait for each other.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd

from .... import __version__
from ...ir import (
    EngineChoice,
    EngineKind,
    IndexRange,
    JsonObject,
    Pattern,
    Reduction,
    Scenario,
    Schedule,
    Transfer,
)
from ..to_json import plan_document
from .lone_collective import COLLECTIVE_NAMES, Key, LoneCollective, beyond_mscclpp
from .threadblocks import MAX_BLOCK_OPS, GpuUnderConstruction, Threadblock, here
from .waits import WaitsSoFar

MAX_BLOCKS = 64
ALIGNMENT = 16
ANY_SIZE = (1 << 64) - 1


def mscclpp_document(scenario: Scenario, schedule: Schedule) -> JsonObject:
    """Return the execution plan; under ``magus``, which its loader passes over, stands what it was written from.

    Raises
    ------
    ScheduleError
        If there is none, with the reason.
    """
    gpus = _Writer.of(LoneCollective.of(scenario, schedule)).written()
    plan = plan_document(scenario, schedule)
    in_place = scenario.workload.pattern is Pattern.ALL_GATHER
    return {
        "name": f"magus_{COLLECTIVE_NAMES[scenario.workload.pattern]}",
        "collective": COLLECTIVE_NAMES[scenario.workload.pattern],
        "protocol": "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": ALIGNMENT,
        "min_message_size": 0,
        "max_message_size": ANY_SIZE,
        "magus": {"version": __version__, "schedule": schedule.expression, "plan": plan["hash"]},
    }


@dataclass(slots=True)
class _Writer:
    """The GPUs so far. Each transfer is ``cut`` into so many puts if its chunks, of ``unit`` rows, allow it.

    ``dealt`` counts the puts of a rank to a relative peer, and its sums (0). ``slots`` has the first scratch chunk of
    what a transfer brings.
    """

    collective: LoneCollective
    waits: WaitsSoFar
    kind: str
    cut: int
    unit: int
    dealt: Counter[tuple[int, int]] = field(default_factory=Counter)
    slots: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, collective: LoneCollective) -> "_Writer":
        engine, n = collective.schedule.engine, collective.scenario.num_ranks
        counts = [
            Counter(step.peer for step in collective.schedule.steps_of(rank) if isinstance(step, Transfer))
            for rank in range(n)
        ]
        sent_to = dict.fromkeys(peer for count in counts for peer in count)
        peers = list(dict.fromkeys((*sent_to, *(-peer % n for peer in sent_to))))
        most = max(map(len, counts))
        width = max(1, engine.count // most)
        blocks = len(peers) * width if engine.count >= most else engine.count
        _check_engines(engine, blocks, most)
        cut = -(-width // min(min(count.values()) for count in counts if count))
        kind = "port" if engine.kind is EngineKind.DMA else "memory"
        gpus = [GpuUnderConstruction(rank, [Threadblock(kind) for _ in range(blocks)]) for rank in range(n)]
        for gpu in gpus:
            gpu.peers = [(gpu.rank + peer) % n for peer in peers for _ in range(width)]
        unit = collective.unit_rows // gcd(collective.unit_rows, cut)
        return cls(collective, WaitsSoFar(collective, peers, width, gpus), kind, cut, unit)

    @property
    def gpus(self) -> list[GpuUnderConstruction]:
        return self.waits.gpus

    @property
    def per_block(self) -> int:
        """Chunks in the row block of a rank."""
        moved = self.collective.scenario.workload.moved
        assert moved is not None, "a collective moves a tensor"
        return moved.rows // len(self.gpus) // self.unit

    @property
    def pattern(self) -> Pattern:
        return self.collective.scenario.workload.pattern

    def written(self) -> list[JsonObject]:
        """Return all GPUs."""
        for gpu in self.gpus:
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
            self._end(gpu)
        whole, block = len(self.gpus) * self.per_block, self.per_block
        inputs = block if self.pattern is Pattern.ALL_GATHER else whole
        outputs = block if self.pattern is Pattern.REDUCE_SCATTER else whole
        return [gpu.document(self.kind, inputs, outputs) for gpu in self.gpus]

    def _end(self, gpu: GpuUnderConstruction) -> None:
        self.waits.drain(gpu)
        for number, block in enumerate(gpu.blocks):
            if self.kind == "port":
                block.sync("flush", **block.on(self.waits.channels_of(number)))
            if len(block.ops) > MAX_BLOCK_OPS:
                message = f"threadblock {number} has {len(block.ops)} operations, at most {MAX_BLOCK_OPS} are taken"
                raise beyond_mscclpp(message, "fewer chunks, or more engines")

    def _put(self, rank: int, step: Transfer) -> None:
        gpu, peer = self.gpus[rank], (rank + step.peer) % len(self.gpus)
        staged = self.collective.is_staged(rank, step)
        if staged:
            self.slots[rank, step.name] = self.gpus[peer].scratch
            self.gpus[peer].scratch += step.region.rows.size // self.unit
        for rows in self._puts(step.region.rows):
            number = (self.dealt[rank, step.peer] if step.lane is None else step.lane) % self.waits.width
            self.dealt[rank, step.peer] += 1
            channel = self.waits.channel(step.peer, number)
            block_number = self.waits.block_of(channel)
            block = gpu.blocks[block_number]
            self.waits.before(rank, step, block_number)
            size, index = rows.size // self.unit, self._index(rank, step, rows)
            buffer, target = ("s", self._staging(rank, step, rows)) if staged else ("o", self._landing(rank, index))
            source = here("i" if staged or self.pattern is Pattern.ALL_TO_ALL else "o", index, size)
            remote = block.remote(gpu.remote_buffer(peer, buffer), target, size)
            block.move("put", [source], [remote], **block.on([channel]))
            self.waits.signal((rank, step.name), step.peer, number)

    def _puts(self, rows: IndexRange) -> Iterator[IndexRange]:
        size = rows.size // gcd(self.cut, rows.size // self.unit)
        return (IndexRange(start, start + size) for start in range(rows.start, rows.stop, size))

    def _staging(self, rank: int, step: Transfer, rows: IndexRange) -> int:
        """First scratch chunk at the peer for rows of the region of a transfer."""
        return self.slots[rank, step.name] + (rows.start - step.region.rows.start) // self.unit

    def _landing(self, rank: int, index: int) -> int:
        """Where chunks of the tensor from ``rank`` lie in the output of others."""
        return rank * self.per_block + index % self.per_block if self.pattern is Pattern.ALL_TO_ALL else index

    def _index(self, rank: int, step: Transfer | Reduction, rows: IndexRange) -> int:
        """First chunk of rows of the region of a step, in the whole tensor."""
        return (rank + step.region.owner) % len(self.gpus) * self.per_block + rows.start // self.unit

    def _sum(self, rank: int, step: Reduction) -> None:
        gpu = self.gpus[rank]
        number = self.dealt[rank, 0] % len(gpu.blocks)
        self.dealt[rank, 0] += 1
        self.waits.before(rank, step, number)
        rows = step.region.rows
        size, index = rows.size // self.unit, self._index(rank, step, rows)
        staged = self.collective.staged_for(rank, step)
        parts = [here("s", self.slots[each.issuer, each.transfer.name], size) for each in staged]
        target = rows.start // self.unit if self.pattern is Pattern.REDUCE_SCATTER else index
        gpu.blocks[number].move("re", [here("i", index, size), *parts], [here("o", target, size)], reduce_op="sum")
        self.waits.finish((rank, step.name), number)


def _check_engines(engine: EngineChoice, blocks: int, most: int) -> None:
    if blocks > MAX_BLOCKS:
        message = f"{engine} are {blocks} threadblocks, more than the {MAX_BLOCKS} of a plan"
        raise beyond_mscclpp(message, f"fewer engines, such as {MAX_BLOCKS // 2 // most * most}")
    if engine.kind is EngineKind.DMA and engine.count < most:
        raise beyond_mscclpp(f"{engine} are fewer engines than peers", f"engine=dma({most})")
