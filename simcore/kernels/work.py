"""Work models of kernels, and the work that lowering takes: equal units with SM time and memory traffic."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from ...compiler.ir import TICKS_PER_US, Gpu, KernelShape, OpCase, TileGroup, TimedShape


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel alone on its SMs.

    ``num_units`` work units take one SM slot each for ``unit_ticks``; a tile of two SMs is two units. ``start_ticks``
    is launch and drain. Byte counts are of the whole kernel: ``l2_hit_bytes`` are operand reads that L2 serves,
    ``hbm_read_bytes`` come from memory through L2, ``hbm_write_bytes`` leave through L2, ``mall_read_bytes`` come
    through L2 from the cache in front of memory. ``missed_bytes`` are reads below L2 that would hit the L2 of the GPU
    with which the form was fitted. ``noc_ticks`` is the time of the network on chip that a unit takes, ``block_rows``
    the rows of a tile and ``block_cols`` its columns, 0 where units are no tiles.
    """

    num_units: int
    unit_ticks: int
    start_ticks: int
    waves: int
    l2_hit_bytes: int
    hbm_read_bytes: int
    hbm_write_bytes: int
    label: str
    mall_read_bytes: int = 0
    missed_bytes: int = 0
    noc_ticks: int = 0
    block_rows: int = 0
    block_cols: int = 0

    @property
    def body_ticks(self) -> int:
        """Duration without launch when nothing else runs."""
        return self.waves * self.unit_ticks

    @property
    def below_l2_bytes(self) -> int:
        """Bytes read through L2 that it does not hold."""
        return self.hbm_read_bytes + self.mall_read_bytes

    @property
    def alone_ticks(self) -> int:
        """Duration with launch when nothing else runs."""
        return self.start_ticks + self.body_ticks


ShapeT = TypeVar("ShapeT", bound=KernelShape)


def _whole(scenario: OpCase, shape: KernelShape, group: TileGroup) -> KernelShape:
    return shape


def _no_bound(scenario: OpCase, shape: Any, share: Fraction) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class WorkModel(Generic[ShapeT]):
    """How kernels of one class of shapes run.

    ``work(gpu, shape, sms)`` is the kernel alone on ``sms`` SMs; where ``Cutting.adds`` of the shape says that its
    parts add up, ``work`` also takes ``accumulate``: whether it adds to what another kernel left of the output.
    """

    shape: type[ShapeT]
    work: Callable[..., KernelWork]
    # What a group of tiles computes of the kernel, where a schedule may cut it.
    part: Callable[[OpCase, ShapeT, TileGroup], KernelShape] = _whole
    # A lower bound on the SM-ticks (SMs times time) of a share of its rows, however the kernel is cut; 0 is none.
    min_sm_ticks: Callable[[OpCase, ShapeT, Fraction], int] = _no_bound


def hbm_bytes(shape: KernelShape, accumulate: bool) -> tuple[int, int]:
    """Compulsory bytes read and written: each operand and the output once, the output also read to accumulate."""
    return shape.operand_bytes + (shape.output_bytes if accumulate else 0), shape.output_bytes


# Kernels whose time alone is known: all of it is time of their SMs, without traffic of memory.

# A kernel that runs on fewer SMs than it had takes longer, in steps of a unit. So that these are small, it has as many
# units on each SM as take this long each, up to 16. Not measured: a kernel of a few us is one wave of thread blocks.
# One of fewer SMs would have those of its units at once on the others, so that each of its SMs has one.
_UNIT_TICKS = 2 * TICKS_PER_US
_MOST_WAVES = 16


def timed_work(gpu: Gpu, shape: TimedShape, sms: int) -> KernelWork:
    """The kernel where ``sms`` SMs are free: as many units as it has where all are."""
    num_sms = shape.sms or gpu.sms
    waves = max(1, min(_MOST_WAVES, shape.ticks // _UNIT_TICKS)) if num_sms == gpu.sms else 1
    return KernelWork(
        num_units=num_sms * waves,
        unit_ticks=max(1, shape.ticks // waves),
        start_ticks=shape.after_ticks,
        waves=-(-num_sms * waves // min(num_sms, sms)),
        l2_hit_bytes=0,
        hbm_read_bytes=0,
        hbm_write_bytes=0,
        label="timed",
    )


def _min_sm_ticks(scenario: OpCase, shape: TimedShape, share: Fraction) -> int:
    work = timed_work(scenario.gpu, shape, scenario.gpu.sms)
    return work.num_units * work.unit_ticks


MODEL = WorkModel(TimedShape, timed_work, min_sm_ticks=_min_sm_ticks)
