"""Measured dispatches and combines of libraries for experts, and the times that shipped implementations predict.

Tables are ``trtllm_alltoall*`` (two-sided, with the prepare in a dispatch), ``deepep_low_latency*`` and
``deepep_dispatch_combine_by_sms*`` (24 SMs). Every third power of two of tokens is held out, and so are 8 ranks of
TensorRT-LLM. Its table sends a token to as many ranks as there can be; experts of DeepEP's are drawn.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ....compiler.ir import DType, ExchangeKernel, Pattern
from ....compiler.ir.operations.routing_laws import ranks_reached
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore.kernels.nccl import routed_time
from .collectives import MAX_RANKS, gpu_named, tables_of, whole_number
from .csv_rows import TableComparison, left_out_lines, read_rows
from .gemm import gpu_name
from .samples import scenario_of

FIT, TOKENS, RANKS = "fit", "other tokens", "other ranks"
MAX_COUNT = 1 << 20
LEAST_TOP = 4
SMS = 24
PATTERN_OF = {"dispatch": Pattern.A2A_GEMM, "combine": Pattern.GEMM_A2A}
TRTLLM, LOW_LATENCY, NORMAL = (
    (f"{name}.csv", f"{name}.csv.gz")
    for name in ("trtllm_alltoall*", "deepep_low_latency*", "deepep_dispatch_combine_by_sms*")
)
PATTERNS = (*TRTLLM, *LOW_LATENCY)
_SIZES = ("hidden", "tokens_per_rank", "topk")
_DEEPEP = ("n_nodes", "n_gpus", *_SIZES)


def exchange_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every exchange of every table of ``folder``, or a text that says why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, TRTLLM):
        table = read_rows(path, ("gpu", "kernel", "phase", "dtype"), (*_SIZES, "experts", "ep", "latency_us"))
        prepared = {_key(row): float(row["latency_us"]) for row in table.rows if row["phase"] == "prepare"}
        found = [_of_trtllm(row, prepared) for row in table.rows if row["phase"] != "prepare"]
        yield from _told(path, [*table.skipped], found)
    for path in tables_of(folder, (*LOW_LATENCY, *NORMAL)):
        normal = path.name.startswith("deepep_dispatch")
        numbers = (*_DEEPEP, *(f"{phase}_us" for phase in PATTERN_OF))
        numbers += ("num_experts", "dispatch_sms", "combine_sms") if normal else ("experts",)
        table = read_rows(path, ("gpu",), numbers)
        yield from _told(
            path, [*table.skipped], [_of_deepep(row, phase, normal) for row in table.rows for phase in PATTERN_OF]
        )


def _told(path: Path, skipped: list[str], found: list[TableComparison | str]) -> Iterator[TableComparison | str]:
    yield from skipped
    yield from (each for each in found if not isinstance(each, str))
    yield from left_out_lines(path, Counter(each for each in found if isinstance(each, str)))


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("gpu", "kernel", "dtype", *_SIZES, "experts", "ep"))


def _of_trtllm(row: Mapping[str, str], prepared: Mapping[tuple[str, ...], float]) -> TableComparison | str:
    phase, us = row["phase"], float(row["latency_us"])
    if row["kernel"] != "NVLinkTwoSided" or phase not in PATTERN_OF:
        return "not a dispatch or a combine of the two-sided kernel"
    if row["dtype"] not in ("bf16", "fp8"):
        return "a type other than bf16 and fp8"
    if phase == "dispatch" and _key(row) not in prepared:
        return "a dispatch without its prepare"
    us += prepared[_key(row)] if phase == "dispatch" else 0
    dtype = DType(row["dtype"]) if phase == "dispatch" else DType.BF16
    return _compared(row, "trtllm_alltoall", phase, us, dtype, "ep", "experts")


def _of_deepep(row: Mapping[str, str], phase: str, normal: bool) -> TableComparison | str:
    if float(row["n_nodes"]) != 1:
        return "more than one node"
    if normal and float(row[f"{phase}_sms"]) != SMS:
        return f"other than {SMS} SMs"
    if not normal and float(row["topk"]) < LEAST_TOP:
        return f"fewer than {LEAST_TOP} experts of a token"
    name, dtype = "deepep" if normal else "deepep_low_latency", DType.FP8 if phase == "dispatch" else DType.BF16
    return _compared(
        row, name, phase, float(row[f"{phase}_us"]), dtype, "n_gpus", "num_experts" if normal else "experts"
    )


def _compared(
    row: Mapping[str, str], name: str, phase: str, us: float, dtype: DType, ranks_in: str, experts_in: str
) -> TableComparison | str:
    gpu, profile = gpu_named(gpu_name(row["gpu"]))
    ranks = whole_number(row, ranks_in, MAX_RANKS)
    hidden, tokens, top, experts = (whole_number(row, each, MAX_COUNT) for each in (*_SIZES, experts_in))
    if profile is None:
        return f"there is no profile of {gpu_name(row['gpu'])[:40]}"
    if None in (ranks, hidden, tokens, top, experts):
        return "a size is not a whole number in the range of the model"
    assert ranks and hidden and tokens and top and experts, "checked above"
    known = _kernel(gpu, name, phase)
    if known is None or not known[1].least_ranks <= ranks <= known[1].most_ranks or experts % ranks or top > experts:
        return "a GPU, ranks or experts that the implementation is not known for"
    least = name == "trtllm_alltoall"
    sent = min(top, ranks) if least else ranks_reached(ranks, experts, top)
    rows = round(tokens * sent)
    time = routed_time(known[1], ranks, dtype.bytes_of(rows * hidden), rows, tokens, tokens * top, experts)
    third = (tokens.bit_length() - 1) % 3 == 0
    group = RANKS if least and ranks == 8 else TOKENS if third else FIT
    label = f"{tokens:,} tokens of {hidden}, top-{top} of {experts}, {ranks} GPUs, {dtype.value}"
    return TableComparison(gpu, f"{known[0]} {phase}", group, label, us, time.us)


@cache
def _kernel(gpu: str, name: str, phase: str) -> tuple[str, ExchangeKernel] | None:
    """The implementation that is shipped for a GPU, ``name`` or its child, and its kernel."""
    for implementation in shipped_implementations(scenario_of(gpu, 8).system):
        if implementation.name in (name, f"{name}_blackwell") and gpu in implementation.gpus:
            method = implementation.method(PATTERN_OF[phase])
            return None if method is None or method.routed is None else (implementation.name, method.routed)
    return None
