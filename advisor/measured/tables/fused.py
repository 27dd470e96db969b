"""Measured and simulated speedups of fused kernels over their serial partners.

The serial time is the closed form of the library GEMM plus that of the library collective. The fused time is simulated,
with the schedule of the kernel (``fused_plans.py``). No constant is fitted to these rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....compiler import CompileError, compile_text
from ....compiler.ir import TICKS_PER_US, DType, Pattern, Scenario
from ....compiler.planning.build import ScheduleError, build_schedule
from ....compiler.text.load import shipped_libraries
from ....simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate
from ....simcore.kernels.nccl import NcclCollective, collective_time
from .collectives import tables_of
from .fused_plans import IMPLEMENTATIONS
from .fused_rows import PATTERNS, FusedPart, FusedRow, fused_rows
from .gemm_times import gemm_ticks

TARGET = 10.0
"""Target for the median error of the predicted speedup, in percent."""

MAX_LINE_HOPS = 2_000_000
_COLLECTIVES = {
    Pattern.AG_GEMM: NcclCollective.ALL_GATHER,
    Pattern.GEMM_RS: NcclCollective.REDUCE_SCATTER,
    Pattern.GEMM_AR: NcclCollective.ALL_REDUCE,
}
_HEAD = """
use "{library}"
system node {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
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


@dataclass(frozen=True, slots=True)
class FusedComparison:
    """One fused kernel: its row, and the predicted times of the kernel and of its partner."""

    row: FusedRow
    serial_us: float
    fused_us: float

    @property
    def measured(self) -> float:
        """The measured speedup of fused over serial."""
        return self.row.serial_us / self.row.fused_us

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
        """Signed relative error of the predicted serial time, in percent."""
        return 100 * (self.serial_us / self.row.serial_us - 1)

    @property
    def fused_error(self) -> float:
        """Signed relative error of the predicted fused time, in percent."""
        return 100 * (self.fused_us / self.row.fused_us - 1)


def comparable_rows(folder: Path) -> Iterator[FusedRow | str]:
    """Yield every comparable row of the tables of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        yield from fused_rows(path)


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
    """Return the time of the library's GEMMs and collectives one after the other, by their closed forms."""
    return sum(_serial_us(row, part) for part in row.parts)


def fused_us(row: FusedRow) -> float:
    """Return the simulated time of the schedules of the fused kernels one after the other."""
    return sum(_simulated_us(row, part) for part in row.parts)


def _serial_us(row: FusedRow, part: FusedPart) -> float:
    gpu = scenario_of(row, part).gpu
    us = float(gemm_ticks(gpu, np.array([[part.m, part.n, part.k]], dtype=np.int64), row.dtype)[0]) / TICKS_PER_US
    if part.pattern is Pattern.GEMM:
        return us
    # Bytes as in nccl-tests: the gathered tensor, or the partial sums of a rank.
    num_bytes = part.m * (part.k if part.pattern is Pattern.AG_GEMM else part.n) * row.dtype.num_bytes
    return us + collective_time(gpu, _COLLECTIVES[part.pattern], num_bytes, row.ranks).us


def _simulated_us(row: FusedRow, part: FusedPart) -> float:
    if part.pattern is Pattern.GEMM:
        return _serial_us(row, part)
    scenario = scenario_of(row, part)
    schedule = build_schedule(scenario, row.implementation.plans[part.pattern](scenario), row.implementation.name)
    unit_bytes = affordable_unit(scenario, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate(scenario, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US


def scenario_of(row: FusedRow, part: FusedPart) -> Scenario:
    """Return the scenario of one part of a row; see ``scenario_on``."""
    return scenario_on(row.gpu, row.ranks, row.dtype, part)


def scenario_on(gpu: str, ranks: int, dtype: DType, part: FusedPart) -> Scenario:
    """Return the scenario of ``part`` on the GPUs and the switch of the shipped library.

    Raises
    ------
    CompileError
        If the shape does not divide among the ranks, or the switch has fewer ports.
    """
    library = next(name for name in shipped_libraries() if name.partition("/")[2] == gpu.lower())
    gathers = part.pattern in (Pattern.AG_GEMM, Pattern.GEMM)
    text = (_HEAD + (_GATHERED if gathers else _SUMMED)).format(
        library=library,
        ranks=ranks,
        gpu=gpu,
        dtype=dtype.value,
        m=part.m,
        n=part.n,
        k=part.k,
        all_n=part.n * ranks,
        all_k=part.k * ranks,
        collective=_COLLECTIVES.get(part.pattern, NcclCollective.ALL_GATHER).value,
    )
    return compile_text(text).scenario()
