"""Tables of fused kernels and their serial partners: what rows say of a shape, and the scenario of it.

Also kernels whose SMs share copying and computing: the best number of copying SMs and the time with it, simulated. A
table of these is a file ``sm_sweep*.csv`` with the columns gpu, n_gpus, pattern, m, n, k, shape_semantics, dtype,
best_static_us, best_static_comm_sms and swept_comm_sms. uccl-project/mKernel gathers by multicast in the switch under a
persistent GEMM, and before a reduce_scatter copies what its tiles have computed: its shipped implementation says with
which schedule and tile. Times are of one launch behind a barrier: of the simulated time, what a kernel's GEMM costs
over the library's, and no call. Nothing is fitted to them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ....compiler import CompileError, compile_text
from ....compiler.ir import DType, EngineChoice, EngineKind, Method, OpCase, Pattern
from ....compiler.planning.build import ScheduleError
from ....compiler.request.request import Request
from ....compiler.request.scenario import request_text, system_text
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore import RunTooLarge
from ...implementations.predict import MIN_GAIN, kernel_us, machine_of, simulated_us
from .csv_rows import TableComparison, rows_in, tables_of, whole_number
from .gemm import gpu_named

PATTERNS = ("overlap_*.csv", "overlap_*.csv.gz")
COLUMNS = ("gpu", "op", "impl")
NUMBERS = ("n_gpus", "time_us")
SERIAL = ("torch+nccl", "nccl+cublas", "torch AR/nccl baseline")
OPERATIONS: Mapping[str, Pattern] = {
    "AG+GEMM": Pattern.AG_GEMM,
    "GEMM+RS": Pattern.GEMM_RS,
    "GEMM+AR": Pattern.GEMM_AR,
}
MAX_RANKS, MAX_SIZE = 64, 1 << 20


@dataclass(frozen=True, slots=True)
class FusedPart:
    """A GEMM of one GPU, m x n x k, with the collective of ``pattern``, or without one (GEMM)."""

    pattern: Pattern
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.pattern.value} {self.m} x {self.n} x {self.k}"


def partner_key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a fused kernel and its serial partner have in common."""
    columns = ("gpu", "n_gpus", "op", "m", "n", "k", "shape_semantics", "dtype", "source")
    return tuple(row.get(column, "") for column in columns)


def parts_of(row: Mapping[str, str], ranks: int) -> tuple[FusedPart, ...]:
    """Return the GEMMs of one GPU and their collectives; none if the row does not state them."""
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


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_SIZE else None


def scenario_on(gpu: str, ranks: int, dtype: DType, part: FusedPart) -> OpCase:
    """Return the scenario of ``part`` on the GPUs of the shipped library, behind its switch or in a full mesh.

    Raises
    ------
    CompileError
        If the shape does not divide among the ranks, or the switch has fewer ports.
    """
    request = Request(part.pattern.value, part.m, part.n, part.k, dtype=dtype.value, gpu=gpu, ranks=ranks)
    return compile_text(request_text(request, ranks, head=system_text(request))).scenario().case


SWEEP_PATTERNS = ("sm_sweep*.csv", "sm_sweep*.csv.gz")
SWEEP_COLUMNS = ("gpu", "pattern", "shape_semantics", "dtype", "swept_comm_sms")
SWEEP_NUMBERS = ("n_gpus", "best_static_us", "best_static_comm_sms")
TIMES, COUNTS = "kernel with copying SMs", "best number of copying SMs"
KERNEL = "mkernel_hopper"


def sm_sweep_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield the time and the number of SMs of every row of every table of ``folder``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for found in rows_in(tables_of(folder, SWEEP_PATTERNS), SWEEP_COLUMNS, SWEEP_NUMBERS, _comparisons):
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
