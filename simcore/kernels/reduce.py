"""Sum of partial results: a memory-bound kernel that reads every part once and writes the result once."""

from ...compiler.scenario import Gpu
from .gemm import ticks_for
from .work import KernelWork


def reduce_work(gpu: Gpu, num_bytes: int, num_parts: int, sms: int) -> KernelWork:
    """A kernel over ``num_bytes`` of result and ``num_parts`` operands of that size, on ``sms`` SMs.

    Alone it takes as long as its traffic takes at the achieved HBM rate. One unit per SM, but no unit below one line.
    """
    traffic = num_bytes * (num_parts + 1)
    num_units = max(1, min(sms, num_bytes // gpu.line_bytes))
    return KernelWork(
        num_units=num_units,
        unit_ticks=ticks_for(traffic, gpu.hbm.achieved_bytes_per_s),
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=0,
        hbm_read_bytes=num_bytes * num_parts,
        hbm_write_bytes=num_bytes,
        stall_ticks=0,
        label=f"sum of {num_parts}",
    )
