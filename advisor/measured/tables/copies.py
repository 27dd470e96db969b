"""Measured copies between GPUs against the closed forms of ``simcore/kernels/copy.py``.

Two kinds of tables, as ``.csv`` or ``.csv.gz``:

- ``deepep_NAME``: MoE dispatch and combine by number of SMs. Combine moves bf16 rows and adds them, so large ones show
  the rate at which SMs copy.
- ``mi300x_dma_copy_NAME``: shares of the phases of one DMA copy, by its size, in whole percent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....compiler.ir import Gpu
from ....compiler.ir.operations.routing_laws import ranks_reached
from ....simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from .collectives import Profiles, gpu_named, tables_of, whole_number
from .csv_rows import MissingColumns, MissingTable, TableComparison, left_out_lines, read_rows
from .gemm import gpu_name

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
    yield from table.skipped
    left_out: Counter[str] = Counter()
    rows = [row for row in table.rows if not only or gpu_name(row["gpu"]) == only]
    for row in rows:
        copies = _sm_copies(row, profile, path.name)
        if isinstance(copies, str):
            left_out[copies] += 1
        else:
            yield copies
    yield from left_out_lines(path, left_out)
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
