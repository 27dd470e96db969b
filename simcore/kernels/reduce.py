"""Sum of partial results: a memory-bound kernel that reads every part once and writes the result once."""

from ...compiler.ir import Gpu
from .gemm import ticks_for
from .work import KernelWork


def reduce_work(gpu: Gpu, num_bytes: int, num_parts: int, sms: int, hit_bytes: int = 0) -> KernelWork:
    """A kernel over ``num_bytes`` of result and ``num_parts`` operands of that size, on ``sms`` SMs.

    Of what it reads, ``hit_bytes`` are in the last cache in front of memory. Alone it takes as long as its traffic
    takes at the achieved HBM rate, or the hits at that of the cache. One unit per SM, but no unit below one line.
    """
    cache, traffic = gpu.last_cache, num_bytes * (num_parts + 1) - hit_bytes
    cached = 0 if cache is None else ticks_for(hit_bytes, cache.bytes_per_s)
    num_units = max(1, min(sms, num_bytes // gpu.line_bytes))
    return KernelWork(
        num_units=num_units,
        unit_ticks=max(cached, ticks_for(traffic, gpu.hbm.achieved_bytes_per_s)),
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=hit_bytes if gpu.mall is None else 0,
        hbm_read_bytes=num_bytes * num_parts - hit_bytes,
        hbm_write_bytes=num_bytes,
        label=f"sum of {num_parts}",
        mall_read_bytes=0 if gpu.mall is None else hit_bytes,
    )
