"""Tables of nccl-tests against the closed form of ``simcore/kernels/nccl.py``.

A table is a file ``nccl_collectives_NAME.csv`` or ``.csv.gz`` with the columns gpu, n_gpus, op, dtype, bytes and
time_us; bytes are those of nccl-tests. Repeats of one point, of any version of NCCL, count as their median. The
constants are fitted to the same points. Files ``*_allreduce_rccl_NAME.csv`` are of RCCL, in columns of their own.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ....compiler.ir import Gpu
from ....simcore.kernels.nccl import NcclCollective, collective_time
from .csv_rows import MissingTable, TableComparison, left_out_lines, read_rows
from .gemm import gpu_name, lone_scenario

PATTERNS = ("nccl_collectives_*.csv", "nccl_collectives_*.csv.gz")
RCCL_PATTERNS = ("*_allreduce_rccl_*.csv", "*_allreduce_rccl_*.csv.gz")
RCCL_COLUMNS, RCCL_NUMBERS = ("system", "mode"), ("size_bytes", "oop_time_us")
IN_GRAPH, RCCL_LEAST = "hip_graph", 512
COLUMNS = ("gpu", "op", "dtype")
NUMBERS = ("n_gpus", "bytes", "time_us")
OPERATIONS = {operation.value: operation for operation in NcclCollective} | {"alltoall": NcclCollective.ALL_TO_ALL}
HALF = "half"
MIB = 1 << 20
MAX_RANKS, MAX_BYTES = 1024, 1 << 40

Point = tuple[str, NcclCollective, int, int]  # GPU, operation, ranks, bytes
Profiles = Callable[[str], Gpu | None]


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One collective of a table ``file`` with the median time of its repeats."""

    gpu: str
    operation: NcclCollective
    ranks: int
    num_bytes: int
    time_us: float
    file: str


def collective_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every point of every table of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MissingTable
        If there is no table.
    MeasuredError
        If one cannot be read.
    """
    for point in shipped_points(folder):
        yield point if isinstance(point, str) else _comparison(point)


def shipped_points(folder: Path) -> Iterator[MeasuredPoint | str]:
    """Yield ``collective_points`` of the shipped profiles, and the points of RCCL."""
    yield from collective_points(folder, lambda name: gpu_named(name)[1])
    for path in tables_of(folder, RCCL_PATTERNS):
        yield from _rccl_points(path)


def _rccl_points(path: Path) -> Iterator[MeasuredPoint | str]:
    """Yield the all_reduces in a graph; a row is of a ``system`` such as ``8xMI300X``, once."""
    table, left_out = read_rows(path, RCCL_COLUMNS, RCCL_NUMBERS), Counter[str]()
    yield from table.skipped
    for row in table.rows:
        count, _, gpu = row["system"].partition("x")
        ranks = int(count) if count.isdecimal() and len(count) <= len(str(MAX_RANKS)) else 0
        num_bytes = whole_number(row, "size_bytes", MAX_BYTES)
        name, profile = gpu_named(gpu)
        if not 2 <= ranks <= MAX_RANKS or num_bytes is None or profile is None or profile.collectives is None:
            left_out["the GPU, their number or the size is not known"] += 1
        elif not row["mode"].startswith(IN_GRAPH) or num_bytes < RCCL_LEAST:
            left_out[f"not in a graph, or below {RCCL_LEAST} B: times of the host"] += 1
        else:
            yield MeasuredPoint(name, NcclCollective.ALL_REDUCE, ranks, num_bytes, float(row["oop_time_us"]), path.name)
    yield from left_out_lines(path, left_out)


def collective_points(folder: Path, profile: Profiles, only: str = "") -> Iterator[MeasuredPoint | str]:
    """Yield every point of the tables of ``folder`` with a model, or a text that says why rows were left out.

    ``profile`` returns the profile of a GPU by name. If ``only`` names a GPU, rows of others are ignored.

    Raises
    ------
    MissingTable
        If there is no table.
    MeasuredError
        If one cannot be read.
    """
    paths = tables_of(folder, PATTERNS)
    if not paths:
        raise MissingTable(f"{folder}: no table {' or '.join(PATTERNS)}")
    for path in paths:
        yield from _points_of(path, profile, only)


def tables_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of ``folder`` that match the patterns, sorted."""
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def gpu_named(text: str) -> tuple[str, Gpu | None]:
    """Return the GPU of a table, for instance A100 for ``A100-SXM4-80GB``, and its profile if one is shipped."""
    name = gpu_name(text)
    scenario = lone_scenario(name)
    return name, scenario.gpu if scenario is not None else None


def whole_number(row: Mapping[str, str], name: str, high: int) -> int | None:
    """Return the number in a column of ``row``; None if it is not whole or not from 1 to ``high``."""
    value = float(row[name])
    return int(value) if 1 <= value <= high and value % 1 == 0 else None


def _points_of(path: Path, profile: Profiles, only: str) -> Iterator[MeasuredPoint | str]:
    table = read_rows(path, COLUMNS, NUMBERS)
    yield from table.skipped
    times_us: dict[Point, list[float]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for row in table.rows:
        if only and gpu_name(row["gpu"]) != only:
            continue
        point = _point(row, profile)
        if isinstance(point, str):
            left_out[point] += 1
        else:
            times_us[point].append(float(row["time_us"]))
    for point, repeats in times_us.items():
        yield MeasuredPoint(*point, median(repeats), path.name)
    yield from left_out_lines(path, left_out)


def _point(row: Mapping[str, str], profile: Profiles) -> Point | str:
    """Return the point that a row measures, or why it is not compared."""
    name = gpu_name(row["gpu"])
    gpu = profile(name)
    operation = OPERATIONS.get(row["op"])
    ranks, num_bytes = whole_number(row, "n_gpus", MAX_RANKS), whole_number(row, "bytes", MAX_BYTES)
    if row["dtype"] != HALF:
        return f"{row['dtype'][:40]}: the constants are of half precision; all_reduce of others may not use NVLS"
    if operation is None:
        return f"no model of {row['op'][:40]}"
    if ranks is None or ranks < 2 or num_bytes is None:
        return f"n_gpus or bytes are not whole numbers from 2 to {MAX_RANKS} and from 1 to {MAX_BYTES}"
    if gpu is None:
        return f"there is no profile of {name[:40]}"
    if gpu.collectives is None or (operation is NcclCollective.ALL_TO_ALL and gpu.collectives.all_to_all is None):
        return f"the profile of {name} has no constants for {operation.value}"
    return name, operation, ranks, num_bytes


def _comparison(point: MeasuredPoint) -> TableComparison:
    gpu = gpu_named(point.gpu)[1]
    assert gpu is not None, "points are of GPUs with a profile"
    predicted = collective_time(gpu, point.operation, point.num_bytes, point.ranks)
    return TableComparison(
        gpu=point.gpu,
        operation=point.operation.value,
        group="< 1 MiB" if point.num_bytes < MIB else ">= 1 MiB",
        label=f"{point_label(point)}, {predicted.protocol.value}",
        measured_us=point.time_us,
        predicted_us=predicted.us,
    )


def point_label(point: MeasuredPoint) -> str:
    """Return for instance ``8 GPUs, 1,048,576 B``."""
    return f"{point.ranks} GPUs, {point.num_bytes:,} B"
