"""Measured all_reduces of inference frameworks, which have kernels of their own for small ones, and their predictions.

A table is a file ``custom_all_reduce_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, n_gpus,
framework, framework_version, mode, dtype, bytes and latency_us. Only calls in a graph are compared: others contain the
time of the host. The prediction is that of the shipped implementation ``FRAMEWORK_all_reduce``, or of its child for the
GPU. From its size on it leaves the all_reduce to the library, which has a group of its own.

Its constants are fitted to one version, without every third power of two; these sizes are held out, and so is the next
version with the same kernels. Other versions have other kernels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ....compiler.ir import Gpu, Pattern
from ....compiler.planning.build import ScheduleError
from ....compiler.planning.knobs.library import library_on
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore.kernels.nccl import NcclCollective, collective_time
from ...implementations.predict import with_kernels
from .collectives import MAX_BYTES, MAX_RANKS
from .csv_rows import TableComparison, rows_in, tables_of, whole_number
from .gemm import gpu_name, gpu_named
from .samples import collective_on

PATTERNS = ("custom_all_reduce*.csv", "custom_all_reduce*.csv.gz")
COLUMNS = ("gpu", "framework", "framework_version", "mode", "dtype")
NUMBERS = ("n_gpus", "bytes", "latency_us")
LEAST_BYTES = 1 << 10
FIT, SIZES, VERSION, OTHER_GPU = "fit", "other sizes", "another version", "another GPU"
LIBRARY = "left to the library"
KIND = "all_reduces of frameworks"
VERSIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "vllm_all_reduce": ("0.24.0", ("0.19.0",)),
    "vllm_all_reduce_blackwell": ("0.24.0", ("0.19.0",)),
    "vllm_all_reduce_ampere": ("0.14.0", ()),
    "sglang_all_reduce": ("0.5.14", ()),
    "sglang_all_reduce_blackwell": ("0.5.14", ()),
    "sglang_all_reduce_ampere": ("0.5.10", ("0.5.9",)),
    "trtllm_all_reduce": ("1.3.0rc20", ("1.3.0rc10",)),
    "trtllm_all_reduce_blackwell": ("1.3.0rc20", ("1.3.0rc10",)),
    "trtllm_all_reduce_ampere": ("1.0.0", ()),
}
"""By implementation: the version that its constants are fitted to, and others that have the same kernels."""
STANDS_FOR: Mapping[str, str] = {"GB300": "B300"}
"""GPUs without a profile whose chip is that of another; all their rows are held out."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A measured all_reduce of a framework; ``gpu`` is that of the table, ``machine`` has the kernels.

    ``error`` is that of times that the implementation states.
    """

    gpu: str
    implementation: str
    group: str
    ranks: int
    num_bytes: int
    us: float
    machine: Gpu
    error: float | None = None

    @property
    def predicted_us(self) -> float:
        """The time that the implementation predicts."""
        return collective_time(self.machine, NcclCollective.ALL_REDUCE, self.num_bytes, self.ranks).us


def custom_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every point of every table of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for row in kernel_rows(folder):
        if isinstance(row, str):
            yield row
        else:
            label, kind = f"{row.ranks} GPUs, {row.num_bytes:,} B", "" if row.group == LIBRARY else KIND
            us = row.us, row.predicted_us
            yield TableComparison(row.gpu, row.implementation, row.group, label, *us, kind, row.error)


def kernel_rows(folder: Path) -> Iterator[KernelRow | str]:
    """Yield the rows of every table, or a text that says why some were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    yield from rows_in(tables_of(folder, PATTERNS), COLUMNS, NUMBERS, _row)


def _row(row: Mapping[str, str]) -> KernelRow | str:
    name = gpu_name(row["gpu"])
    stands, profile = gpu_named(STANDS_FOR.get(name, name))
    ranks, num_bytes = whole_number(row, "n_gpus", MAX_RANKS), whole_number(row, "bytes", MAX_BYTES)
    if profile is None:
        return f"there is no profile of {name[:40]}"
    if row["mode"] != "graph":
        return "a call that is no part of a graph contains the time of the host"
    if row["dtype"] != "bf16" or ranks is None or ranks < 2 or num_bytes is None:
        return "not bf16, or GPUs or bytes that are no whole number"
    if num_bytes < LEAST_BYTES or num_bytes % (2 * ranks):
        return f"below {LEAST_BYTES:,} B, or no whole elements for each GPU"
    known = {name.partition("_")[0] for name in VERSIONS}
    if row["framework"] not in known:
        return f"'{row['framework'][:40]}' is none of the frameworks that are compared: {', '.join(sorted(known))}"
    implementation, machine, error = _machines(stands, ranks).get(row["framework"], ("", profile, None))
    group = _group(implementation, row["framework_version"], num_bytes)
    kernels = machine.collectives.kernels if machine.collectives is not None else ()
    if not group:
        return "a framework or a version whose kernels no implementation has"
    group = OTHER_GPU if name in STANDS_FOR else group
    group = group if any(num_bytes < kernel.below_bytes(ranks) for kernel in kernels) else LIBRARY
    return KernelRow(name, implementation, group, ranks, num_bytes, float(row["latency_us"]), machine, error)


def _group(implementation: str, version: str, num_bytes: int) -> str:
    """Whether a row is of the fit or held out; empty if it is of other kernels."""
    fitted, alike = VERSIONS.get(implementation, ("", ()))
    if version in alike:
        return VERSION
    return "" if version != fitted else FIT if (num_bytes.bit_length() - 1) % 3 else SIZES


@cache
def _machines(gpu: str, ranks: int) -> Mapping[str, tuple[str, Gpu, float | None]]:
    """The implementation of each framework on ``ranks`` of a GPU, the GPU with its kernels, and its error."""
    scenario = collective_on(gpu, ranks)
    found: dict[str, tuple[str, Gpu, float | None]] = {}
    for implementation in shipped_implementations(scenario.system):
        method = implementation.method(Pattern.GEMM_AR)
        if implementation.name in VERSIONS and gpu in implementation.gpus and method is not None:
            try:
                system = with_kernels(scenario, method).system
            except ScheduleError:
                continue
            machine = replace(system.gpu, collectives=library_on(system))
            error = None if method.error is None else float(method.error)
            found[implementation.name.partition("_")[0]] = implementation.name, machine, error
    return found
