"""Grouped GEMM: the tiles of all experts in one launch, by the form of ``gemm.py``.

All experts have the same tile, the best for the whole, and no split-K (NVIDIA CUTLASS, grouped GEMM; DeepGEMM):

    W = sum over experts of ceil(rows_e / bm) * ceil(N / bn) * u / sms

A tile that an expert fills in part costs a whole one: that is what uneven and small loads lose. The weights of every
expert that has rows are read once, so that few tokens on many experts are bound by memory. The constants are those of
plain GEMMs; no grouped GEMM has been measured.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from ...compiler.ir import GemmShape, Gpu, GroupedGemmShape
from .gemm import ROUNDING_TICKS, gemm_work, least_us, operand_rows, rounded_ticks, tile_time_us, tiled_us, tiles_of
from .work import KernelWork


@dataclass(frozen=True, slots=True)
class _Tiling:
    """One tile for all experts with its time in us; ``num_slots`` counts the SM slots that all tiles take."""

    block: tuple[int, int]
    pair: bool
    num_slots: int
    tile_us: float
    body_us: float
    l2_read_bytes: int


@lru_cache(maxsize=8192)
def grouped_gemm_work(gpu: Gpu, shape: GroupedGemmShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel of all experts on ``sms`` SMs; with one expert that has rows it is that of a plain GEMM.

    Where it is to ``accumulate``, the output is read and added to.

    Raises
    ------
    ValueError
        If a size other than an expert's rows or ``sms`` is not positive, rows are negative or all 0, or the GPU has no
        peak for the element type or no tile for ``sms``.
    """
    if min(shape.n, shape.k, sms) < 1 or min(shape.rows, default=0) < 0 or not any(shape.rows):
        raise ValueError(f"a grouped GEMM needs rows, positive n, k and SMs, got {shape} on {sms}")
    rows = tuple(count for count in shape.rows if count)
    if len(rows) == 1:
        return gemm_work(gpu, GemmShape(rows[0], shape.n, shape.k, shape.dtype), sms, accumulate)
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
    read, written = hbm_bytes_of_experts(shape, accumulate)
    tilings = [
        _tiling(gpu, shape, rows, sms, block, units, accumulate) for block, units in tiles_of(gpu) if units <= sms
    ]
    if not tilings:
        raise ValueError(f"{gpu.name} has no tile for {sms} SM")
    best = min(tilings, key=lambda tiling: tiling.body_us)
    waves = math.ceil(best.num_slots / sms)
    unit_ticks = max(ROUNDING_TICKS, rounded_ticks(best.body_us / waves))
    return KernelWork(
        num_units=best.num_slots if waves == 1 else waves * sms,
        unit_ticks=unit_ticks,
        start_ticks=gpu.gemm.start_ticks,
        waves=waves,
        l2_hit_bytes=max(0, best.l2_read_bytes - read),
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        stall_ticks=unit_ticks - rounded_ticks(best.tile_us),
        label=f"{best.block[0]}x{best.block[1]}{' pair' if best.pair else ''} of {len(rows)}",
    )


def hbm_bytes_of_experts(shape: GroupedGemmShape, accumulate: bool) -> tuple[int, int]:
    """Compulsory bytes read and written: A and C of every expert, and B of those that have rows; C also read to add."""
    total, used = sum(shape.rows), sum(count > 0 for count in shape.rows)
    read = (total + used * shape.n) * shape.k + (total * shape.n if accumulate else 0)
    return read * shape.dtype.num_bytes, total * shape.n * shape.dtype.num_bytes


def _tiling(
    gpu: Gpu,
    shape: GroupedGemmShape,
    rows: tuple[int, ...],
    sms: int,
    block: tuple[int, int],
    units: int,
    accumulate: bool,
) -> _Tiling:
    model = gpu.gemm
    tile_rows = [math.ceil(count / block[0]) for count in rows]
    tile_cols = math.ceil(shape.n / block[1])
    num_slots = sum(tile_rows) * tile_cols * units
    waves = num_slots / sms
    tile_us = tile_time_us(
        gpu, GemmShape(sum(rows), shape.n, shape.k, shape.dtype), block, units, 64 * -(-shape.k // 64)
    )
    read, written = hbm_bytes_of_experts(shape, accumulate)
    body_us = tiled_us(gpu, waves, float(model.quantisation), tile_us, read + written)
    operands = sum(
        operand_rows(count, shape.n, tiles, tile_cols, model.cluster // units)
        for count, tiles in zip(rows, tile_rows, strict=True)
    )
    l2_read_bytes = operands * shape.k * shape.dtype.num_bytes
    body_us = max(body_us, least_us(gpu, waves, l2_read_bytes + written))
    return _Tiling(block, units == 2, num_slots, tile_us, body_us, l2_read_bytes)
