"""Measured and predicted times of implementations, and their speedups over the library."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....compiler import CompileError
from ....compiler.ir import DType, Pattern, Rejection
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ...implementations.predict import Promise, call_times
from . import sm_sweep
from .collectives import gpu_named, tables_of, whole_number
from .csv_rows import read_rows
from .fused import (
    COLUMNS,
    MAX_RANKS,
    NUMBERS,
    PATTERNS,
    SERIAL,
    FusedPart,
    TimeComparison,
    partner_key,
    parts_of,
    scenario_on,
)

SERIAL_NAMES = (*SERIAL, "unfused baseline", "torch GEMM + NCCL RS RING_LL")
# Parts of the names that tables use, and the shipped implementation.
KNOWN_AS: Mapping[str, str] = {
    "flux": "flux",
    "fused_all_gather_matmul": "torch_async_tp",
    "decomp async-TP": "torch_async_tp",
    "torch_async_tp": "torch_async_tp",
    "fused_scaled_matmul_reduce_scatter": "torch_async_tp",
    "multimem_all_gather": "torch_multimem",
    "kraken": "kraken",
    "triton-distributed": "triton_distributed",
    "triton-dist with fast path": "triton_distributed",
    "mKernel": "mkernel",
    "ThunderKittens": "thunderkittens",
    "fused GEMM-RS (multimem": "vllm_fused",
    "existing fused GEMM-AR": "vllm_fused",
    "FlagTree multimem": "flagtree",
}
# What is another kernel on these GPUs.
OF_GPU: Mapping[tuple[str, str], str] = {
    ("flux", "A100"): "flux_ampere",
    ("flux", "A800"): "flux_ampere",
    ("mkernel", "H100"): "mkernel_hopper",
}
# Threads that name no GPU. The serial time of the first is that of an H800, and half as long again as that of an H100.
# The second has a Blackwell, B200 or GB300, whose profiles differ by 3 % on its rows.
GPU_OF_SOURCE: Mapping[str, str] = {
    "github.com/bytedance/flux/issues/79": "H800",
    "github.com/vllm-project/vllm/pull/52079": "B200",
}
OF_ONE_GPU = "script args --m"


@dataclass(frozen=True, slots=True)
class ImplementationRow:
    """A measured time of an implementation; ``serial_us`` is that of its partner, None if the table has none.

    With ``whole_thread`` no row of its thread was fitted to. A time ``in_graph`` has no call from the host in it.
    """

    name: str
    gpu: str
    ranks: int
    dtype: DType
    part: FusedPart
    fused_us: float
    serial_us: float | None
    source: str
    held_out: bool = False
    whole_thread: bool = False
    in_graph: bool = False

    @property
    def label(self) -> str:
        """For instance ``H100 AG+GEMM 1024 x 6656 x 4096``, with the type if it is not one of 16 bits."""
        dtype = f" {self.dtype.value}" if self.dtype.mean_bytes != 2 else ""
        return f"{self.gpu} {self.part}{dtype}"


def implementation_rows(folder: Path) -> tuple[ImplementationRow, ...]:
    """Return the rows of all tables of ``folder``, ordered by implementation, pattern, thread and shape.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    found = [row for path in tables_of(folder, PATTERNS) for row in _rows_of(path)]
    found += [row for path in tables_of(folder, sm_sweep.PATTERNS) for row in _swept(path)]
    by_thread: dict[tuple[str, Pattern, str], list[ImplementationRow]] = defaultdict(list)
    for row in found:
        by_thread[row.name, row.part.pattern, row.source].append(row)
    rows: list[ImplementationRow] = []
    for key in sorted(by_thread, key=lambda key: (key[0], key[1].value, key[2])):
        ordered = sorted(by_thread[key], key=lambda row: (row.part.m, row.part.n, row.part.k, row.gpu))
        alone = len(ordered) == 1
        rows += (
            replace(row, held_out=alone or index % 2 == 1, whole_thread=alone) for index, row in enumerate(ordered)
        )
    return tuple(rows)


def _rows_of(path: Path) -> Iterator[ImplementationRow]:
    table = read_rows(path, COLUMNS, NUMBERS)
    partners = {partner_key(row): float(row["time_us"]) for row in table.rows if row["impl"] in SERIAL_NAMES}
    for row in table.rows:
        found = _row(row, partners.get(partner_key(row)))
        if found is not None:
            yield found


def _swept(path: Path) -> Iterator[ImplementationRow]:
    """The times of mKernel with its best number of copying SMs: of one launch behind a barrier."""
    for row in read_rows(path, sm_sweep.COLUMNS, sm_sweep.NUMBERS).rows:
        found = _row({**row, "op": row["pattern"], "impl": "mKernel", "time_us": row["best_static_us"]}, None)
        if found is not None:
            yield replace(found, in_graph=True)


def _row(row: Mapping[str, str], serial_us: float | None) -> ImplementationRow | None:
    """Return the row of an implementation, None if it is another's or its GPU, type or shape is not stated."""
    source = row.get("source", "")
    name = next((name for known, name in KNOWN_AS.items() if known in row["impl"]), None)
    gpu_text, gpu = gpu_named(GPU_OF_SOURCE.get(source, row["gpu"]))
    ranks, dtype = whole_number(row, "n_gpus", MAX_RANKS), row.get("dtype", "").partition(" ")[0]
    name = OF_GPU.get((name or "", gpu_text), name)
    if name is None or gpu is None or ranks is None or ranks < 2 or dtype not in [known.value for known in DType]:
        return None
    parts = parts_of({**row, "shape_semantics": semantics_of(row)}, ranks)
    if len(parts) != 1:
        return None
    return ImplementationRow(name, gpu_text, ranks, DType(dtype), parts[0], float(row["time_us"]), serial_us, source)


def semantics_of(row: Mapping[str, str]) -> str:
    """Return whose shape is stated; a script that takes sizes as arguments is run by each GPU with them."""
    stated = row.get("shape_semantics", "")
    return "per GPU" if stated.startswith(OF_ONE_GPU) else stated


LIBRARY = "torch_nccl"
MARGIN = 0.02
"""An implementation is slower if it takes more than this share longer than the library."""


@dataclass(frozen=True, slots=True)
class ImplementationComparison(TimeComparison[ImplementationRow]):
    """One row, with the predicted times of the implementation and of the library.

    ``resolution`` is the error of predicted speedups that the implementation states, 0 without one.
    """

    resolution: float = 0.0

    @property
    def sign_is_right(self) -> bool:
        """Whether it is predicted to be faster than the library where it is, and slower where it is."""
        return (self.predicted > 1) == (self.measured > 1)

    @property
    def promised(self) -> bool:
        """Whether the predicted gain is beyond the error that the implementation states."""
        return Promise(self.predicted, self.resolution).verdict is Verdict.OVERLAP

    @property
    def slower(self) -> bool:
        """Whether it is measured to be slower than the library."""
        return self.measured < 1 - MARGIN


def implementation_comparisons(
    rows: Sequence[ImplementationRow], advance: Callable[[], None]
) -> Iterator[ImplementationComparison | str]:
    """Yield the prediction of every row, or a text that says why there is none; ``advance`` is called after each."""
    for row in rows:
        yield _compared(row)
        advance()


def _compared(row: ImplementationRow) -> ImplementationComparison | str:
    try:
        scenario = scenario_on(row.gpu, row.ranks, row.dtype, row.part)
    except CompileError as error:
        return f"{row.name}, {row.label}: {str(error).splitlines()[0]}"
    shipped = {each.name: each for each in shipped_implementations(scenario.system)}
    times = [call_times(scenario, shipped[name]) for name in (LIBRARY, row.name)]
    for us in times:
        if isinstance(us, Rejection):
            return f"{row.label}: {us.message}"
    found = [us for us in times if not isinstance(us, Rejection)]
    serial_us, fused_us = (us.graph_us if row.in_graph else us.us for us in found)
    method = shipped[row.name].method(row.part.pattern)
    resolution = float(method.error) if method is not None and method.error is not None else 0.0
    return ImplementationComparison(row, serial_us, fused_us, resolution)
