"""Write a schedule by switch (nvls) as an execution plan of MSCCL++.

Each engine of the schedule is a threadblock, and transfers share them evenly. A threadblock has the switch sum its part
of a transfer over all GPUs and store the sum at all (``glres``), or store what its GPU has at all (``gstore``). Before
and after, the threadblocks of one number on all GPUs signal each other.
"""

from collections.abc import Iterator

from ...ir import Direction, EngineKind, JsonObject, Pattern, Reach, Transfer
from .document import ALIGNMENT
from .lone_collective import LoneCollective, beyond_mscclpp
from .threadblocks import GpuUnderConstruction, Threadblock, here

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
    engine, moved = collective.schedule.engine, collective.scenario.shape.moved
    assert moved is not None, "a collective moves a tensor"
    if engine.kind is not EngineKind.SM or collective.packets:
        raise beyond_mscclpp(
            "a switch is reached by SMs, without packets", f"engine=sm({engine.count}), protocol=simple"
        )
    if engine.count > MAX_BLOCKS:
        message = f"{engine} are {engine.count} threadblocks, more than the {MAX_BLOCKS} of a plan"
        raise beyond_mscclpp(message, f"engine=sm({MAX_BLOCKS})")
    unit, count = collective.unit_rows, engine.count
    unit_bytes = moved.dtype.bytes_of(unit * moved.cols)
    most = max(1, count // len(list(_stores(collective, 0))))
    share = next(each for each in range(most, 0, -1) if each == 1 or unit_bytes % (each * ALIGNMENT) == 0)
    per_block, gpus = moved.rows // n // unit, list[GpuUnderConstruction]()
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
            raise beyond_mscclpp(f"{step.name} does not go by the switch, as others do", "algorithm nvls, or direct")
        if step.direction is Direction.GET:
            continue
        sums = [made.pop(name, None) for name in step.after]
        if [each.region for each in sums if each] != ([step.region] if made or sums else []):
            raise beyond_mscclpp(f"{step.name} does not store one sum of its rows", "algorithm nvls, or direct")
        yield step
    if made:
        message = f"{next(iter(made))} is a sum for one rank, and the executor stores sums of a switch at all"
        raise beyond_mscclpp(message, "algorithm direct or one_shot; nvls for an all_reduce")
