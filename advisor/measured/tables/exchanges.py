"""Measured dispatches and combines of libraries for experts, and the times that shipped implementations predict.

Tables are ``trtllm_alltoall*`` (two-sided, with the prepare in a dispatch), ``deepep_low_latency*`` and
``deepep_dispatch_combine_by_sms*`` (24 SMs). Every third power of two of tokens is held out, and so are 8 ranks of
TensorRT-LLM. Its table sends a token to as many ranks as there can be; experts of DeepEP's are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....compiler.ir import DType, ExchangeKernel, Pattern
from ....compiler.ir.operations.routing_laws import ranks_reached
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore.kernels.nccl import routed_time
from .collectives import MAX_RANKS
from .csv_rows import Rows, TableComparison, read_rows, reported, tables_of, whole_number
from .gemm import gpu_name, gpu_named
from .samples import collective_on

FIT, TOKENS, RANKS = "fit", "other tokens", "other ranks"
KIND = "exchanges of experts"
MAX_COUNT = 1 << 20
LEAST_TOP = 4
SMS = 24
PATTERN_OF = {"dispatch": Pattern.A2A_GEMM, "combine": Pattern.GEMM_A2A}
TRTLLM, LOW_LATENCY, NORMAL = (
    (f"{name}.csv", f"{name}.csv.gz")
    for name in ("trtllm_alltoall*", "deepep_low_latency*", "deepep_dispatch_combine_by_sms*")
)
PATTERNS = (*TRTLLM, *LOW_LATENCY, *NORMAL)
_SIZES = ("hidden", "tokens_per_rank", "topk")
_DEEPEP = ("n_nodes", "n_gpus", *_SIZES)


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """A measured exchange; ``sent`` are the numbers of ``routed_time``, ``name`` the implementation or its sibling."""

    gpu: str
    name: str
    phase: str
    ranks: int
    sent: tuple[int, int, int, int, int]
    group: str
    label: str
    time_us: float

    def us(self, kernel: ExchangeKernel) -> float:
        """Return the time by a kernel."""
        return routed_time(kernel, self.ranks, *self.sent).us

    def is_of(self, kernel: ExchangeKernel) -> bool:
        """Whether the kernel is known for as many ranks and experts."""
        return kernel.least_ranks <= self.ranks <= kernel.most_ranks and not self.sent[-1] % self.ranks

    @property
    def implementations(self) -> tuple[str, str]:
        """Those that it may be of."""
        return self.name, f"{self.name}_blackwell"


def exchange_rows(paths: Sequence[Path]) -> Iterator[ExchangeRow | str]:
    """Yield every exchange of tables, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in paths:
        table, found = _read(path)
        yield from reported(path, table, found)


def exchange_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every exchange of every table of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        table, found = _read(path)
        yield from reported(path, table, (each if isinstance(each, str) else _comparison(each) for each in found))


def _read(path: Path) -> tuple[Rows, list[ExchangeRow | str]]:
    """Return a table, and its exchanges, or why rows are left out."""
    if path.name.startswith("trtllm"):
        table = read_rows(path, ("gpu", "kernel", "phase", "dtype"), (*_SIZES, "experts", "ep", "latency_us"))
        prepared = {_key(row): float(row["latency_us"]) for row in table.rows if row["phase"] == "prepare"}
        return table, [_of_trtllm(row, prepared) for row in table.rows if row["phase"] != "prepare"]
    normal = path.name.startswith("deepep_dispatch")
    numbers = (*_DEEPEP, *(f"{phase}_us" for phase in PATTERN_OF))
    numbers += ("num_experts", "dispatch_sms", "combine_sms") if normal else ("experts",)
    table = read_rows(path, ("gpu",), numbers)
    return table, [_of_deepep(row, phase, normal) for row in table.rows for phase in PATTERN_OF]


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("gpu", "kernel", "dtype", *_SIZES, "experts", "ep"))


def _of_trtllm(row: Mapping[str, str], prepared: Mapping[tuple[str, ...], float]) -> ExchangeRow | str:
    phase, us = row["phase"], float(row["latency_us"])
    if row["kernel"] != "NVLinkTwoSided" or phase not in PATTERN_OF:
        return "not a dispatch or a combine of the two-sided kernel"
    if row["dtype"] not in ("bf16", "fp8"):
        return "a type other than bf16 and fp8"
    if phase == "dispatch" and _key(row) not in prepared:
        return "a dispatch without its prepare"
    us += prepared[_key(row)] if phase == "dispatch" else 0
    dtype = DType(row["dtype"]) if phase == "dispatch" else DType.BF16
    return _row(row, "trtllm_alltoall", phase, us, dtype, "ep", "experts")


def _of_deepep(row: Mapping[str, str], phase: str, normal: bool) -> ExchangeRow | str:
    if float(row["n_nodes"]) != 1:
        return "more than one node"
    if normal and float(row[f"{phase}_sms"]) != SMS:
        return f"other than {SMS} SMs"
    if not normal and float(row["topk"]) < LEAST_TOP:
        return f"fewer than {LEAST_TOP} experts of a token"
    name, dtype = "deepep" if normal else "deepep_low_latency", DType.FP8 if phase == "dispatch" else DType.BF16
    return _row(row, name, phase, float(row[f"{phase}_us"]), dtype, "n_gpus", "num_experts" if normal else "experts")


def _row(
    row: Mapping[str, str], name: str, phase: str, us: float, dtype: DType, ranks_in: str, experts_in: str
) -> ExchangeRow | str:
    ranks = whole_number(row, ranks_in, MAX_RANKS)
    hidden, tokens, top, experts = (whole_number(row, each, MAX_COUNT) for each in (*_SIZES, experts_in))
    if None in (ranks, hidden, tokens, top, experts) or (top or 0) > (experts or 0):
        return "a size is not a whole number in the range of the model"
    assert ranks and hidden and tokens and top and experts, "checked above"
    least = name == "trtllm_alltoall"
    rows = round(tokens * (min(top, ranks) if least else ranks_reached(ranks, experts, top)))
    third = (tokens.bit_length() - 1) % 3 == 0
    group = RANKS if least and ranks == 8 else TOKENS if third else FIT
    label = f"{tokens:,} tokens of {hidden}, top-{top} of {experts}, {ranks} GPUs, {dtype.value}"
    sent = (dtype.bytes_of(rows * hidden), rows, tokens, tokens * top, experts)
    return ExchangeRow(gpu_name(row["gpu"]), name, phase, ranks, sent, group, label, us)


def _comparison(row: ExchangeRow) -> TableComparison | str:
    if gpu_named(row.gpu)[1] is None:
        return f"there is no profile of {row.gpu[:40]}"
    known = _kernel(row.gpu, row.name, row.phase)
    if known is None or not row.is_of(known[1]):
        return "a GPU, ranks or experts that the implementation is not known for"
    name, kernel, error = known
    operation, us = f"{name} {row.phase}", row.us(kernel)
    return TableComparison(row.gpu, operation, row.group, row.label, row.time_us, us, KIND, error)


@cache
def _kernel(gpu: str, name: str, phase: str) -> tuple[str, ExchangeKernel, float | None] | None:
    """The implementation that is shipped for a GPU, ``name`` or its child, its kernel, and the error that it states."""
    for implementation in shipped_implementations(collective_on(gpu, 8).system):
        if implementation.name in (name, f"{name}_blackwell") and gpu in implementation.gpus:
            method = implementation.method(PATTERN_OF[phase])
            if method is not None and method.routed is not None:
                return implementation.name, method.routed, None if method.error is None else float(method.error)
    return None
