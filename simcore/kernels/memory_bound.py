"""Kernels that memory bounds: elementwise kernels, matrix times vector, and sums of partial results.

Elementwise kernels: streams that read every input once and write the output once.

    T = launch + latency + max(bytes / achieved HBM rate, latency * bytes / (SMs * 32 KiB))

The last term is Little's law: an SM moves no more per round trip to memory than it has under way.

Matrix times vector: a stream over the weights, one work-group on each SM, however few the rows.

    T = launch + tile + max(streaming time of W, x and y, math at the reached share of the peak)

Library kernels give a work-group some rows, and cut rows along K where there are too few for all SMs; either way every
SM reads an even share of W. Each reads x as well, all but the first from L2. ``tile`` is what a tile of a GEMM takes
beside its k steps. Nothing is fitted. Against GEMMs of one row measured on H100 (aiconfigurator, TensorRT-LLM
collector) the median error is 24 % from 0.25 to 2 Mi weights, 9 % from 4 to 32 Mi and 4 to 7 % above: there the model
is too fast.

A sum of partial results reads every part once and writes the result once.
"""

import math
from fractions import Fraction

from ...compiler.ir import TICKS_PER_SECOND, ElementwiseShape, GemvShape, Gpu
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


ELEMENTWISE_MODEL = WorkModel(ElementwiseShape, elementwise_work)


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


GEMV_MODEL = WorkModel(GemvShape, gemv_work)


def reduce_work(gpu: Gpu, num_bytes: int, num_parts: int, sms: int, hit_bytes: int = 0) -> KernelWork:
    """A kernel over ``num_bytes`` of result and ``num_parts`` operands of that size, on ``sms`` SMs.

    It reads ``hit_bytes`` from the last cache in front of memory, the rest from memory. Alone it takes as long as its
    traffic takes at the achieved HBM rate, or the hits at that of the cache. One unit per SM, but no unit below one
    line.
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
