"""Times of GEMMs of many shapes at once, by the form of ``simcore/kernels/gemm``, which has it for one shape."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ....compiler.ir import MIN_SPLIT_K, SPLITS, TICKS_PER_US, DType, GemmModel, Gpu
from ....simcore.kernels.gemm import ROUNDING_TICKS
from ....simcore.kernels.gemm_form import (
    block_of_fewest_waves,
    l2_bytes_per_s,
    slowdown,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MAX_ROWS_AT_ONCE = 2048
MOST_WEIGHTS = 5
"""Weights that the collector's loop goes through: collector/trtllm/collect_gemm.py of aiconfigurator."""
LOOPED_READS = 2.0
"""Fitted to the bf16 rows of M >= 4096 of A100, H100, B200 and GB300, of half of the pairs of N and K."""


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """The fitted constants, in us, TB/s and plain shares; the last two are of kernels of fewest waves alone."""

    start: float
    mma: float
    hbm: float
    tile: float
    k_step: float
    split: float
    split_bandwidth: float
    exponent: float
    quantisation: float
    ragged: float = 0.0
    uneven: float = 0.0


@dataclass(frozen=True, slots=True)
class GemmTerms:
    """Terms of the form by rows (shapes), tiles and splits [R, T, S]; axes on which a term does not depend are 1.

    ``ideal_math_us`` is the math of a tile at the full peak, ``ideal_memory_us`` the traffic at the full rate of HBM,
    ``partial_bytes`` the additional traffic of split-K, ``floor_us`` the time of all bytes in L2, or the latency of
    memory in every wave, whichever is longer. ``ragged_steps`` are rows beyond M times k steps of a block, times the
    share of SMs that have one, in ``ragged_waves`` waves; ``uneven`` is 1 where columns divide no block of scales.
    """

    waves: Floats
    steps: Floats
    ideal_math_us: Floats
    ideal_memory_us: Floats
    is_split: Floats
    partial_bytes: Floats
    floor_us: Floats
    legal: Bools
    ragged_steps: Floats
    ragged_waves: Floats
    uneven: Floats

    def chosen(self, index: Ints) -> "GemmTerms":
        """Return the terms of one kernel for each row, all [R, 1, 1]; ``index`` [R] counts through tiles and splits."""
        tile, split = np.divmod(index, self.waves.shape[2])

        def pick(term: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            rows = np.arange(len(index)) if term.shape[0] > 1 else 0
            tiles, splits = (each if size > 1 else 0 for each, size in zip((tile, split), term.shape[1:], strict=True))
            return np.broadcast_to(term[rows, tiles, splits], len(index)).reshape(-1, 1, 1)

        return GemmTerms(*(pick(getattr(self, name)) for name in self.__dataclass_fields__))  # type: ignore[arg-type]


def constants_of(model: GemmModel) -> GemmConstants:
    """Return the constants of a profile."""
    return GemmConstants(
        start=model.start_ticks / TICKS_PER_US,
        mma=float(model.mma_fraction),
        hbm=float(model.hbm_fraction),
        tile=model.tile_ticks / TICKS_PER_US,
        k_step=model.k_step_ticks / TICKS_PER_US,
        split=model.split_ticks / TICKS_PER_US,
        split_bandwidth=model.split_bytes_per_s / 1e12,
        exponent=float(model.exponent),
        quantisation=float(model.quantisation),
        ragged=(model.ragged_ticks or 0) / TICKS_PER_US,
        uneven=float(model.uneven),
    )


def gemm_ticks(gpu: Gpu, shapes: Ints, dtype: DType = DType.BF16, *, looped: bool = False) -> Ints:
    """Return the ticks of each GEMM alone on all SMs, with launch; ``shapes`` [R, 3] holds m, n and k below 2^20.

    Those that are ``looped`` find in the L2 what the loop of the collector leaves there, others nothing.
    """
    constants, parts = constants_of(gpu.gemm.of(dtype)), [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(shapes), MAX_ROWS_AT_ONCE):
        terms = gemm_terms(gpu, shapes[begin : begin + MAX_ROWS_AT_ONCE], dtype)
        if looped:
            in_memory = memory_in_loop(gpu, shapes[begin : begin + MAX_ROWS_AT_ONCE], dtype)
            terms = replace(terms, ideal_memory_us=terms.ideal_memory_us * in_memory[:, None, None])
        body_us, index = fastest(body_times_us(terms, constants))
        body_us *= slowdowns(gpu, shapes[begin : begin + MAX_ROWS_AT_ONCE], dtype)
        waves = np.maximum(1, np.ceil(terms.chosen(index).waves.ravel()))
        units = np.ceil(body_us / waves * TICKS_PER_US / ROUNDING_TICKS) * ROUNDING_TICKS
        parts.append(gpu.gemm.of(dtype).start_ticks + (waves * np.maximum(ROUNDING_TICKS, units)).astype(np.int64))
    return np.concatenate(parts)


def memory_in_loop(gpu: Gpu, shapes: Ints, dtype: DType) -> Floats:
    """Return the time in memory of each GEMM in the loop of the collector, over that with an empty L2 [R].

    The loop has one input and one output, and up to ``MOST_WEIGHTS`` weights in turn, as many as the L2 holds. Where
    the L2 holds all of these, operands are read at ``LOOPED_READS`` of the rate of memory.
    """
    m, n, k = shapes.T
    weight, read = n * k * dtype.mean_bytes, (m + n) * k * dtype.mean_bytes
    written = m * n * dtype.of_product.mean_bytes
    weights = np.minimum(MOST_WEIGHTS, np.ceil(gpu.l2.size_bytes / weight)) * weight
    held = read - weight + written + weights <= gpu.l2.size_bytes
    shares: Floats = np.where(held, (read / LOOPED_READS + written) / (read + written), 1.0)
    return shares


def slowdowns(gpu: Gpu, shapes: Ints, dtype: DType) -> Floats:
    """Return how many times as long each GEMM takes as at full clock [R]."""
    return np.array([slowdown(gpu, dtype, flops) for flops in (2 * shapes.prod(axis=1)).tolist()])


def gemm_terms(gpu: Gpu, shapes: Ints, dtype: DType = DType.BF16) -> GemmTerms:
    """Return the terms of each shape with every tile and split, in the order of ``gemm_work``.

    Kernels of fewest waves have one tile and split for each shape.
    """
    by_waves = gpu.gemm.of(dtype).ragged_ticks is not None
    m, n, k = (each[:, None, None] for each in shapes.T)
    split = np.array(SPLITS[:1] if by_waves else SPLITS)[None, None, :]
    if by_waves:
        picked = [block_of_fewest_waves(rows, cols, gpu.sms) for rows, cols in shapes[:, :2].tolist()]
        fields = [(*each.block, 1, each.beyond, each.ragged_waves, each.uneven) for each in picked]
        tiles = np.array(fields, dtype=np.int64).reshape(-1, 6).T[:, :, None, None]
    else:
        tiles = np.array([(*block, sms, 0, 0, 0) for block, sms in gpu.tiles_of(dtype)]).T[:, None, :, None]
    rows, cols, sms_per_tile, beyond, ragged_waves, uneven = tiles
    k_part = _ceil_div(_ceil_div(k, split), 64) * 64
    tile_rows, tile_cols = _ceil_div(m, rows), _ceil_div(n, cols)
    num_bytes = (m + n) * k * dtype.mean_bytes + m * n * dtype.of_product.mean_bytes
    l2_rows = _operand_rows(m, n, tile_rows, tile_cols, np.maximum(1, gpu.gemm.cluster // sms_per_tile))
    l2_bytes = (l2_rows - m - n) * k * dtype.mean_bytes + num_bytes
    l2_us = l2_bytes / l2_bytes_per_s(gpu) * 1e6
    waves = tile_rows * tile_cols * split * sms_per_tile / gpu.sms
    latency_us = np.maximum(1, np.ceil(waves)) * (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
    return GemmTerms(
        waves=np.ceil(waves) if by_waves else waves,
        steps=k_part / 64,
        ideal_math_us=2 * rows * cols * k_part / (sms_per_tile * (gpu.peak(dtype) / gpu.sms)) * 1e6,
        ideal_memory_us=num_bytes / gpu.hbm.peak_bytes_per_s * 1e6,
        is_split=(split > 1).astype(np.float64),
        partial_bytes=np.where(split > 1, 8.0 * split * m * n, 0.0),
        floor_us=np.maximum(l2_us, latency_us),
        legal=((split == 1) | (k_part >= MIN_SPLIT_K)) & (sms_per_tile <= gpu.sms),
        ragged_steps=beyond * np.minimum(1.0, waves) * k_part / 64,
        ragged_waves=ragged_waves.astype(np.float64),
        uneven=uneven.astype(np.float64),
    )


def body_times_us(terms: GemmTerms, constants: GemmConstants) -> Floats:
    """Return times without start [R, T, S] of rows with every tile and split; infinite for illegal kernels."""
    power, waves = constants.exponent, terms.waves
    quantised = np.where(waves <= 1, 1.0, waves + constants.quantisation * (np.ceil(waves) - waves))
    math_us, latency_us = terms.ideal_math_us / constants.mma, terms.steps * constants.k_step
    if terms.uneven.any():
        math_us = math_us * (1 + constants.uneven * terms.uneven)
    step_us = _p_norm(math_us, latency_us, power)
    waves_us = quantised * (step_us + constants.tile)
    if terms.ragged_steps.any():
        waves_us += terms.ragged_waves * (_p_norm(step_us, terms.ragged_steps * constants.ragged, power) - step_us)
    memory_us = terms.ideal_memory_us / constants.hbm
    body_us = _p_norm(waves_us, memory_us, power)
    body_us += terms.is_split * constants.split + terms.partial_bytes / constants.split_bandwidth * 1e-6
    times: Floats = np.where(terms.legal, np.maximum(body_us, terms.floor_us), np.inf)
    return times


def _p_norm(one: Floats, other: Floats, power: float) -> Floats:
    """Return two times imperfectly overlapped, as ``p_norm`` of the kernels; the first is positive."""
    larger = np.maximum(one, other)
    norms: Floats = larger * (1 + (np.minimum(one, other) / larger) ** power) ** (1 / power)
    return norms


def fastest(body_us: Floats) -> tuple[Floats, Ints]:
    """Return the smallest time of each row [R], and the index of its kernel through tiles and splits."""
    flat = body_us.reshape(len(body_us), -1)
    index = flat.argmin(axis=1)
    return flat[np.arange(len(flat)), index], index


def _operand_rows(m: Ints, n: Ints, tile_rows: Ints, tile_cols: Ints, share: Ints) -> Ints:
    """As ``simcore.kernels.gemm_form.operand_bytes``, in rows of K."""
    along_n, along_m = m * _ceil_div(tile_cols, share) + n * tile_rows, m * tile_cols + n * _ceil_div(tile_rows, share)
    return np.minimum(along_n, along_m)


def _ceil_div(value: Ints, divisor: Ints | int) -> Ints:
    """Return ``value / divisor`` rounded up."""
    return -(-value // divisor)
