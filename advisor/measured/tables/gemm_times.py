"""Times of many GEMMs at once: ``simcore.kernels.gemm.gemm_work`` over arrays.

A hundred thousand shapes one by one take minutes. The form, its constants and its rounding are those of ``gemm_work``;
a test compares both, and ``magus validate`` simulates a sample with the scalar one. ``GemmTerms`` holds the terms that
do not depend on the fitted constants, so that a fit can try many constants.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....compiler.ir import TICKS_PER_US, DType, GemmModel, Gpu
from ....simcore.kernels.gemm import ROUNDING_TICKS
from ....simcore.kernels.gemm_form import MIN_SPLIT_K, SPLITS, l2_bytes_per_s

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MAX_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """The nine fitted constants, in us, TB/s and plain shares."""

    start: float
    mma: float
    hbm: float
    tile: float
    k_step: float
    split: float
    split_bandwidth: float
    exponent: float
    quantisation: float


@dataclass(frozen=True, slots=True)
class GemmTerms:
    """Terms of the form by rows (shapes), tiles and splits [R, T, S]; axes on which a term does not depend are 1.

    ``ideal_math_us`` is the math of a tile at the full peak, ``ideal_memory_us`` the traffic at the full rate of HBM,
    ``partial_bytes`` the additional traffic of split-K, ``floor_us`` the time of all bytes in L2, or the latency of
    memory in every wave, whichever is longer.
    """

    waves: Floats
    steps: Floats
    ideal_math_us: Floats
    ideal_memory_us: Floats
    is_split: Floats
    partial_bytes: Floats
    floor_us: Floats
    legal: Bools

    def chosen(self, index: Ints) -> "GemmTerms":
        """Return the terms of one kernel for each row, all [R, 1, 1]; ``index`` [R] counts through tiles and splits."""
        tile, split = np.divmod(index, self.waves.shape[2])

        def pick(term: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            rows = np.arange(len(index)) if term.shape[0] > 1 else 0
            tiles, splits = (each if size > 1 else 0 for each, size in zip((tile, split), term.shape[1:], strict=True))
            return np.broadcast_to(term[rows, tiles, splits], len(index)).reshape(-1, 1, 1)

        return GemmTerms(*(pick(getattr(self, name)) for name in self.__dataclass_fields__))  # type: ignore[arg-type]


def constants_of(model: GemmModel) -> GemmConstants:
    """Return the nine constants of a profile."""
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
    )


def gemm_ticks(gpu: Gpu, shapes: Ints, dtype: DType = DType.BF16) -> Ints:
    """Return the ticks of each GEMM alone on all SMs, with launch; ``shapes`` [R, 3] holds m, n and k below 2^20."""
    constants, parts = constants_of(gpu.gemm), [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(shapes), MAX_ROWS_AT_ONCE):
        terms = gemm_terms(gpu, shapes[begin : begin + MAX_ROWS_AT_ONCE], dtype)
        body_us, index = fastest(body_times_us(terms, constants))
        waves = np.maximum(1, np.ceil(terms.chosen(index).waves.ravel()))
        units = np.ceil(body_us / waves * TICKS_PER_US / ROUNDING_TICKS) * ROUNDING_TICKS
        parts.append(gpu.gemm.start_ticks + (waves * np.maximum(ROUNDING_TICKS, units)).astype(np.int64))
    return np.concatenate(parts)


def gemm_terms(gpu: Gpu, shapes: Ints, dtype: DType = DType.BF16) -> GemmTerms:
    """Return the terms of each shape with every tile and split, in the order of ``gemm_work``."""
    tiles = [(*block, 2) for block in gpu.gemm.pair_tiles] + [(*block, 1) for block in gpu.gemm.tiles]
    rows, cols, sms_per_tile = (np.array(each)[None, :, None] for each in zip(*tiles, strict=True))
    split = np.array(SPLITS)[None, None, :]
    m, n, k = (each[:, None, None] for each in shapes.T)
    k_part = _ceil_div(_ceil_div(k, split), 64) * 64
    tile_rows, tile_cols = _ceil_div(m, rows), _ceil_div(n, cols)
    num_bytes = (m * k + k * n + m * n) * dtype.num_bytes
    l2_rows = _operand_rows(m, n, tile_rows, tile_cols, np.maximum(1, gpu.gemm.cluster // sms_per_tile))
    l2_bytes = (l2_rows - m - n) * k * dtype.num_bytes + num_bytes
    l2_us = l2_bytes / l2_bytes_per_s(gpu) * 1e6
    waves = tile_rows * tile_cols * split * sms_per_tile / gpu.sms
    latency_us = np.maximum(1, np.ceil(waves)) * (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
    return GemmTerms(
        waves=waves,
        steps=k_part / 64,
        ideal_math_us=2 * rows * cols * k_part / (sms_per_tile * (gpu.peak(dtype) / gpu.sms)) * 1e6,
        ideal_memory_us=num_bytes / gpu.hbm.peak_bytes_per_s * 1e6,
        is_split=(split > 1).astype(np.float64),
        partial_bytes=np.where(split > 1, 8.0 * split * m * n, 0.0),
        floor_us=np.maximum(l2_us, latency_us),
        legal=((split == 1) | (k_part >= MIN_SPLIT_K)) & (sms_per_tile <= gpu.sms),
    )


def body_times_us(terms: GemmTerms, constants: GemmConstants) -> Floats:
    """Return times without start [R, T, S] of rows with every tile and split; infinite for illegal kernels."""
    power, waves = constants.exponent, terms.waves
    quantised = np.where(waves <= 1, 1.0, waves + constants.quantisation * (np.ceil(waves) - waves))
    math_us, latency_us = terms.ideal_math_us / constants.mma, terms.steps * constants.k_step
    tile_us = _p_norm(math_us, latency_us, power) + constants.tile
    memory_us = terms.ideal_memory_us / constants.hbm
    body_us = _p_norm(quantised * tile_us, memory_us, power)
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
    """See ``simcore.kernels.gemm_form.operand_rows``."""
    along_n, along_m = m * _ceil_div(tile_cols, share) + n * tile_rows, m * tile_cols + n * _ceil_div(tile_rows, share)
    return np.minimum(along_n, along_m)


def _ceil_div(value: Ints, divisor: Ints | int) -> Ints:
    """Return ``value / divisor`` rounded up."""
    return -(-value // divisor)
