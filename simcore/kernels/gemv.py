"""Matrix times vector: a stream over the weights, one work-group on each SM, however few the rows.

    T = launch + tile + max(streaming time of W, x and y, math at the reached share of the peak)

Library kernels give a work-group some rows, and cut rows along K where there are too few for all SMs; either way every
SM reads an even share of W. Each reads x as well, all but the first from L2. ``tile`` is what a tile of a GEMM takes
beside its k steps. Nothing is fitted. Against GEMMs of one row measured on H100 (aiconfigurator, TensorRT-LLM
collector) the median error is 24 % from 0.25 to 2 Mi weights, 9 % from 4 to 32 Mi and 4 to 7 % above: there the model
is too fast.
"""

import math

from ...compiler.ir import TICKS_PER_SECOND, GemvShape, Gpu
from .elementwise import streaming_ticks
from .work import KernelWork, WorkModel


def gemv_work(gpu: Gpu, shape: GemvShape, sms: int) -> KernelWork:
    """A kernel over ``shape`` on ``sms`` SMs. One unit per SM, but no unit below one line of weights.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive, or the GPU has no peak for the element type.
    """
    if min(shape.n, shape.k, shape.batch, sms) < 1:
        raise ValueError(f"a GEMV needs positive sizes and SMs, got {shape} on {sms}")
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
    weights = shape.n * shape.k * shape.dtype.num_bytes
    read, written = shape.operand_bytes, shape.output_bytes
    num_units = max(1, min(sms, weights // gpu.line_bytes))
    stream_ticks = streaming_ticks(gpu, read + written, num_units)
    rate = gpu.peak(shape.dtype) * gpu.gemm.mma_fraction * num_units / gpu.sms
    unit_ticks = gpu.gemm.tile_ticks + max(stream_ticks, math.ceil(shape.flops * TICKS_PER_SECOND / rate))
    return KernelWork(
        num_units=num_units,
        unit_ticks=unit_ticks,
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=(num_units - 1) * (read - weights),
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label="gemv" if shape.batch == 1 else f"gemv of {shape.batch}",
    )


MODEL = WorkModel(GemvShape, gemv_work)
