"""What a CommPlan needs of Syncopate and PyTorch, by the names and fields of their classes, and a run of it with numpy.

The run is of its own making: streams of all ranks go on in a drawn order, each copy once what it waits for is done.
"""

import enum
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Buffers = dict[tuple[int, str], Array]


class TransferOp(enum.Enum):
    PUSH = "push"
    PULL = "pull"
    LOCAL_COPY = "local_copy"


class ReduceOp(enum.Enum):
    SUM = 1
    MAX = 2


@dataclass(frozen=True)
class AxisSlice:
    start: int
    end: int


@dataclass
class Period:
    start: float | None = None
    duration: float = 1.0


@dataclass
class BufferRegion:
    regions: tuple[tuple[AxisSlice, ...], ...]
    elem_size: int
    strides: tuple[int, ...]
    base_offset: int = 0

    @classmethod
    def from_slices(
        cls, *, elem_size: int, strides: tuple[int, ...], slices: Any, base_offset: int = 0
    ) -> "BufferRegion":
        return cls((tuple(AxisSlice(*each) for each in slices),), elem_size, tuple(strides), base_offset)

    def elements(self) -> Array:
        """The numbers of its elements in the flat buffer."""
        numbers = np.zeros((1,), dtype=np.int64)
        for axis, stride in zip(self.regions[0], self.strides, strict=True):
            numbers = np.add.outer(numbers, np.arange(axis.start, axis.end) * stride).reshape(-1)
        return numbers + self.base_offset // self.elem_size


@dataclass
class XferDependency:
    depend_rank: int
    depend_xfer_stream: int
    depend_xfer_idx: int
    signal: Any = None


@dataclass
class ComputeDependency:
    compute_rank: int
    src_region: BufferRegion | None
    signal: Any = None


@dataclass
class Transfer:
    op: TransferOp
    src_buf: str
    src_region: BufferRegion
    dst_buf: str
    dst_region: BufferRegion
    chunk_idx: int
    dependency: list[Any] = field(default_factory=list)
    set_signals: list[Any] = field(default_factory=list)
    peer: int | None = None
    period: Period = field(default_factory=Period)
    reduce_op: ReduceOp | None = None

    def __post_init__(self) -> None:
        assert (self.peer is None) is (self.op is TransferOp.LOCAL_COPY)


@dataclass
class DevicePlan:
    dev: int
    xfer: list[list[Transfer]] = field(default_factory=list)
    local_regions: dict[str, list[BufferRegion]] = field(default_factory=dict)
    transit_signals: list[Any] = field(default_factory=list)
    tensors_involved: dict[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass
class CommPlan:
    device_plans: dict[int, DevicePlan] = field(default_factory=dict)


class Size(tuple[int, ...]):
    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"


@contextmanager
def _modules() -> Iterator[None]:
    torch, descriptor = ModuleType("torch"), ModuleType("syncopate.communication.descriptor")
    vars(torch).update(Size=Size, **{name: f"torch.{name}" for name in ("bfloat16", "float16", "float32")})
    classes = (AxisSlice, BufferRegion, CommPlan, ComputeDependency, DevicePlan, ReduceOp, Transfer, TransferOp)
    vars(descriptor).update({each.__name__: each for each in (*classes, XferDependency)})
    given = {"torch": torch, "syncopate": ModuleType("syncopate")}
    given |= {"syncopate.communication": ModuleType("syncopate.communication"), descriptor.__name__: descriptor}
    before = {name: sys.modules.get(name) for name in given}
    sys.modules.update(given)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def executed(text: str) -> CommPlan:
    """The plan that Python makes of a written file."""
    names: dict[str, Any] = {}
    with _modules():
        exec(compile(text, "plan.py", "exec"), names)
    plan = names["plan"]
    assert isinstance(plan, CommPlan)
    return plan


def carried_out(plan: CommPlan, buffers: Buffers, seed: int = 0) -> Mapping[tuple[int, str], Array]:
    """Copy what the plan copies among flat ``buffers`` of each rank, whose kernels have done all before.

    Raises
    ------
    AssertionError
        If copies wait for each other.
    """
    drawn, done = random.Random(seed), set[tuple[int, int, int]]()
    streams = {(rank, at): 0 for rank, device in plan.device_plans.items() for at in range(len(device.xfer))}
    while True:
        left = [key for key, place in streams.items() if place < len(plan.device_plans[key[0]].xfer[key[1]])]
        if not left:
            return buffers
        ready = [key for key in left if all(each in done for each in _waits(_next(plan, streams, key)))]
        assert ready, "copies wait for each other"
        rank, at = drawn.choice(ready)
        _copy(rank, _next(plan, streams, (rank, at)), buffers)
        done.add((rank, at, streams[rank, at]))
        streams[rank, at] += 1


def _next(plan: CommPlan, streams: Mapping[tuple[int, int], int], key: tuple[int, int]) -> Transfer:
    return plan.device_plans[key[0]].xfer[key[1]][streams[key]]


def _waits(copy: Transfer) -> list[tuple[int, int, int]]:
    found = [each for each in copy.dependency if isinstance(each, XferDependency)]
    return [(each.depend_rank, each.depend_xfer_stream, each.depend_xfer_idx) for each in found]


def _copy(rank: int, copy: Transfer, buffers: Buffers) -> None:
    here = rank if copy.peer is None else copy.peer
    source, target = (here, rank) if copy.op is TransferOp.PULL else (rank, here)
    taken = buffers[source, copy.src_buf][copy.src_region.elements()]
    into, numbers = buffers[target, copy.dst_buf], copy.dst_region.elements()
    assert taken.size == numbers.size
    if copy.reduce_op is ReduceOp.SUM:
        into[numbers] += taken
    else:
        into[numbers] = taken
