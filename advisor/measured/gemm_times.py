"""Times of many GEMMs at once: what ``simcore.kernels.gemm.gemm_work`` says of each, over arrays.

A hundred thousand shapes one by one take minutes. The form, its constants and its rounding are those of ``gemm_work``;
a test holds the two together, and ``magus validate`` simulates a sample with the scalar one.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...compiler.scenario import TICKS_PER_US, DType, Gpu
from ...simcore.kernels.gemm import L2_SHARE, MIN_SPLIT_K, ROUNDING_TICKS, SPLITS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def gemm_ticks(gpu: Gpu, shapes: Ints, dtype: DType = DType.BF16) -> Ints:
    """Ticks of each GEMM alone on all SMs, launch included; ``shapes`` [S, 3] holds m, n and k, each below 2^20."""
    m, n, k = shapes.T
    best_us = np.full(len(shapes), np.inf)
    waves = np.ones(len(shapes))
    for block, sms_per_tile, split in _choices(gpu):
        k_part = _up(_up(k, split), 64) * 64
        body_us, own_waves = _body_us(gpu, (m, n, k), dtype, block, sms_per_tile, split, k_part)
        better = (body_us < best_us) & ((split == 1) | (k_part >= MIN_SPLIT_K))
        best_us = np.where(better, body_us, best_us)
        waves = np.where(better, own_waves, waves)
    waves = np.maximum(1, np.ceil(waves))
    units = np.ceil(best_us / waves * TICKS_PER_US / ROUNDING_TICKS) * ROUNDING_TICKS
    total: Ints = gpu.gemm.start_ticks + (waves * np.maximum(ROUNDING_TICKS, units)).astype(np.int64)
    return total


def _choices(gpu: Gpu) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Every tile, the SMs that compute it together, and every split, in the order of ``gemm_work``."""
    for sms_per_tile, tiles in ((1, gpu.gemm.tiles), (2, gpu.gemm.pair_tiles)):
        for block in tiles:
            for split in SPLITS:
                yield block, sms_per_tile, split


def _body_us(
    gpu: Gpu,
    mnk: tuple[Ints, Ints, Ints],
    dtype: DType,
    block: tuple[int, int],
    sms_per_tile: int,
    split: int,
    k_part: Ints,
) -> tuple[Floats, Floats]:
    """Time without launch in us, and waves, of each shape with one tile and split."""
    m, n, k = mnk
    model, power = gpu.gemm, float(gpu.gemm.exponent)
    tile_rows, tile_cols = _up(m, block[0]), _up(n, block[1])
    waves = tile_rows * tile_cols * split * sms_per_tile / gpu.sms
    quantised = np.where(waves <= 1, 1.0, waves + float(model.quantisation) * (np.ceil(waves) - waves))
    tile_us = _tile_us(gpu, dtype, block, sms_per_tile, k_part)
    num_bytes = (m * k + k * n + m * n) * dtype.num_bytes
    memory_us = num_bytes / (float(model.hbm_fraction) * gpu.hbm.peak_bytes_per_s) * 1e6
    body_us = ((quantised * tile_us) ** power + memory_us**power) ** (1 / power)
    if split > 1:
        body_us = body_us + (model.split_ticks / TICKS_PER_US + 8 * split * m * n / model.split_bytes_per_s * 1e6)
    l2_bytes = (m * tile_cols + n * tile_rows) * k * dtype.num_bytes + num_bytes - (m + n) * k * dtype.num_bytes
    l2_us = l2_bytes / (L2_SHARE * gpu.l2.instances * gpu.l2.bytes_per_s) * 1e6
    return np.maximum(body_us, l2_us), waves


def _tile_us(gpu: Gpu, dtype: DType, block: tuple[int, int], sms_per_tile: int, k_part: Ints) -> Floats:
    model, power = gpu.gemm, float(gpu.gemm.exponent)
    rate = gpu.peak(dtype) / gpu.sms * float(model.mma_fraction) * sms_per_tile
    math_us = 2 * block[0] * block[1] * k_part / rate * 1e6
    latency_us = k_part / 64 * model.k_step_ticks / TICKS_PER_US
    tile: Floats = (math_us**power + latency_us**power) ** (1 / power) + model.tile_ticks / TICKS_PER_US
    return tile


def _up(value: Ints, divisor: int) -> Ints:
    """``value / divisor`` rounded up."""
    return -(-value // divisor)
