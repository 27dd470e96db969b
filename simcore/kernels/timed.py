"""Kernels whose time alone is known: all of it is time of their SMs, without traffic of memory."""

from fractions import Fraction

from ...compiler.ir import TICKS_PER_US, Gpu, OpCase, TimedShape
from .work import KernelWork, WorkModel

# A kernel that runs on fewer SMs than it had takes longer, in steps of a unit. So that these are small, it has as many
# units on each SM as take this long each, up to 16. Not measured: a kernel of a few us is one wave of thread blocks.
# One of fewer SMs would have those of its units at once on the others, so that each of its SMs has one.
_UNIT_TICKS = 2 * TICKS_PER_US
_MOST_WAVES = 16


def timed_work(gpu: Gpu, shape: TimedShape, sms: int) -> KernelWork:
    """The kernel where ``sms`` SMs are free: as many units as it has where all are."""
    had = shape.sms or gpu.sms
    waves = max(1, min(_MOST_WAVES, shape.ticks // _UNIT_TICKS)) if had == gpu.sms else 1
    return KernelWork(
        num_units=had * waves,
        unit_ticks=max(1, shape.ticks // waves),
        start_ticks=shape.after_ticks,
        waves=-(-had * waves // min(had, sms)),
        l2_hit_bytes=0,
        hbm_read_bytes=0,
        hbm_write_bytes=0,
        label="timed",
    )


def _min_sm_ticks(scenario: OpCase, shape: TimedShape, share: Fraction) -> int:
    work = timed_work(scenario.gpu, shape, scenario.gpu.sms)
    return work.num_units * work.unit_ticks


MODEL = WorkModel(TimedShape, timed_work, min_sm_ticks=_min_sm_ticks)
