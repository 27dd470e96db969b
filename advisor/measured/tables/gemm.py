"""GEMM tables of aiconfigurator's collector against the fitted form.

A table is a file ``gemm_NAME.csv`` or ``.csv.gz`` with the columns gpu, m, n, k, dtype and time_us. The constants of
bf16 and fp8 were fitted to a random part of the same tables, so that comparisons include rows of the fit; those of
types with scales to half of the pairs of n and k, and the other half is compared by itself.

The collector lets the layer quantize its input, so that a row of fp8 is the search for a scale, the cast and the GEMM.
``quantize.csv.gz`` beside the tables has the first two for each GPU, m and k; what is compared is the rest. Casts to
types with scales were not measured. They find scales and cast in one pass over the same input, and count as the cast to
fp8 with a scale that is known, which reads as much and writes as much or twice as much; on H100 as 1.5 of them.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from ....compiler import compile_text
from ....compiler.ir import TICKS_PER_US, DType, GemmModel, Gpu, OpCase
from ....compiler.text.load import shipped_libraries
from ....simcore.kernels.gemm import ROUNDING_TICKS
from ....simcore.kernels.gemm_form import (
    MIN_SPLIT_K,
    SPLITS,
    block_of_fewest_waves,
    l2_bytes_per_s,
    slowdown,
)
from .csv_rows import FIT, HELD_OUT, MissingTable, TableComparison, in_odd_half, left_out_lines, read_rows

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


PATTERNS = ("gemm_*.csv", "gemm_*.csv.gz")
COLUMNS = ("gpu", "dtype")
NUMBERS = ("m", "n", "k", "time_us")
FOREIGN = "gemm_mi"
"""Prefix of tables of other collectors, with warm caches or tuned kernels; nothing is fitted to them."""

MAX_DIMENSION = 1 << 20
ALL, LARGE = "gemm bf16", "gemm bf16, n,k >= 512"
LONG, LOOPED, LONG_ROWS = "gemm bf16, m >= 4096", "gemm bf16, m >= 4096, in a loop", 4096
QUANTIZE = "quantize*.csv"
QUANTIZE_PATTERNS = (QUANTIZE, f"{QUANTIZE}.gz")
CAST_STEPS: Mapping[DType, frozenset[str]] = {
    DType.BF16: frozenset(),
    DType.FP8: frozenset(("computescale", "scale_matrix")),
    DType.FP8_BLOCK: frozenset(("scale_matrix",)),
    DType.NVFP4: frozenset(("scale_matrix",)),
}
"""The types that are compared, with the steps of ``QUANTIZE`` that are in their rows."""
LONGER_CASTS: Mapping[tuple[str, DType], float] = {("H100", DType.FP8_BLOCK): 1.5}
"""Times the steps of ``QUANTIZE`` that those in a row take, fitted with the constants to the same half of its rows."""
PARTS, MIN_WHOLE, LARGE_WHOLE = 8, 512, 2048

Shape = tuple[int, int, int]  # m, n, k
SCENARIO = """
use "{library}"
link none {{ bandwidth 1 GB/s; achieved 1 GB/s; latency 1 ns }}
system one {{ gpus 1 x {gpu}; fabric full_mesh(none) }}
workload lone on one {{
  x = tensor bf16[64, 64]
  w = tensor bf16[64, 64]
  y = gemm(x, w)
}}
"""


@dataclass(frozen=True, slots=True)
class GemmTable:
    """The GEMMs of one type of one GPU in one file: time in us by shape, the median of repeats."""

    gpu: str
    times_us: Mapping[Shape, float]
    file: str = ""
    dtype: DType = DType.BF16


@cache
def lone_scenario(gpu: str) -> OpCase | None:
    """Return a GEMM on one GPU of the shipped library, for instance ``H100``; None without a profile of that name."""
    libraries = {name.partition("/")[2]: name for name in shipped_libraries()}
    if gpu.lower() not in libraries:
        return None
    return compile_text(SCENARIO.format(library=libraries[gpu.lower()], gpu=gpu)).scenario().case


def gpu_name(text: str) -> str:
    """Return the short name of the GPU of a table, for instance A100 for ``A100-SXM4-80GB``."""
    return text.replace(" ", "-").partition("-")[0].upper()


def peak_us(gpu: Gpu, dtype: DType, shape: Shape) -> float:
    """Return the time in us of a GEMM at the peak of ``gpu``, than which none is faster; 0 without a peak."""
    peak = gpu.peak(dtype)
    return 2e6 * prod(shape) / peak if peak else 0.0


def gemm_tables(folder: Path, only: str = "") -> Iterator[GemmTable | str]:
    """Yield every table of ``folder``, one GPU at a time, or a text that says why rows were left out.

    If ``only`` names a GPU, with or without a profile, rows of others are ignored.

    Raises
    ------
    MissingTable
        If there is no table.
    MeasuredError
        If one cannot be read.
    """
    paths = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    if not paths:
        raise MissingTable(f"{folder}: no table gemm_*.csv or gemm_*.csv.gz")
    casts_us = yield from _casts_us(folder)
    for path in paths:
        if path.name.startswith(FOREIGN):
            if not only:
                yield f"{path.name}: not compared: another collector, with warm caches or tuned kernels"
            continue
        yield from _tables_of(path, only, casts_us)


Casts = Mapping[tuple[str, float, float], Mapping[str, float]]  # us of each step by GPU, m and k


def _casts_us(folder: Path) -> Generator[str, None, Casts]:
    """Return what the search for a scale and the cast take of each input; yield why rows were left out."""
    casts: dict[tuple[str, float, float], dict[str, float]] = defaultdict(dict)
    for path in sorted(path for pattern in QUANTIZE_PATTERNS for path in folder.glob(pattern)):
        table = read_rows(path, ("gpu", "op", "dtype"), ("m", "k", "time_us"))
        yield from table.skipped
        for row in table.rows:
            if row["dtype"] == DType.FP8.value:
                casts[gpu_name(row["gpu"]), float(row["m"]), float(row["k"])][row["op"]] = float(row["time_us"])
    return casts


def _tables_of(path: Path, only: str, casts_us: Casts) -> Iterator[GemmTable | str]:
    table = read_rows(path, COLUMNS, NUMBERS)
    yield from table.skipped
    times: dict[tuple[str, DType], dict[Shape, list[float]]] = defaultdict(lambda: defaultdict(list))
    compared = {each.value: each for each in CAST_STEPS}
    left_out: Counter[str] = Counter()
    for row in table.rows:
        gpu, shape = gpu_name(row["gpu"]), _shape(row)
        if only and gpu != only:
            continue
        dtype = compared.get(row["dtype"])
        if dtype is None:
            left_out[f"{row['dtype']} is another kernel, and its constants are not fitted"] += 1
        elif shape is None:
            left_out[f"a dimension is not a whole number up to {MAX_DIMENSION}"] += 1
        elif not only and lone_scenario(gpu) is None:
            left_out[f"there is no profile of {gpu}"] += 1
        elif not only and not _has_peak(gpu, dtype):
            left_out[f"{gpu} has no peak rate for {dtype.value}"] += 1
        elif (gemm_us := _gemm_us(row, dtype, gpu, shape, casts_us)) is None:
            left_out[f"{dtype.value} with the cast of the input in it, which no table of {QUANTIZE} has"] += 1
        else:
            times[gpu, dtype][shape].append(gemm_us)
    for (gpu, dtype), by_shape in times.items():
        measured = GemmTable(gpu, {shape: median(repeats) for shape, repeats in by_shape.items()}, path.name, dtype)
        yield from (measured,) if only else _within_peak(measured)
    yield from left_out_lines(path, left_out)


def _within_peak(table: GemmTable) -> Iterator[GemmTable | str]:
    """Yield the table without rows that are above the peak of its GPU, and a text that names the first of these."""
    scenario = lone_scenario(table.gpu)
    assert scenario is not None, "rows of GPUs without a profile are left out"
    fast = [each for each, us in table.times_us.items() if us < peak_us(scenario.gpu, table.dtype, each)]
    if fast:
        row = f"{label_of(fast[0])}, {table.dtype.value}, in {table.times_us[fast[0]]:.4g} us"
        yield f"{table.file}: {row} and {len(fast) - 1:,} more: faster than the peak of {table.gpu}"
    kept = dict(table.times_us)
    for shape in fast:
        del kept[shape]
    if kept:
        yield replace(table, times_us=kept)


def _has_peak(gpu: str, dtype: DType) -> bool:
    scenario = lone_scenario(gpu)
    return scenario is not None and scenario.gpu.peak(dtype) > 0


def _gemm_us(row: Mapping[str, str], dtype: DType, gpu: str, shape: Shape, casts_us: Casts) -> float | None:
    """Return the time of the GEMM of a row; None if that of the cast is not known, or as long as the row."""
    cast, steps = casts_us.get((gpu, shape[0], shape[2]), {}), CAST_STEPS[dtype]
    if not cast.keys() >= steps:
        return None
    longer = LONGER_CASTS.get((gpu, dtype), 1.0)
    gemm_us = float(row["time_us"]) - longer * sum(cast[step] for step in steps)
    return gemm_us if gemm_us > 0 else None


def _shape(row: Mapping[str, str]) -> Shape | None:
    """Return the shape of a row; a dimension may be written as 64 or 64.0. None if it is invalid."""
    m, n, k = (float(row[name]) for name in NUMBERS[:3])
    if max(m, n, k) > MAX_DIMENSION or any(size % 1 for size in (m, n, k)):
        return None
    return int(m), int(n), int(k)


def gemm_comparisons(table: GemmTable) -> Iterator[TableComparison]:
    """Yield every row among all shapes, and again among large n and k; then the decomposition ratios of bf16."""
    predicted = predicted_us(table.gpu, list(table.times_us), table.dtype)
    every, large = (name.replace(DType.BF16.value, table.dtype.value) for name in (ALL, LARGE))
    for shape, measured in table.times_us.items():
        half = f"{HELD_OUT if in_odd_half(f'{shape[1]}/{shape[2]}') else FIT}, " if table.dtype.block > 1 else ""
        group, label = half + size_class(shape), label_of(shape)
        for operation in (every, large) if min(shape[1:]) >= 512 else (every,):
            yield TableComparison(table.gpu, operation, group, label, measured, predicted[shape])
    if table.dtype is DType.BF16:
        yield from _long(table, predicted)
        for axis, name in enumerate("MNK"):
            yield from _ratios(table, predicted, axis, f"ratio {name}/{PARTS}")


def _long(table: GemmTable, predicted: Mapping[Shape, float]) -> Iterator[TableComparison]:
    """Yield rows of many rows of M, with an empty L2 as in a layer, and with what the loop that timed them leaves."""
    shapes = [shape for shape in table.times_us if shape[0] >= LONG_ROWS]
    looped = predicted_us(table.gpu, shapes, looped=True)
    for operation, found in ((LONG, predicted), (LOOPED, looped)):
        for shape in shapes:
            group = HELD_OUT if in_odd_half(f"{shape[1]}/{shape[2]}") else FIT
            yield TableComparison(table.gpu, operation, group, label_of(shape), table.times_us[shape], found[shape])


def predicted_us(
    gpu: str, shapes: Sequence[Shape], dtype: DType = DType.BF16, *, looped: bool = False
) -> dict[Shape, float]:
    """Return the time of each shape by the profile of ``gpu``, in us, ``looped`` as in ``gemm_ticks``."""
    scenario = lone_scenario(gpu)
    assert scenario is not None, "tables hold GPUs with a profile"
    ticks = gemm_ticks(scenario.gpu, np.array(shapes, dtype=np.int64).reshape(-1, 3), dtype, looped=looped)
    return dict(zip(shapes, (ticks / TICKS_PER_US).tolist(), strict=True))


def _ratios(table: GemmTable, predicted: Mapping[Shape, float], axis: int, operation: str) -> Iterator[TableComparison]:
    """Yield ratios of the time of all equal parts along one dimension to the time of the whole GEMM."""
    for whole, whole_us in table.times_us.items():
        part = _part_of(whole, axis)
        if part is None or min(whole) < MIN_WHOLE or part not in table.times_us:
            continue
        group = f"m,n,k >= {LARGE_WHOLE}" if min(whole) >= LARGE_WHOLE else f"one of m,n,k < {LARGE_WHOLE}"
        measured = PARTS * table.times_us[part] / whole_us
        of_model = PARTS * predicted[part] / predicted[whole]
        yield TableComparison(table.gpu, operation, group, label_of(whole), measured, of_model)


def _part_of(whole: Shape, axis: int) -> Shape | None:
    """Return one of ``PARTS`` equal parts along m, n or k; None if the size does not divide."""
    if whole[axis] % PARTS:
        return None
    m, n, k = (size // PARTS if axis == each else size for each, size in enumerate(whole))
    return m, n, k


def size_class(shape: Shape) -> str:
    """Return the class of a GEMM by its rows."""
    m = shape[0]
    return "m < 64" if m < 64 else "64 <= m < 512" if m < 512 else "m >= 512"


def label_of(shape: Shape) -> str:
    """Return for instance ``1025 x 10240 x 10240``."""
    return " x ".join(str(size) for size in shape)
