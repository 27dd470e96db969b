"""GEMM tables of aiconfigurator's collector against the fitted form.

A table is a file ``gemm_NAME.csv`` or ``.csv.gz`` with the columns gpu, m, n, k, dtype and time_us. Only bf16 has
fitted constants. They were fitted to a random part of the same tables, so that comparisons include rows of the fit.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from ....compiler import compile_text
from ....compiler.ir import TICKS_PER_US, Scenario
from ....compiler.text.load import shipped_libraries
from .csv_rows import MissingTable, TableComparison, left_out_lines, read_rows
from .gemm_times import gemm_ticks

PATTERNS = ("gemm_*.csv", "gemm_*.csv.gz")
COLUMNS = ("gpu", "dtype")
NUMBERS = ("m", "n", "k", "time_us")
FOREIGN = "gemm_mi"
"""Prefix of tables of other collectors, with warm caches or tuned kernels; nothing is fitted to them."""

MAX_DIMENSION = 1 << 20
ALL, LARGE = "gemm bf16", "gemm bf16, n,k >= 512"
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
    """The bf16 GEMMs of one GPU in one file: time in us by shape, the median of repeats."""

    gpu: str
    times_us: Mapping[Shape, float]
    file: str = ""


@cache
def lone_scenario(gpu: str) -> Scenario | None:
    """Return a GEMM on one GPU of the shipped library, for instance ``H100``; None without a profile of that name."""
    libraries = {name.partition("/")[2]: name for name in shipped_libraries()}
    if gpu.lower() not in libraries:
        return None
    return compile_text(SCENARIO.format(library=libraries[gpu.lower()], gpu=gpu)).scenario().case


def gpu_name(text: str) -> str:
    """Return the short name of the GPU of a table, for instance A100 for ``A100-SXM4-80GB``."""
    return text.replace(" ", "-").partition("-")[0].upper()


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
    for path in paths:
        if path.name.startswith(FOREIGN):
            if not only:
                yield f"{path.name}: not compared: another collector, with warm caches or tuned kernels"
            continue
        yield from _tables_of(path, only)


def _tables_of(path: Path, only: str) -> Iterator[GemmTable | str]:
    table = read_rows(path, COLUMNS, NUMBERS)
    yield from table.skipped
    times: dict[str, dict[Shape, list[float]]] = defaultdict(lambda: defaultdict(list))
    left_out: Counter[str] = Counter()
    for row in table.rows:
        gpu, shape = gpu_name(row["gpu"]), _shape(row)
        if only and gpu != only:
            continue
        if row["dtype"] != "bf16":
            left_out[f"{row['dtype']} is another kernel, and its constants are not fitted"] += 1
        elif shape is None:
            left_out[f"a dimension is not a whole number up to {MAX_DIMENSION}"] += 1
        elif not only and lone_scenario(gpu) is None:
            left_out[f"there is no profile of {gpu}"] += 1
        else:
            times[gpu][shape].append(float(row["time_us"]))
    for gpu, by_shape in times.items():
        yield GemmTable(gpu, {shape: median(repeats) for shape, repeats in by_shape.items()}, path.name)
    yield from left_out_lines(path, left_out)


def _shape(row: Mapping[str, str]) -> Shape | None:
    """Return the shape of a row; a dimension may be written as 64 or 64.0. None if it is invalid."""
    m, n, k = (float(row[name]) for name in NUMBERS[:3])
    if max(m, n, k) > MAX_DIMENSION or any(size % 1 for size in (m, n, k)):
        return None
    return int(m), int(n), int(k)


def gemm_comparisons(table: GemmTable) -> Iterator[TableComparison]:
    """Yield every row among all shapes, and again among large n and k; then the decomposition ratios."""
    predicted = predicted_us(table.gpu, list(table.times_us))
    for shape, measured in table.times_us.items():
        for operation in (ALL, LARGE) if min(shape[1:]) >= 512 else (ALL,):
            yield TableComparison(table.gpu, operation, size_class(shape), label_of(shape), measured, predicted[shape])
    for axis, name in enumerate("MNK"):
        yield from _ratios(table, predicted, axis, f"ratio {name}/{PARTS}")


def predicted_us(gpu: str, shapes: Sequence[Shape]) -> dict[Shape, float]:
    """Return the time of each shape by the profile of ``gpu``, in us."""
    scenario = lone_scenario(gpu)
    assert scenario is not None, "tables hold GPUs with a profile"
    ticks = gemm_ticks(scenario.gpu, np.array(shapes, dtype=np.int64).reshape(-1, 3))
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
