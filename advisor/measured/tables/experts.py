"""Tables of the experts of a mixture on one rank against kernels of a graph: two grouped GEMMs, and what is row-wise.

A table is a file ``moe_grouped_gemm_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, dtype, kernel,
hidden, inter, topk, experts, tp, ep, distribution, tokens and latency_us. Only rows of even loads are compared: of
others the table does not say what each expert gets. What is timed sorts and casts rows too, and reads and writes those
of all tokens, also of tokens that no expert of the rank gets.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ....compiler.ir import TICKS_PER_US, DType, Gpu, GroupedGemmShape, KernelShape, RowWiseShape
from ....simcore.kernels.dispatch import work_of
from .attention import FIT, HELD_OUT, in_odd_half
from .collectives import gpu_named, tables_of, whole_number
from .csv_rows import TableComparison, rows_in
from .gemm import MAX_DIMENSION

PATTERNS = tuple(f"moe_grouped_gemm{each}.csv{gz}" for each in ("", "_*") for gz in ("", ".gz"))
COLUMNS = ("gpu", "dtype", "kernel", "distribution")
MODEL = ("hidden", "inter", "topk", "experts")
NUMBERS = (*MODEL, "tp", "ep", "tokens")
DTYPES = {"bf16": DType.BF16, "fp8": DType.FP8, "fp8_block": DType.FP8}
FITTED = ("bf16, cutlass", "fp8, cutlass")
UNGATED = "nongated"
LOADS = ((8, "up to 8 rows each"), (128, "up to 128 rows each"), (MAX_DIMENSION**2, "more rows each"))


def expert_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every row beside its prediction, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    yield from rows_in(tables_of(folder, PATTERNS), COLUMNS, (*NUMBERS, "latency_us"), _comparison)


def _comparison(row: Mapping[str, str]) -> TableComparison | str:
    name, gpu = gpu_named(row["gpu"])
    numbers = [whole_number(row, each, MAX_DIMENSION) for each in NUMBERS]
    if gpu is None:
        return f"there is no profile of {name[:40]}"
    if row["distribution"] != "balanced" or row["dtype"] not in DTYPES:
        return "loads that the table does not say, or a type that the language has no word for"
    if None in numbers:
        return f"a size is not a whole number up to {MAX_DIMENSION}"
    hidden, inter, top, experts, tp, ep, tokens = (number or 0 for number in numbers)
    if inter % tp or experts % ep:
        return "experts or their columns do not divide among ranks"
    dealt, gated = max(1, round(tokens * top / ep)), 1 if row["kernel"] == UNGATED else 2
    used = min(experts // ep, dealt)
    rows = tuple(dealt // used + (number < dealt % used) for number in range(used))
    dtype = DTYPES[row["dtype"]]
    kernels = expert_kernels(rows, tokens, (hidden, inter // tp), gated, dtype)
    kernel = f"{row['dtype']}, {row['kernel'][:40]}"
    model = "/".join(str(int(float(row[each]))) for each in MODEL)
    half = f"{HELD_OUT if in_odd_half(model) else FIT}, " if kernel in FITTED else ""
    group = half + next(text for most, text in LOADS if dealt <= most * used)
    label = f"{tokens} tokens, {model}, tp {tp}, ep {ep}"
    return TableComparison(name, f"experts, {kernel}", group, label, float(row["latency_us"]), _us(gpu, kernels))


def expert_kernels(
    rows: tuple[int, ...], tokens: int, widths: tuple[int, int], gated: int, dtype: DType
) -> tuple[KernelShape, ...]:
    """Return rows to experts, a product, its activation, another product, and rows back, in bf16 outside products."""
    (hidden, inter), dealt = widths, sum(rows)
    return (
        RowWiseShape(dealt * hidden, 1, dtype, tokens * hidden * 2),
        GroupedGemmShape(rows, inter * gated, hidden, dtype),
        RowWiseShape(dealt * inter, gated, dtype, dealt * inter * gated * 2),
        GroupedGemmShape(rows, hidden, inter, dtype),
        RowWiseShape(tokens * hidden, 1, DType.BF16, dealt * hidden * 2),
    )


def _us(gpu: Gpu, kernels: tuple[KernelShape, ...]) -> float:
    return sum(work_of(gpu, shape, gpu.sms).alone_ticks for shape in kernels) / TICKS_PER_US
