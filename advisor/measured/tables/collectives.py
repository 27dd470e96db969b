"""Tables of nccl-tests against the closed form of ``simcore/kernels/nccl.py``.

A table is a file ``nccl_collectives_NAME.csv`` or ``.csv.gz`` with the columns gpu, n_gpus, op, dtype, bytes and
time_us; bytes are those of nccl-tests. Repeats of one point, of any version of NCCL, count as their median. The
constants are fitted to the same points. Files ``*_allreduce_rccl_NAME.csv`` are of RCCL, in columns of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from ....compiler.ir import Gpu
from ....compiler.ir.operations.routing_laws import ranks_reached
from ....simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from ....simcore.kernels.nccl import NcclCollective, collective_time
from .csv_rows import (
    MissingColumns,
    MissingTable,
    TableComparison,
    read_rows,
    reported,
    rows_in,
    tables_of,
    whole_number,
)
from .gemm import gpu_name, gpu_named

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
        yield from rows_in((path,), RCCL_COLUMNS, RCCL_NUMBERS, partial(_rccl_point, path.name))


def _rccl_point(file: str, row: Mapping[str, str]) -> MeasuredPoint | str:
    """Return an all_reduce in a graph; a row is of a ``system`` such as ``8xMI300X``, once."""
    count, _, gpu = row["system"].partition("x")
    ranks = int(count) if count.isdecimal() and len(count) <= len(str(MAX_RANKS)) else 0
    num_bytes = whole_number(row, "size_bytes", MAX_BYTES)
    name, profile = gpu_named(gpu)
    if not 2 <= ranks <= MAX_RANKS or num_bytes is None or profile is None or profile.collectives is None:
        return "the GPU, their number or the size is not known"
    if not row["mode"].startswith(IN_GRAPH) or num_bytes < RCCL_LEAST:
        return f"not in a graph, or below {RCCL_LEAST} B: times of the host"
    return MeasuredPoint(name, NcclCollective.ALL_REDUCE, ranks, num_bytes, float(row["oop_time_us"]), file)


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


def _points_of(path: Path, profile: Profiles, only: str) -> Iterator[MeasuredPoint | str]:
    times_us: dict[Point, list[float]] = defaultdict(list)
    for found in rows_in((path,), COLUMNS, NUMBERS, partial(_point, profile, only)):
        if isinstance(found, str):
            yield found
        else:
            point, us = found
            times_us[point].append(us)
    for point, repeats in times_us.items():
        yield MeasuredPoint(*point, median(repeats), path.name)


def _point(profile: Profiles, only: str, row: Mapping[str, str]) -> tuple[Point, float] | str | None:
    """Return the point that a row measures and its time, or why it is not compared; None if it is not of ``only``."""
    name = gpu_name(row["gpu"])
    if only and name != only:
        return None
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
    return (name, operation, ranks, num_bytes), float(row["time_us"])


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


# Measured copies between GPUs against the closed forms of ``simcore/kernels/copy.py``.
#
# Two kinds of tables, as ``.csv`` or ``.csv.gz``:
#
# - ``deepep_NAME``: MoE dispatch and combine by number of SMs. Combine moves bf16 rows and adds them, so large ones
#   show the rate at which SMs copy.
# - ``mi300x_dma_copy_NAME``: shares of the phases of one DMA copy, by its size, in whole percent.

SM_PATTERNS = ("deepep_*.csv", "deepep_*.csv.gz")
SM_NUMBERS = ("n_gpus", "n_nodes", "hidden", "tokens_per_rank", "topk", "num_experts", "combine_sms", "combine_us")
DMA_PATTERNS = ("mi300x_dma_copy_*.csv", "mi300x_dma_copy_*.csv.gz")
DMA_GPU = "MI300X"
PHASES = (CopyPhase.CONTROL, CopyPhase.SCHEDULE, CopyPhase.COPY, CopyPhase.SYNC)
# In smaller combines the cost of each token dominates, not copying.
MIN_TOKENS, MIN_HIDDEN, MIN_TOPK = 32_768, 4096, 6
MIN_SHARE = 10  # percent; below that the table's rounding to whole percents is most of a relative error
BF16_BYTES = 2
MAX_SIZE, MAX_EXPERTS = 1 << 40, 4096


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """The share of one phase of a DMA copy of ``num_bytes``, measured and predicted in percent."""

    num_bytes: int
    phase: CopyPhase
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class SmCopies:
    """One combine of a table ``file``: ``sms`` SMs of each of ``ranks`` GPUs send and receive ``remote_bytes``."""

    gpu: str
    ranks: int
    sms: int
    label: str
    remote_bytes: float
    time_us: float
    file: str


def copy_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every row of the tables of ``folder``, or a text that says why rows were left out.

    Operations are ``SM copy``, grouped by number of SMs, and ``DMA phase share``, grouped by phase, with percents as
    "times".

    Raises
    ------
    MissingTable
        If there are tables of neither kind.
    MeasuredError
        If one cannot be read.
    """
    dma_tables = tables_of(folder, DMA_PATTERNS)
    if not dma_tables and not tables_of(folder, SM_PATTERNS):
        raise MissingTable(f"{folder}: no table {' or '.join((*SM_PATTERNS, *DMA_PATTERNS))}")
    for copies in shipped_copies(folder):
        yield copies if isinstance(copies, str) else _sm_comparison(copies)
    for path in dma_tables:
        yield from _dma_comparisons(path)


def phase_shares(path: Path, gpu: Gpu | None = None) -> Iterator[PhaseShare | str]:
    """Yield the shares of all phases in one table of DMA copies, or a text that says why rows were left out.

    ``gpu`` is the profile that predicts them, by default the shipped MI300X.
    """
    gpu = gpu or gpu_named(DMA_GPU)[1]
    assert gpu is not None and gpu.dma.phases is not None, "shipped with its phases"
    columns = tuple(f"{phase.value}_pct" for phase in PHASES)
    table = read_rows(path, columns, ("size_bytes",))
    yield from table.skipped
    for row in table.rows:
        num_bytes = whole_number(row, "size_bytes", MAX_SIZE)
        shares = [_percent(row[column]) for column in columns]
        if num_bytes is None or None in shares:
            yield f"{path.name}: a row that does not say a size and shares from 0 to 100: {row['size_bytes'][:40]}"
            continue
        time = dma_copy_time(gpu, num_bytes)
        for phase, measured in zip(PHASES, shares, strict=True):
            assert measured is not None
            yield PhaseShare(num_bytes, phase, measured, 100 * time.share(phase))


def _dma_comparisons(path: Path) -> Iterator[TableComparison | str]:
    small = 0
    for share in phase_shares(path):
        if isinstance(share, str):
            yield share
        elif share.measured < MIN_SHARE:
            small += 1
        else:
            label = f"{share.num_bytes:,} B"
            yield TableComparison(DMA_GPU, "DMA phase share", share.phase.value, label, share.measured, share.predicted)
    if small:
        yield f"{path.name}: {small:,} shares below {MIN_SHARE} %: rounded to whole percents"


def _percent(text: str) -> float | None:
    """Return a share from 0 to 100, None for other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 100 else None


def sm_copies(path: Path, profile: Profiles, only: str = "") -> Iterator[SmCopies | str]:
    """Yield the combines of one table that show copies by SMs, or a text that says why rows were left out.

    ``profile`` returns the profile of a GPU by name. If ``only`` names a GPU, rows of others are ignored.
    """
    try:
        table = read_rows(path, ("gpu",), SM_NUMBERS)
    except MissingColumns as error:
        yield f"{path.name}: no combines by number of SMs in its columns: {error.names} missing"
        return
    rows = [row for row in table.rows if not only or gpu_name(row["gpu"]) == only]
    yield from reported(path, table, (_sm_copies(row, profile, path.name) for row in rows))
    if rows or not only:
        yield f"{path.name}: all times of dispatch: it converts to fp8 and scans tokens beside copying"


def _sm_copies(row: Mapping[str, str], profile: Profiles, file: str) -> SmCopies | str:
    """Return the combine of one row, or why it is not compared."""
    name = gpu_name(row["gpu"])
    gpu = profile(name)
    if gpu is None or gpu.sm_copy.saturation is None:
        return f"no profile of {name[:40]} that says at which rate copies by SMs fill the link"
    if float(row["n_nodes"]) != 1:
        return "more than one node"
    sms, ranks = whole_number(row, "combine_sms", gpu.sms), whole_number(row, "n_gpus", MAX_EXPERTS)
    hidden, tokens = whole_number(row, "hidden", MAX_SIZE), whole_number(row, "tokens_per_rank", MAX_SIZE)
    topk, experts = whole_number(row, "topk", MAX_EXPERTS), whole_number(row, "num_experts", MAX_EXPERTS)
    if sms is None or ranks is None or hidden is None or tokens is None or topk is None or experts is None:
        return "a size is not a whole number in the range of the model"
    if tokens < MIN_TOKENS or hidden < MIN_HIDDEN or topk < MIN_TOPK:
        return f"below {MIN_TOKENS:,} tokens, hidden {MIN_HIDDEN:,} or top-{MIN_TOPK} it is not the copying that counts"
    if ranks < 2 or experts % ranks or topk > experts:
        return "experts that are not spread evenly over the GPUs"
    remote = tokens * float(ranks_reached(ranks, experts, topk)) * (ranks - 1) / ranks * hidden * BF16_BYTES
    label = f"{tokens:,} tokens of {hidden}, top-{topk} of {experts}"
    return SmCopies(name, ranks, sms, label, remote, float(row["combine_us"]), file)


def shipped_copies(folder: Path) -> Iterator[SmCopies | str]:
    """Yield the combines of every table of ``folder`` on GPUs of the shipped library.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, SM_PATTERNS):
        yield from sm_copies(path, lambda name: gpu_named(name)[1])


def _sm_comparison(copies: SmCopies) -> TableComparison:
    gpu = gpu_named(copies.gpu)[1]
    assert gpu is not None, "rows are of GPUs with a profile"
    predicted_us = copies.remote_bytes / sm_copy_rate(gpu, copies.sms) * 1e6
    return TableComparison(copies.gpu, "SM copy", f"{copies.sms} SMs", copies.label, copies.time_us, predicted_us)
