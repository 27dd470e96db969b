"""Measured and simulated speedups of fused kernels over their serial partners.

The serial time is that of the library's GEMM and its collective, the fused time that of the schedule of the kernel
(``fused_plans.py``), both simulated. No constant is fitted to these rows.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ....compiler import CompileError, compile_text
from ....compiler.ir import TICKS_PER_US, DType, Pattern, Scenario
from ....compiler.planning.build import ScheduleError
from ....compiler.templates.collective import collective_in
from ....compiler.text.load import shipped_libraries
from ....simcore import RunTooLarge
from ....simcore.kernels.dispatch import whole_works
from ...implementations.predict import library_us, simulated_us
from .collectives import tables_of
from .fused_plans import IMPLEMENTATIONS
from .fused_rows import PATTERNS, Elsewhere, FusedPart, FusedRow, fused_rows
from .time_comparison import TimeComparison

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


def scenario_of(row: FusedRow, part: FusedPart) -> Scenario:
    """Return the scenario of one part of a row; see ``scenario_on``."""
    return scenario_on(row.gpu, row.ranks, row.dtype, part)


def scenario_on(gpu: str, ranks: int, dtype: DType, part: FusedPart) -> Scenario:
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
