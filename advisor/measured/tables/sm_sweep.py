"""Kernels whose SMs share copying and computing: the best number of copying SMs and the time with it, simulated.

A table is a file ``sm_sweep*.csv`` with the columns gpu, n_gpus, pattern, m, n, k, shape_semantics, dtype,
best_static_us, best_static_comm_sms and swept_comm_sms. uccl-project/mKernel gathers by multicast in the switch under a
persistent GEMM, and before a reduce_scatter copies what its tiles have computed: its shipped implementation says with
which schedule and tile. Times are of one launch behind a barrier: of the simulated time, what a kernel's GEMM costs
over the library's, and no call. Nothing is fitted to them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ....compiler import CompileError
from ....compiler.ir import DType, EngineChoice, EngineKind, Method, OpCase, Pattern
from ....compiler.planning.build import ScheduleError
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore import RunTooLarge
from ...implementations.predict import MIN_GAIN, kernel_us, machine_of, simulated_us
from .csv_rows import TableComparison, rows_in, tables_of, whole_number
from .fused import MAX_RANKS, FusedPart, parts_of, scenario_on
from .gemm import gpu_named

PATTERNS = ("sm_sweep*.csv", "sm_sweep*.csv.gz")
COLUMNS = ("gpu", "pattern", "shape_semantics", "dtype", "swept_comm_sms")
NUMBERS = ("n_gpus", "best_static_us", "best_static_comm_sms")
TIMES, COUNTS = "kernel with copying SMs", "best number of copying SMs"
KERNEL = "mkernel_hopper"


def sm_sweep_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield the time and the number of SMs of every row of every table of ``folder``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for found in rows_in(tables_of(folder, PATTERNS), COLUMNS, NUMBERS, _comparisons):
        yield from (found,) if isinstance(found, str) else found


def _comparisons(row: Mapping[str, str]) -> tuple[TableComparison, TableComparison] | str:
    name, gpu = gpu_named(row["gpu"])
    ranks, dtypes = whole_number(row, "n_gpus", MAX_RANKS), {each.value: each for each in DType}
    swept = [int(each) for each in row["swept_comm_sms"].split() if each.isascii() and each.isdecimal()]
    if gpu is None or ranks is None or ranks < 2 or row["dtype"] not in dtypes:
        return "the GPU, the number of GPUs or the type is not known"
    parts = parts_of({**row, "op": row["pattern"]}, ranks)
    if len(parts) != 1 or parts[0].pattern not in (Pattern.AG_GEMM, Pattern.GEMM_RS) or not swept:
        return "no GEMM behind an all_gather or before a reduce_scatter, or numbers of SMs that are not stated"
    try:
        case = scenario_on(name, ranks, dtypes[row["dtype"]], parts[0])
        method = _method(case)
        times = {each: _simulated_us(case, method, each) for each in sorted(swept) if 0 < each < gpu.sms}
        us = min(times.values())
        sms = next(each for each, time in times.items() if time <= us * (1 + MIN_GAIN))  # others are better left alone
    except (CompileError, RunTooLarge, ScheduleError, ValueError) as error:
        return f"not simulated: {str(error).splitlines()[0]}"
    group, label = parts[0].pattern.value, _label(parts[0], ranks)
    measured_us, measured_sms = float(row["best_static_us"]), float(row["best_static_comm_sms"])
    return (
        TableComparison(name, TIMES, group, label, measured_us, us),
        TableComparison(name, COUNTS, group, label, measured_sms, sms),
    )


def _method(case: OpCase) -> Method:
    """How the kernel of the tables carries out the pattern of ``case``."""
    kernel = next(each for each in shipped_implementations(case.system) if each.name == KERNEL)
    method = kernel.method(case.shape.pattern)
    assert method is not None, "it gathers and scatters"
    return method


def _simulated_us(case: OpCase, method: Method, sms: int) -> float:
    choice = replace(method.choice, engine=EngineChoice(EngineKind.SM, sms))
    assert case.shape.gemm is not None, "a part is a GEMM"
    return kernel_us(simulated_us(machine_of(case, method), choice), case.shape.gemm.flops, num_calls=0)


def _label(part: FusedPart, ranks: int) -> str:
    return f"{ranks} GPUs, {part.m} x {part.n} x {part.k}"
