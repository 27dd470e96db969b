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

from ....compiler.ir import TICKS_PER_US, DType, Gpu
from ....compiler.machine.known_gpus import library_gpu
from ....compiler.request.request import Request
from ....compiler.request.scenario import scenario_of
from .csv_rows import (
    FIT,
    HELD_OUT,
    MissingTable,
    TableComparison,
    drawn_fifth,
    in_odd_half,
    left_out_lines,
    read_rows,
    tables_of,
)
from .gemm_times import gemm_ticks

PATTERNS = ("gemm_*.csv", "gemm_*.csv.gz")
COLUMNS = ("gpu", "dtype")
NUMBERS = ("m", "n", "k", "time_us")
FOREIGN = "gemm_mi"
"""Prefix of tables of other collectors, with warm caches or tuned kernels; nothing is fitted to them."""

MAX_DIMENSION = 1 << 20
ALL, LARGE = "gemm bf16", "gemm bf16, n,k >= 512"
LONG, LAYERED, LONG_ROWS = "gemm bf16, m >= 4096", "gemm bf16, m >= 4096, by a layer", 4096
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
OF_FIFTHS = frozenset((gpu, dtype) for gpu in ("A100", "H100", "B200") for dtype in (DType.BF16, DType.FP8))
"""Constants that are fitted to 3,000 rows of all but a fifth, drawn by ``FIT_SEED``; others to half of the N and K."""
FIT_SEED = 0
PARTS, MIN_WHOLE, LARGE_WHOLE = 8, 512, 2048

Shape = tuple[int, int, int]  # m, n, k


@dataclass(frozen=True, slots=True)
class GemmTable:
    """The GEMMs of one type of one GPU in one file: time in us by shape, the median of repeats."""

    gpu: str
    times_us: Mapping[Shape, float]
    file: str = ""
    dtype: DType = DType.BF16


@cache
def profile_of(gpu: str) -> Gpu | None:
    """Return the profile of a GPU of the library, for instance ``H100``; None without one of that name."""
    known = library_gpu(gpu)
    return None if known is None else scenario_of(Request("GEMM", m=64, n=64, k=64, gpu=known.name, ranks=1)).gpu


def gpu_name(text: str) -> str:
    """Return the short name of the GPU of a table, for instance A100 for ``A100-SXM4-80GB``."""
    return text.replace(" ", "-").partition("-")[0].upper()


def gpu_named(text: str) -> tuple[str, Gpu | None]:
    """Return the GPU of a table, for instance A100 for ``A100-SXM4-80GB``, and its profile if one is shipped."""
    name = gpu_name(text)
    return name, profile_of(name)


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
    paths = tables_of(folder, PATTERNS)
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
    for path in tables_of(folder, QUANTIZE_PATTERNS):
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
        elif not only and (profile := profile_of(gpu)) is None:
            left_out[f"there is no profile of {gpu}"] += 1
        elif not only and profile is not None and not profile.peak(dtype):
            left_out[f"{gpu} has no peak rate for {dtype.value}"] += 1
        elif (gemm_us := _gemm_us(row, dtype, gpu, shape, casts_us)) is None:
            left_out[f"{dtype.value} with the cast of the input in it, which no table of {QUANTIZE} has"] += 1
        else:
            times[gpu, dtype][shape].append(gemm_us)
    for (gpu, dtype), by_shape in times.items():
        measured = GemmTable(gpu, {shape: median(repeats) for shape, repeats in by_shape.items()}, path.name, dtype)
        yield from (measured,) if only else _within_peak(measured)
    yield from left_out_lines(path.name, left_out)


def _within_peak(table: GemmTable) -> Iterator[GemmTable | str]:
    """Yield the table without rows that are above the peak of its GPU, and a text that names the first of these."""
    gpu = profile_of(table.gpu)
    assert gpu is not None, "rows of GPUs without a profile are left out"
    fast = [each for each, us in table.times_us.items() if us < peak_us(gpu, table.dtype, each)]
    if fast:
        row = f"{label_of(fast[0])}, {table.dtype.value}, in {table.times_us[fast[0]]:.4g} us"
        more = f" and {len(fast) - 1:,} more" if len(fast) > 1 else ""
        yield f"{table.file}: {row}{more}: faster than the peak of {table.gpu}"
    kept = dict(table.times_us)
    for shape in fast:
        del kept[shape]
    if kept:
        yield replace(table, times_us=kept)


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
    """Yield rows of many rows of M with what the loop that timed them leaves in the L2; then with an empty one.

    A layer is predicted with an empty L2: the second are off by what it adds to rows that were timed with a full one.
    """
    shapes = [shape for shape in table.times_us if shape[0] >= LONG_ROWS]
    looped, held = predicted_us(table.gpu, shapes, looped=True), left_out_of_fits(table)
    for operation, times in ((LONG, looped), (LAYERED, predicted)):
        for shape in shapes:
            group = HELD_OUT if shape in held else FIT
            yield TableComparison(table.gpu, operation, group, label_of(shape), table.times_us[shape], times[shape])


def left_out_of_fits(table: GemmTable) -> frozenset[Shape]:
    """Return the shapes that no constant was fitted to: those of the GEMM, the clock of long ones, reads from the L2.

    The last two are fitted to bf16 of half of the pairs of N and K, as most of the first are; the rest of these have a
    fifth of all rows held out.
    """
    held = [shape for shape in table.times_us if in_odd_half(f"{shape[1]}/{shape[2]}")]
    if (table.gpu, table.dtype) not in OF_FIFTHS:
        return frozenset(held)
    fifth, _ = drawn_fifth(table.times_us, lambda shape: (min(shape) < MIN_WHOLE, shape), FIT_SEED)
    return frozenset(fifth) if table.dtype is DType.FP8 else frozenset(fifth) & frozenset(held)


def predicted_us(
    gpu: str, shapes: Sequence[Shape], dtype: DType = DType.BF16, *, looped: bool = False
) -> dict[Shape, float]:
    """Return the time of each shape by the profile of ``gpu``, in us, ``looped`` as in ``gemm_ticks``."""
    profile = profile_of(gpu)
    assert profile is not None, "tables hold GPUs with a profile"
    ticks = gemm_ticks(profile, np.array(shapes, dtype=np.int64).reshape(-1, 3), dtype, looped=looped)
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
