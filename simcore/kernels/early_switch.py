"""Sizes at which a collective library takes its protocol SIMPLE too early: a choice of its build, not of the GPU."""

from dataclasses import dataclass, replace

from ...compiler.ir import Gpu
from .nccl import CollectiveTime, NcclCollective, NcclProtocol, collective_time

MIN_REPORTED_LOSS = 1.05
"""Losses below this are within the error of the fitted forms."""

NEVER_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class EarlySwitch:
    """At ``from_bytes`` (as nccl-tests counts them) SIMPLE is ``taken`` and ``better`` would have taken less time.

    SIMPLE pays from ``pays_from_bytes`` on, the first doubling of ``from_bytes`` where it is no slower.
    """

    from_bytes: int
    taken: CollectiveTime
    better: CollectiveTime
    pays_from_bytes: int


def early_switch(gpu: Gpu, operation: NcclCollective, ranks: int) -> EarlySwitch | None:
    """The switch of the library on ``ranks`` GPUs, if it comes too early by more than ``MIN_REPORTED_LOSS``.

    NVIDIA NCCL on B200 is an example: all_gather on 8 GPUs goes from 45 us at 8 MiB to 102 us at 16 MiB.

    Raises
    ------
    ValueError
        As ``collective_time``.
    """
    at = _switch_bytes(gpu, operation, ranks)
    without = _without_simple(gpu)
    taken, better = collective_time(gpu, operation, at, ranks), collective_time(without, operation, at, ranks)
    if taken.protocol is not NcclProtocol.SIMPLE or taken.ticks <= MIN_REPORTED_LOSS * better.ticks:
        return None
    pays = at
    while pays < NEVER_BYTES and _ticks(gpu, operation, pays, ranks) > _ticks(without, operation, pays, ranks):
        pays *= 2
    return EarlySwitch(at, taken, better, pays)


def _switch_bytes(gpu: Gpu, operation: NcclCollective, ranks: int) -> int:
    """The size from which on the library takes SIMPLE."""
    model = gpu.collectives
    if model is None:
        raise ValueError(f"the profile of {gpu.name} has no collectives")
    if operation is NcclCollective.ALL_TO_ALL and model.all_to_all is not None:
        return model.all_to_all.simple_from_bytes * ranks
    return model.simple_from_bytes * ranks


def _without_simple(gpu: Gpu) -> Gpu:
    """``gpu`` with a library that never takes SIMPLE."""
    model = gpu.collectives
    assert model is not None, "the switch was looked up before"
    exchange = model.all_to_all and replace(model.all_to_all, simple_from_bytes=NEVER_BYTES)
    return replace(gpu, collectives=replace(model, simple_from_bytes=NEVER_BYTES, all_to_all=exchange))


def _ticks(gpu: Gpu, operation: NcclCollective, num_bytes: int, ranks: int) -> int:
    return collective_time(gpu, operation, num_bytes, ranks).ticks
