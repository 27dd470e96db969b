"""Measured all_reduces of inference frameworks, which have kernels of their own for small ones, against simulations.

A table is a file ``custom_all_reduce_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, n_gpus,
framework, framework_version, mode, dtype, bytes and latency_us. Only calls in a graph are compared: others contain the
time of the host. Repeats of a point by any version count as their median. Nothing is fitted to these tables.

Which kernel runs is not in the table, but in the sources:

- vLLM (csrc/custom_all_reduce.cuh, which SGLang has up to 0.5.10) reads from all peers in one go and sums, below
  512 KiB on 4 GPUs, below 256 KiB on 8, on 2 at any size (``one-shot, gets``). Up to 8 MiB each rank sums its part in
  that way and is then read (``two-shot, gets``). Later versions of vLLM have other kernels there.
- TensorRT-LLM, and SGLang since 0.5.14, write to all peers at once, with flags in the data (``one-shot, puts``), at the
  same sizes, and at larger ones that are not compared.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median

from ....compiler.ir import (
    TICKS_PER_US,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    LaunchMode,
    OpChoice,
)
from ....compiler.planning.build import build_op_plan
from ....simcore import simulate_op
from ....simcore.kernels.nccl import NcclCollective
from .collectives import MAX_BYTES, MAX_RANKS, gpu_named, tables_of, whole_number
from .csv_rows import TableComparison, left_out_lines, read_rows
from .gemm import gpu_name
from .samples import scenario_of

PATTERNS = ("custom_all_reduce*.csv", "custom_all_reduce*.csv.gz")
COLUMNS = ("gpu", "framework", "framework_version", "mode", "dtype")
NUMBERS = ("n_gpus", "bytes", "latency_us")
OPERATION = "custom all_reduce"
GETS, PUTS, TWO_SHOT = "one-shot, gets", "one-shot, puts", "two-shot, gets"
KIB, MIB = 1 << 10, 1 << 20
LEAST_BYTES = KIB
ONE_SHOT_BELOW = {2: 2 * MIB, 4: 512 * KIB, 8: 256 * KIB}
"""By the number of GPUs: sizes at which every framework here sums in one go."""
TWO_SHOT_BELOW = 8 * MIB
NEWER = ("0.19.0", "0.24.0")
"""Versions of vLLM that have other kernels above the one-shot sizes."""
MAX_UNITS = 1024
"""Units of the simulation in a tensor; larger ones are simulated in coarser units."""

_GRAPH = LaunchMode.GRAPH
KERNELS: Mapping[str, tuple[str, int, ExecutionOptions]] = {
    GETS: ("one_shot", 36, ExecutionOptions(direction=Direction.GET, launch=_GRAPH)),
    PUTS: ("one_shot", 32, ExecutionOptions(protocol=CopyProtocol.LL128, launch=_GRAPH)),
    TWO_SHOT: ("direct", 36, ExecutionOptions(direction=Direction.GET, launch=_GRAPH)),
}
"""What is simulated for each kernel: algorithm, SMs, and how they copy. vLLM starts 36 blocks at most."""


def custom_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every point of every table of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        table = read_rows(path, COLUMNS, NUMBERS)
        yield from table.skipped
        times_us: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
        left_out: Counter[str] = Counter()
        for row in table.rows:
            point = _point(row)
            if isinstance(point, str):
                left_out[point] += 1
            else:
                times_us[point].append(float(row["latency_us"]))
        for (gpu, kernel, ranks, num_bytes), repeats in sorted(times_us.items()):
            predicted_us = simulated_us(gpu, kernel, ranks, num_bytes)
            label = f"{ranks} GPUs, {num_bytes:,} B"
            yield TableComparison(gpu, OPERATION, kernel, label, median(repeats), predicted_us)
        yield from left_out_lines(path, left_out)


@cache
def simulated_us(gpu: str, kernel: str, ranks: int, num_bytes: int) -> float:
    """Return the simulated time of an all_reduce of ``num_bytes`` by one of ``KERNELS``."""
    scenario, (algorithm, sms, tactics) = scenario_of(gpu, ranks, NcclCollective.ALL_REDUCE, num_bytes), KERNELS[kernel]
    unit = scenario.gpu.line_bytes
    while num_bytes > unit * MAX_UNITS:
        unit *= 2
    schedule = build_op_plan(scenario, OpChoice(algorithm, ranks, EngineChoice(EngineKind.SM, sms), tactics=tactics))
    return simulate_op(scenario, schedule, unit_bytes=unit).makespan_ticks / TICKS_PER_US


def _point(row: Mapping[str, str]) -> tuple[str, str, int, int] | str:
    """Return GPU, kernel, ranks and bytes that a row measures, or why it is not compared."""
    name, (_, gpu) = gpu_name(row["gpu"]), gpu_named(row["gpu"])
    ranks, num_bytes = whole_number(row, "n_gpus", MAX_RANKS), whole_number(row, "bytes", MAX_BYTES)
    if gpu is None:
        return f"there is no profile of {name[:40]}"
    if row["mode"] != "graph":
        return "a call that is no part of a graph contains the time of the host"
    if row["dtype"] != "bf16" or ranks not in ONE_SHOT_BELOW or num_bytes is None:
        return "not bf16 on 2, 4 or 8 GPUs, or bytes that are no whole number"
    if num_bytes < LEAST_BYTES or num_bytes % (2 * ranks):
        return f"below {LEAST_BYTES:,} B, or no whole elements for each GPU"
    kernel = _kernel(row["framework"], row["framework_version"], num_bytes, ONE_SHOT_BELOW[ranks])
    return kernel if kernel not in KERNELS else (name, kernel, ranks, num_bytes)


def _kernel(framework: str, version: str, num_bytes: int, one_shot_below: int) -> str:
    """Return the kernel that runs, or why none that is known does."""
    reads = framework == "vllm" or (framework == "sglang" and version in ("0.5.9", "0.5.10"))
    if num_bytes < one_shot_below and framework in ("vllm", "sglang", "trtllm"):
        return GETS if reads else PUTS
    if one_shot_below < ONE_SHOT_BELOW[2] and num_bytes < TWO_SHOT_BELOW and reads and version not in NEWER:
        return TWO_SHOT
    return "a size or a framework for which the kernel is not known, or is the library's"
