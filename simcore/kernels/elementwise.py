"""Elementwise kernels: streams that read every input once and write the output once.

    T = launch + latency + max(bytes / achieved HBM rate, latency * bytes / (SMs * 32 KiB))

The last term is Little's law: an SM moves no more per round trip to memory than it has under way.
"""

import math
from fractions import Fraction

from ...compiler.ir import ElementwiseShape, Gpu
from .gemm import ticks_for
from .work import KernelWork, WorkModel

# 2048 resident threads (NVIDIA CUDA Programming Guide, compute capability 8.0 to 10.0; as many on a compute unit of
# CDNA 3, 32 waves of 64), each with one load of 16 bytes, the widest.
BYTES_IN_FLIGHT_PER_SM = 2048 * 16


def elementwise_work(gpu: Gpu, shape: ElementwiseShape, sms: int) -> KernelWork:
    """A kernel over ``shape`` on ``sms`` SMs. One unit per SM, but no unit below one line.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive.
    """
    if min(shape.num_elements, shape.num_inputs, sms) < 1:
        raise ValueError(f"an elementwise kernel needs positive sizes and SMs, got {shape} on {sms}")
    read, written = shape.operand_bytes, shape.output_bytes
    num_units = max(1, min(sms, written // gpu.line_bytes))
    return KernelWork(
        num_units=num_units,
        unit_ticks=streaming_ticks(gpu, read + written, num_units),
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=0,
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label=f"elementwise of {shape.num_inputs}",
    )


def streaming_ticks(gpu: Gpu, num_bytes: int, num_units: int) -> int:
    """Time in which ``num_units`` SMs together move ``num_bytes`` from or to memory, each an even share."""
    latency = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    waiting = math.ceil(latency * Fraction(num_bytes, num_units * BYTES_IN_FLIGHT_PER_SM))
    return latency + max(ticks_for(num_bytes, gpu.hbm.achieved_bytes_per_s), waiting)


MODEL = WorkModel(ElementwiseShape, elementwise_work)
