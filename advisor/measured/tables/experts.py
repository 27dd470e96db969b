"""Tables of the experts of a mixture on one rank against kernels of a graph: two grouped GEMMs, and what is row-wise.

A table is a file ``moe_grouped_gemm_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, dtype, kernel,
hidden, inter, topk, experts, tp, ep, distribution, tokens and latency_us. What is timed sorts and casts rows too, and
reads and writes those of all tokens, also of tokens that no expert of the rank gets. Balanced loads are those of the
collector's stride, on the first rank (``stride_rows``). The choice of experts is timed too: one kernel up to a top of
16, which the starts of the others have in them, and with more those of PyTorch (``chosen_us``), which no layer has. Of
loads by a power law, the mean of five draws on the hottest rank, the table does not say what each expert gets: it is
compared with the mean of five draws of our own, of models that no constant was fitted to.

A table ``moe_layer_fused_NAME.csv`` has one kernel for dispatch, experts and combine, which is compared with the
shipped implementation of that: its columns are gpu, hidden, inter, topk, experts, ep, distribution, tokens_per_rank and
latency_us. It is predicted on the links of GB200, since its ranks are more than have a node of B300. Of loads that are
drawn, the table has one draw of a power law and the mean of ten of a sampled one, of seeds that it does not say: either
is compared with the mean of ten draws of our own, each on the hottest rank, with the constants of balanced loads. How
far draws lie apart is part of the error that such a row may have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from math import hypot, log, prod, sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from ....compiler import compile_text
from ....compiler.ir import (
    TICKS_PER_US,
    DType,
    FusedExperts,
    Gpu,
    GroupedGemmShape,
    KernelShape,
    RowWiseShape,
    System,
)
from ....compiler.ir.operations.routing_laws import RoutingLaw, evenly, rows_by_rank
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore.kernels.dispatch import work_of
from ...implementations.fused_experts import ExpertChain, fused_us
from .collectives import MAX_RANKS
from .csv_rows import FIT, HELD_OUT, TableComparison, in_odd_half, rows_in, tables_of, too_fast, whole_number
from .custom_all_reduce import STANDS_FOR
from .gemm import MAX_DIMENSION, gpu_name, gpu_named

PATTERNS = tuple(f"moe_grouped_gemm{each}.csv{gz}" for each in ("", "_*") for gz in ("", ".gz"))
FUSED_PATTERNS = tuple(f"moe_layer_fused{each}.csv{gz}" for each in ("", "_*") for gz in ("", ".gz"))
FUSED_FIT = (4, 16, 32)
OTHER_RANKS = "other ranks"
FUSED_KIND = "one kernel for experts"
POD = """
use "nvidia/{library}" as own
use "nvidia/gb200" as nvl
system pod {{ gpus {ranks} x own.{gpu}; fabric switch(nvl.nvswitch, link=nvl.nvlink) }}
workload w on pod {{ x = tensor bf16[{ranks}, 8] shard rows; y = all_gather(x) }}
"""
COLUMNS = ("gpu", "dtype", "kernel", "distribution")
MODEL = ("hidden", "inter", "topk", "experts")
NUMBERS = (*MODEL, "tp", "ep", "tokens")
DTYPES = {each.value: each for each in (DType.BF16, DType.FP8, DType.FP8_BLOCK, DType.NVFP4)}
UNGATED = "nongated"
FITTED = (*(f"{dtype}, {kernel}" for dtype in DTYPES for kernel in ("cutlass", UNGATED)), "fp8_block, deepgemm")
MOST_CHOSEN = (16, 512)
"""The top, and the experts, up to which one kernel chooses: NVIDIA TensorRT-LLM, ``RenormalizeMoeRoutingMethod``."""
CHOSEN_US = (11.0, 25.1, 0.581)
"""us of PyTorch's kernels that choose 22 of 512: to start, of 1,000 tokens, and the power of thousands of tokens.

Fitted to the rows without a gate of the fitted half of the models, of all GPUs and types together.
"""
EVEN, POWER_LAW = "balanced", "power_law_1.2"
DRAWS = tuple(RoutingLaw("power_law", Fraction(6, 5), seed) for seed in range(5))
FUSED_LAWS = {
    "power_law_1.01": RoutingLaw("power_law", Fraction("1.01")),
    POWER_LAW: RoutingLaw("power_law", Fraction("1.2")),
    "power_law_sampled_1.9": RoutingLaw("sampled", Fraction("1.9")),
}
FUSED_DRAWS = 10
NINE_TENTHS = 1.645
"""Standard deviations to either side of its mean that nine tenths of a normal distribution lie within."""
TOKENS = ((512, "up to 512 tokens"), (MAX_DIMENSION, "more tokens"))
LOADS = ((8, "up to 8 rows each"), (128, "up to 128 rows each"), (MAX_DIMENSION**2, "more rows each"))


@dataclass(frozen=True, slots=True)
class ExpertRow:
    """A measured row: the experts of one rank, which have ``widths`` of ``model``: its hidden and its own columns."""

    gpu: str
    dtype: DType
    kernel: str
    model: str
    widths: tuple[int, int]
    law: str
    dealt: tuple[int, int, int, int]
    label: str
    time_us: float

    @property
    def is_fitted(self) -> bool:
        """Whether constants are of this kernel."""
        return f"{self.dtype.value}, {self.kernel}" in FITTED

    @property
    def even_rows(self) -> tuple[int, ...]:
        """Rows of each expert that has some, where loads are even."""
        return stride_rows(*self.dealt)

    @property
    def load(self) -> str:
        """The group of its load."""
        return next(text for most, text in LOADS if sum(self.even_rows) <= most * len(self.even_rows))

    @property
    def gated(self) -> int:
        """Matrices of the first product."""
        return 1 if self.kernel == UNGATED else 2

    def least_us(self, gpu: Gpu) -> float:
        """Return the time of the products at the peak of ``gpu``, where loads are even: none are shorter."""
        return 2e6 * (self.gated + 1) * sum(self.even_rows) * prod(self.widths) / gpu.peak(self.dtype)

    def us(self, gpu: Gpu, rows: tuple[int, ...]) -> float:
        """Return the time of all kernels by a profile, where experts have ``rows``."""
        kernels = expert_kernels(rows, self.dealt[:2], self.widths, self.gated, self.dtype)
        us = sum(work_of(gpu, shape, gpu.sms).alone_ticks for shape in kernels) / TICKS_PER_US
        return us + chosen_us(*self.dealt[:3])


@lru_cache(maxsize=4096)
def stride_rows(tokens: int, top: int, experts: int, ranks: int) -> tuple[int, ...]:
    """Return the rows of each expert of the first rank that has some, where a table says that loads are balanced.

    A token goes to every so many experts, the next token to those beside them. Of fewer tokens than lie between two of
    these, the first experts are spread as far (aiconfigurator, ``balanced_logits``). Where ``top`` does not divide
    ``experts``, the first ones get more than others.

    >>> stride_rows(4, 8, 256, 32), stride_rows(32, 8, 256, 64), sum(stride_rows(32, 22, 512, 128))
    ((1,), (1, 1, 1, 1), 8)
    """
    step, every = -(-experts // top), np.arange(experts)
    if tokens >= step:
        first = tokens // experts + (every < tokens % experts)
    else:
        first = np.bincount(np.arange(tokens) * step // tokens, minlength=experts)
    rows = np.sum([np.roll(first, i * step) for i in range(top)], axis=0)
    return tuple(int(count) for count in rows[: experts // ranks] if count)


def chosen_us(tokens: int, top: int, experts: int) -> float:
    """Return the time in us in which PyTorch chooses ``top`` of ``experts`` for ``tokens``; 0 where one kernel does.

    >>> chosen_us(4096, 8, 256)
    0.0
    """
    if top <= MOST_CHOSEN[0] and experts <= MOST_CHOSEN[1]:
        return 0.0
    start, share, power = CHOSEN_US
    return start + share * float((tokens / 1000) ** power)


def expert_rows(path: Path) -> Iterator[ExpertRow | str]:
    """Yield every row of a table, or why rows were left out.

    Raises
    ------
    MeasuredError
        If the table cannot be read.
    """
    yield from rows_in((path,), COLUMNS, (*NUMBERS, "latency_us"), _row)


def _row(row: Mapping[str, str]) -> ExpertRow | str:
    numbers = [whole_number(row, each, MAX_DIMENSION) for each in NUMBERS]
    if row["dtype"] not in DTYPES:
        return "a type that is not compared"
    if None in numbers:
        return f"a size is not a whole number up to {MAX_DIMENSION}"
    hidden, inter, top, experts, tp, ep, tokens = (number or 0 for number in numbers)
    if inter % tp or experts % ep:
        return "experts or their columns do not divide among ranks"
    if row["distribution"] not in (EVEN, POWER_LAW):
        return "loads that the table does not say"
    model = "/".join(str(int(float(row[each]))) for each in MODEL)
    return ExpertRow(
        gpu=gpu_name(row["gpu"]),
        dtype=DTYPES[row["dtype"]],
        kernel=row["kernel"][:40],
        model=model,
        widths=(hidden, inter // tp),
        law=row["distribution"],
        dealt=(tokens, top, experts, ep),
        label=f"{tokens} tokens, {model}, tp {tp}, ep {ep}",
        time_us=float(row["latency_us"]),
    )


def expert_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every row beside its prediction, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """

    def compared(fields: Mapping[str, str]) -> TableComparison | str:
        row = _row(fields)
        return row if isinstance(row, str) else _comparison(row)

    yield from rows_in(tables_of(folder, PATTERNS), COLUMNS, (*NUMBERS, "latency_us"), compared)


def _comparison(row: ExpertRow) -> TableComparison | str:
    name, gpu = gpu_named(row.gpu)
    if gpu is None:
        return f"there is no profile of {name[:40]}"
    if not gpu.peak(row.dtype):
        return f"{gpu.name} has no peak rate for {row.dtype.value}"
    if row.time_us < row.least_us(gpu):
        return too_fast(row.label, row.time_us, name)
    kernel, odd = f"{row.dtype.value}, {row.kernel}", in_odd_half(row.model)
    if row.law == EVEN:
        half = f"{HELD_OUT if odd else FIT}, " if row.is_fitted else ""
        us = row.us(gpu, row.even_rows)
        return TableComparison(name, f"experts, {kernel}", half + row.load, row.label, row.time_us, us)
    tokens, top, experts, ranks = row.dealt
    if not row.is_fitted or not odd or ranks == 1:
        return "drawn loads of one rank, of a kernel or model that constants were fitted to, or without constants"
    drawn = (rows_by_rank(law, ranks, experts, top, tokens) for law in DRAWS)
    mean_us = mean(row.us(gpu, max(each, key=sum)) for each in drawn)
    group = next(text for most, text in TOKENS if tokens <= most)
    return TableComparison(name, f"hottest experts, {kernel}", group, row.label, row.time_us, mean_us)


def fused_layer_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every row of one kernel for a layer of experts beside its prediction, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    numbers = (*MODEL, "ep", "tokens_per_rank", "latency_us")
    yield from rows_in(tables_of(folder, FUSED_PATTERNS), ("gpu", "distribution"), numbers, _fused)


def _fused(row: Mapping[str, str]) -> TableComparison | str:
    name = gpu_name(row["gpu"])
    numbers = [whole_number(row, each, MAX_DIMENSION) for each in (*MODEL, "ep", "tokens_per_rank")]
    hidden, inter, top, experts, ranks, tokens = (number or 0 for number in numbers)
    if None in numbers or ranks > MAX_RANKS or experts % ranks:
        return "a size is not a whole number in the range of the model"
    law = FUSED_LAWS.get(row["distribution"])
    if law is None and row["distribution"] != EVEN:
        return "loads that the table does not say"
    known = _fused_kernel(STANDS_FOR.get(name, name), ranks)
    if known is None or not known[1].least_ranks <= ranks <= known[1].most_ranks:
        return "a GPU or ranks that no shipped kernel for experts is known for"
    system, kernel, title = known

    def us(rows: tuple[int, ...]) -> float:
        up = GroupedGemmShape(rows, 2 * inter, hidden, DType.FP8)
        down = GroupedGemmShape(rows, hidden, inter, DType.FP8)
        row_bytes = DType.FP8.bytes_of(hidden) + DType.BF16.bytes_of(hidden)
        return fused_us(kernel, system, ExpertChain((), (up, down), tokens, row_bytes))

    label = f"{tokens:,} tokens of {hidden}, {inter} columns, top-{top} of {experts}, {ranks} GPUs"
    measured, error = float(row["latency_us"]), None if kernel.error is None else float(kernel.error)
    if law is not None:
        laws = (replace(law, seed=seed) for seed in range(FUSED_DRAWS))
        drawn = (rows_by_rank(each, ranks, experts, top, tokens * ranks) for each in laws)
        times, law_text = [us(max(each, key=sum)) for each in drawn], row["distribution"]
        error = None if error is None else with_draws(error, times, FUSED_DRAWS if law.name == "sampled" else 1)
        return TableComparison(
            name, f"{title} layer, hottest rank", law_text, label, measured, mean(times), FUSED_KIND, error
        )
    dealt = tokens * top  # as many come to a rank as leave it
    rows = evenly(dealt, max(1, min(experts // ranks, dealt)))
    group = FIT if ranks in FUSED_FIT else OTHER_RANKS
    return TableComparison(name, f"{title} layer", group, label, measured, us(rows), FUSED_KIND, error)


def with_draws(error: float, times_us: Sequence[float], others: int) -> float:
    """Return ``error`` of a time with that of draws: the mean of ``times_us`` against one of ``others`` draws."""
    spread = stdev(map(log, times_us)) * sqrt(1 / others + 1 / len(times_us))
    return hypot(error, NINE_TENTHS * spread)


@cache
def _fused_kernel(gpu: str, ranks: int) -> tuple[System, FusedExperts, str] | None:
    """The shipped kernel for the experts of a layer on a GPU, with GPUs behind the links of GB200."""
    if gpu_named(gpu)[1] is None:
        return None
    system = compile_text(POD.format(library=gpu.lower(), gpu=gpu, ranks=ranks)).scenario().system
    for implementation in shipped_implementations(system):
        if implementation.experts is not None and gpu in implementation.gpus:
            return system, implementation.experts, implementation.name
    return None


def expert_kernels(
    rows: tuple[int, ...], chosen: tuple[int, int], widths: tuple[int, int], gated: int, dtype: DType
) -> tuple[KernelShape, ...]:
    """Return rows to experts, a product, its activation, another product, and rows back, in bf16 outside products.

    ``chosen`` are the tokens of all ranks, and how many experts each goes to.
    """
    (hidden, inter), dealt, tokens = widths, sum(rows), chosen[0]
    return (
        RowWiseShape(dealt * hidden, 1, dtype, tokens * hidden * 2, chosen),
        GroupedGemmShape(rows, inter * gated, hidden, dtype),
        RowWiseShape(dealt * inter, gated, dtype, dealt * inter * gated * 2),
        GroupedGemmShape(rows, hidden, inter, dtype),
        RowWiseShape(tokens * hidden, 1, DType.BF16, dealt * hidden * 2),
    )
