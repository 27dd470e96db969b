"""GEMM tables of aiconfigurator's collector against the fitted form.

A table is a file ``gemm_NAME.csv`` or ``.csv.gz`` with the columns gpu, m, n, k, dtype and time_us. Only bf16 has
fitted constants. They come from a random part of the very same tables, so what is said here includes rows of that fit.
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
from .csv_rows import MissingTable, TableComparison, read_rows
from .gemm_times import gemm_ticks

PATTERNS = ("gemm_*.csv", "gemm_*.csv.gz")
COLUMNS = ("gpu", "dtype")
NUMBERS = ("m", "n", "k", "time_us")
FOREIGN = "gemm_mi"
"""How names of tables of other collectors begin: warm caches, tuned kernels; nothing is fitted to them."""

MAX_DIMENSION = 1 << 20
ALL, LARGE = "gemm bf16", "gemm bf16, n,k >= 512"
PARTS, SMALLEST_WHOLE, LARGE_WHOLE = 8, 512, 2048

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
    """The bf16 GEMMs of one GPU in one file: time in us by shape, the median where a shape is there more than once."""

    gpu: str
    times_us: Mapping[Shape, float]
    file: str = ""


@cache
def lone_scenario(gpu: str) -> Scenario | None:
    """A GEMM on one GPU of the shipped library, for instance ``H100``; None if there is no profile of that name."""
    libraries = {name.partition("/")[2]: name for name in shipped_libraries()}
    if gpu.lower() not in libraries:
        return None
    return compile_text(SCENARIO.format(library=libraries[gpu.lower()], gpu=gpu)).scenario()


def gpu_name(text: str) -> str:
    """The GPU of a table by its short name, for instance A100 of ``A100-SXM4-80GB``."""
    return text.replace(" ", "-").partition("-")[0].upper()


def gemm_tables(folder: Path, only: str = "") -> Iterator[GemmTable | str]:
    """Every table of ``folder``, one GPU at a time; a text says why rows were left out.

    ``only`` names a GPU, which need not have a profile; rows of others are then passed over in silence.

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
    found = read_rows(path, COLUMNS, NUMBERS)
    yield from found.skipped
    times: dict[str, dict[Shape, list[float]]] = defaultdict(lambda: defaultdict(list))
    left_out: Counter[str] = Counter()
    for row in found.rows:
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
        yield GemmTable(gpu, {shape: median(each) for shape, each in by_shape.items()}, path.name)
    for reason, count in left_out.items():
        yield f"{path.name}: {count:,} rows: {reason}"


def _shape(row: Mapping[str, str]) -> Shape | None:
    """The shape of a row; a dimension may be written as 64 or 64.0."""
    m, n, k = (float(row[name]) for name in NUMBERS[:3])
    if max(m, n, k) > MAX_DIMENSION or any(size % 1 for size in (m, n, k)):
        return None
    return int(m), int(n), int(k)


def gemm_comparisons(table: GemmTable) -> Iterator[TableComparison]:
    """Every row twice, among all shapes and if it is large in n and k among those; then the decomposition ratios."""
    predicted = predicted_us(table.gpu, list(table.times_us))
    for shape, measured in table.times_us.items():
        for operation in (ALL, LARGE) if min(shape[1:]) >= 512 else (ALL,):
            yield TableComparison(table.gpu, operation, size_class(shape), label_of(shape), measured, predicted[shape])
    for axis, name in enumerate("MNK"):
        yield from _ratios(table, predicted, axis, f"ratio {name}/{PARTS}")


def predicted_us(gpu: str, shapes: Sequence[Shape]) -> dict[Shape, float]:
    """What the profile of ``gpu`` says of each shape, in us."""
    scenario = lone_scenario(gpu)
    assert scenario is not None, "tables hold GPUs with a profile"
    ticks = gemm_ticks(scenario.gpu, np.array(shapes, dtype=np.int64).reshape(-1, 3))
    return dict(zip(shapes, (ticks / TICKS_PER_US).tolist(), strict=True))


def _ratios(table: GemmTable, predicted: Mapping[Shape, float], axis: int, operation: str) -> Iterator[TableComparison]:
    """A GEMM cut into equal parts along one dimension against the whole: time of all parts over that of the whole."""
    for whole, whole_us in table.times_us.items():
        part = _part_of(whole, axis)
        if part is None or min(whole) < SMALLEST_WHOLE or part not in table.times_us:
            continue
        group = f"m,n,k >= {LARGE_WHOLE}" if min(whole) >= LARGE_WHOLE else f"one of m,n,k < {LARGE_WHOLE}"
        measured = PARTS * table.times_us[part] / whole_us
        of_model = PARTS * predicted[part] / predicted[whole]
        yield TableComparison(table.gpu, operation, group, label_of(whole), measured, of_model)


def _part_of(whole: Shape, axis: int) -> Shape | None:
    """One of ``PARTS`` equal parts along m, n or k; None if there are none."""
    if whole[axis] % PARTS:
        return None
    m, n, k = (size // PARTS if axis == each else size for each, size in enumerate(whole))
    return m, n, k


def size_class(shape: Shape) -> str:
    """The class of a GEMM by its rows."""
    m = shape[0]
    return "m < 64" if m < 64 else "64 <= m < 512" if m < 512 else "m >= 512"


def label_of(shape: Shape) -> str:
    """For instance ``1025 x 10240 x 10240``."""
    return " x ".join(str(size) for size in shape)
