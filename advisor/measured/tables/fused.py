"""Measured and simulated speedups of fused kernels over their serial partners.

The serial time is that of the library's GEMM and its collective, the fused time that of the schedule of the kernel
(``fused_plans.py``), both simulated. No constant is fitted to these rows.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ....compiler import CompileError, compile_text
from ....compiler.ir import TICKS_PER_US, DType, OpCase, Pattern
from ....compiler.planning.build import ScheduleError
from ....compiler.templates.collective import collective_in
from ....compiler.text.load import shipped_libraries
from ....simcore import RunTooLarge
from ....simcore.kernels.dispatch import whole_works
from ...implementations.predict import library_us, simulated_us
from .collectives import gpu_named, tables_of, whole_number
from .csv_rows import left_out_lines, read_rows
from .fused_plans import IMPLEMENTATIONS, FusedKernel, implementation_named


class MeasuredPair(Protocol):
    """The measured times of a fused kernel and of its partner, None if the table has none."""

    @property
    def fused_us(self) -> float:
        """The time of the fused kernel."""

    @property
    def serial_us(self) -> float | None:
        """The time of its partner."""


Row = TypeVar("Row", bound=MeasuredPair)


@dataclass(frozen=True, slots=True)
class TimeComparison(Generic[Row]):
    """One row, with the predicted times of its partner and of the fused kernel."""

    row: Row
    serial_us: float
    fused_us: float

    @property
    def measured(self) -> float:
        """The measured speedup; without a partner that over its predicted time."""
        return (self.row.serial_us or self.serial_us) / self.row.fused_us

    @property
    def predicted(self) -> float:
        """The predicted speedup."""
        return self.serial_us / self.fused_us

    @property
    def error(self) -> float:
        """Signed relative error of the predicted speedup, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def serial_error(self) -> float:
        """Signed relative error of the predicted time of the partner, in percent; 0 without one."""
        return 100 * (self.serial_us / (self.row.serial_us or self.serial_us) - 1)

    @property
    def fused_error(self) -> float:
        """Signed relative error of the predicted time of the fused kernel, in percent."""
        return 100 * (self.fused_us / self.row.fused_us - 1)


PATTERNS = ("overlap_*.csv", "overlap_*.csv.gz")
COLUMNS = ("gpu", "op", "impl")
NUMBERS = ("n_gpus", "time_us")
SERIAL = ("torch+nccl", "nccl+cublas", "torch AR/nccl baseline")
WITHOUT_PARTNER: Mapping[str, str] = {
    "MoE": "a layer of experts, whose partner is a loop in torch, no collective and a GEMM",
    "ZeRO-3": "a whole training step",
}
BESIDE = "||"
"""What stands between a GEMM and a collective that do not wait for each other."""

UNFIT: Mapping[str, str] = {
    "FlashOverlap": "made for another generation, on a number of GPUs that is not stated",
    "nvFuser": "one row of many, without a partner",
}
OPERATIONS: Mapping[str, Pattern] = {
    "AG+GEMM": Pattern.AG_GEMM,
    "GEMM+RS": Pattern.GEMM_RS,
    "GEMM+AR": Pattern.GEMM_AR,
}
Elsewhere = Callable[[Sequence[Mapping[str, str]]], Container[int]]
"""The indices of the rows of a table that are compared in another way, which need no reason."""

MAX_RANKS, MAX_SIZE = 64, 1 << 20
_LAYER = re.compile(r"hidden (\d{1,7}), ffn \d{1,7} local (\d{1,7})")


@dataclass(frozen=True, slots=True)
class FusedPart:
    """A GEMM of one GPU, m x n x k, with the collective of ``pattern``, or without one (GEMM)."""

    pattern: Pattern
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.pattern.value} {self.m} x {self.n} x {self.k}"


@dataclass(frozen=True, slots=True)
class FusedRow:
    """A fused kernel and its serial partner; a layer has several ``parts``, one after the other."""

    gpu: str
    ranks: int
    dtype: DType
    parts: tuple[FusedPart, ...]
    implementation: FusedKernel
    fused_us: float
    serial_us: float

    @property
    def label(self) -> str:
        """For instance ``8 GPUs, AG+GEMM 1024 x 6656 x 4096``."""
        return f"{self.ranks} GPUs, {', '.join(map(str, self.parts))}"


def fused_rows(path: Path, elsewhere: Elsewhere = lambda rows: frozenset()) -> Iterator[FusedRow | str]:
    """Yield every fused kernel of a table with a partner and a known schedule, or why rows were left out.

    Raises
    ------
    MissingTable, MeasuredError
        As ``read_rows``.
    """
    table = read_rows(path, COLUMNS, NUMBERS)
    yield from table.skipped
    left_out: Counter[str] = Counter()
    partners = {partner_key(row): float(row["time_us"]) for row in table.rows if row["impl"] in SERIAL}
    paired: set[tuple[str, ...]] = set()
    compared = elsewhere(table.rows)
    for index, row in enumerate(table.rows):
        if row["impl"] in SERIAL:
            continue
        fused = _fused(row, partners.get(partner_key(row)))
        if isinstance(fused, str):
            left_out[fused] += index not in compared
        else:
            paired.add(partner_key(row))
            yield fused
    left_out["serial, and nothing fused beside it is compared"] += sum(
        row["impl"] in SERIAL and partner_key(row) not in paired and index not in compared
        for index, row in enumerate(table.rows)
    )
    yield from left_out_lines(path, left_out)


def partner_key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a fused kernel and its serial partner have in common."""
    columns = ("gpu", "n_gpus", "op", "m", "n", "k", "shape_semantics", "dtype", "source")
    return tuple(row.get(column, "") for column in columns)


def _fused(row: Mapping[str, str], serial_us: float | None) -> FusedRow | str:
    """Return the fused kernel of a row, or why it is not compared."""
    reasons = [reason for word, reason in WITHOUT_PARTNER.items() if word in row["op"]]
    reasons += [reason for word, reason in UNFIT.items() if word in row["impl"]]
    if BESIDE in row["op"]:
        reasons.append("a GEMM beside a collective that does not wait for it: no implementation of both")
    if reasons:
        return reasons[0]
    name, gpu = gpu_named(row["gpu"])
    if gpu is None:
        return f"there is no profile of {row['gpu'][:60]}"
    if gpu.collectives is None:
        return f"the profile of {name} has no collectives"
    ranks, dtype = whole_number(row, "n_gpus", MAX_RANKS), row.get("dtype", "").partition(" ")[0]
    parts = parts_of(row, ranks) if ranks is not None and ranks > 1 else ()
    if ranks is None or not parts:
        return "the shape or the number of GPUs is not stated, or does not divide"
    if dtype not in [known.value for known in DType]:
        return "the type is not stated"
    if serial_us is None:
        return "no serial partner"
    implementation = implementation_named(row["impl"])
    if implementation is None:
        return f"no schedule is known for {row['impl'][:40]}"
    missing = [part.pattern.value for part in parts if not implementation.has_schedule(part.pattern)]
    if missing:
        return f"no schedule is known for {missing[0]} by {implementation.name}"
    return FusedRow(name, ranks, DType(dtype), parts, implementation, float(row["time_us"]), serial_us)


def parts_of(row: Mapping[str, str], ranks: int) -> tuple[FusedPart, ...]:
    """Return the GEMMs of one GPU and their collectives; none if the row does not state them."""
    if row["op"].startswith("TP MLP"):
        return _layer(row)
    pattern, semantics = OPERATIONS.get(row["op"]), row.get("shape_semantics", "")
    sizes = [_size(row.get(name, "")) for name in "mnk"]
    if pattern is None or None in sizes:
        return ()
    m, n, k = (size or 0 for size in sizes)
    if not semantics.startswith("global"):
        of_one_gpu = "per GPU" in semantics or "local" in semantics
        return (FusedPart(pattern, m, n, k),) if of_one_gpu else ()
    # Tensor parallel: ranks share the columns after a gather, the inner dimension before a sum.
    shared = n if pattern is Pattern.AG_GEMM else k
    if shared % ranks:
        return ()
    part = FusedPart(pattern, m, n // ranks, k) if pattern is Pattern.AG_GEMM else FusedPart(pattern, m, n, k // ranks)
    return (part,)


def _layer(row: Mapping[str, str]) -> tuple[FusedPart, ...]:
    """Return a feed-forward layer with a gate, as in Qwen3: up and gate in one GEMM, then down."""
    m, sizes = _size(row.get("m", "")), _LAYER.search(row.get("shape_semantics", ""))
    if m is None or sizes is None:
        return ()
    hidden, inner = map(int, sizes.groups())
    before, after = (Pattern.GEMM, Pattern.GEMM_AR) if "GEMM+AR" in row["op"] else (Pattern.AG_GEMM, Pattern.GEMM_RS)
    return FusedPart(before, m, 2 * inner, hidden), FusedPart(after, m, hidden, inner)


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_SIZE else None


TARGET = 10.0
"""Target for the median error of the predicted speedup, in percent."""

_HEAD = """
use "{library}"
system node {{ gpus {ranks} x {gpu}; fabric {fabric} }}
workload fused on node {{
"""
_GATHERED = """
  x = tensor {dtype}[{m}, {k}] shard rows
  w = tensor {dtype}[{k}, {all_n}] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}}
"""
_SUMMED = """
  x = tensor {dtype}[{m}, {all_k}] shard cols
  w = tensor {dtype}[{all_k}, {n}] shard rows
  p = gemm(x, w)
  y = {collective}(p)
}}
"""


class FusedComparison(TimeComparison[FusedRow]):
    """One fused kernel: its row, and the predicted times of the kernel and of its partner."""

    __slots__ = ()


def comparable_rows(folder: Path, elsewhere: Elsewhere = lambda rows: frozenset()) -> Iterator[FusedRow | str]:
    """Yield every comparable row of the tables of ``folder``, or a text that says why rows were left out.

    ``elsewhere`` returns the indices of the rows of a table that are compared in another way.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        yield from fused_rows(path, elsewhere)


def fused_comparisons(rows: Sequence[FusedRow], advance: Callable[[], None]) -> Iterator[FusedComparison | str]:
    """Yield the prediction of every row, ordered by implementation, or a text that says why it failed.

    ``advance`` is called after each.
    """
    order = {implementation.name: index for index, implementation in enumerate(IMPLEMENTATIONS)}
    for row in sorted(rows, key=lambda row: order[row.implementation.name]):
        try:
            yield FusedComparison(row, serial_us(row), fused_us(row))
        except (CompileError, ScheduleError, RunTooLarge) as error:
            yield f"{row.gpu} {row.label}: {str(error).splitlines()[0]}"
        advance()


def serial_us(row: FusedRow) -> float:
    """Return the time of the library's GEMMs and collectives one after the other."""
    return sum(_lone_us(row, part) or library_us(scenario_of(row, part)) for part in row.parts)


def fused_us(row: FusedRow) -> float:
    """Return the simulated time of the schedules of the fused kernels one after the other."""
    return sum(_lone_us(row, part) or _scheduled_us(row, part) for part in row.parts)


def _lone_us(row: FusedRow, part: FusedPart) -> float:
    """The time of a GEMM that nothing is fused with, 0 for other parts."""
    if part.pattern is not Pattern.GEMM:
        return 0.0
    return sum(work.alone_ticks for work in whole_works(scenario_of(row, part))) / TICKS_PER_US


def _scheduled_us(row: FusedRow, part: FusedPart) -> float:
    scenario = scenario_of(row, part)
    return simulated_us(scenario, row.implementation.plans[part.pattern](scenario), row.implementation.name)


def scenario_of(row: FusedRow, part: FusedPart) -> OpCase:
    """Return the scenario of one part of a row; see ``scenario_on``."""
    return scenario_on(row.gpu, row.ranks, row.dtype, part)


def scenario_on(gpu: str, ranks: int, dtype: DType, part: FusedPart) -> OpCase:
    """Return the scenario of ``part`` on the GPUs of the shipped library, behind its switch or in a full mesh.

    Raises
    ------
    CompileError
        If the shape does not divide among the ranks, or the switch has fewer ports.
    """
    library = next(name for name in shipped_libraries() if name.partition("/")[2] == gpu.lower())
    gathers = part.pattern in (Pattern.AG_GEMM, Pattern.GEMM)
    text = (_HEAD + (_GATHERED if gathers else _SUMMED)).format(
        library=library,
        fabric="full_mesh(xgmi)" if library.startswith("amd/") else "switch(nvswitch, link=nvlink)",
        ranks=ranks,
        gpu=gpu,
        dtype=dtype.value,
        m=part.m,
        n=part.n,
        k=part.k,
        all_n=part.n * ranks,
        all_k=part.k * ranks,
        collective=(collective_in(part.pattern) or Pattern.ALL_GATHER).value,
    )
    return compile_text(text).scenario().case
