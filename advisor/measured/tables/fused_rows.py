"""Tables of fused kernels and their serial partners: measured times and the shapes on one GPU.

A table is a file ``overlap_NAME.csv`` or ``.csv.gz`` with the columns gpu, n_gpus, op, m, n, k, shape_semantics, dtype,
impl, time_us and source. A row of a collective library with a library GEMM is the partner of the rows that differ only
in ``impl`` and times. The meaning of ``m, n, k`` differs between sources and is read from ``shape_semantics``.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....compiler.ir import DType, Pattern
from .collectives import gpu_named, whole_number
from .csv_rows import left_out_lines, read_rows
from .fused_plans import FusedKernel, implementation_named

PATTERNS = ("overlap_*.csv", "overlap_*.csv.gz")
COLUMNS = ("gpu", "op", "impl")
NUMBERS = ("n_gpus", "time_us")
SERIAL = ("torch+nccl", "nccl+cublas", "torch AR/nccl baseline")
WITHOUT_PARTNER: Mapping[str, str] = {
    "MoE": "a layer of experts, whose partner is a loop in torch, no collective and a GEMM",
    "ZeRO-3": "a whole training step",
}
BESIDE = "||"
"""What stands between a GEMM and a collective that do not wait for each other."""

UNFIT: Mapping[str, str] = {
    "FlashOverlap": "made for another generation, on a number of GPUs that is not stated",
    "nvFuser": "one row of many, without a partner",
}
OPERATIONS: Mapping[str, Pattern] = {
    "AG+GEMM": Pattern.AG_GEMM,
    "GEMM+RS": Pattern.GEMM_RS,
    "GEMM+AR": Pattern.GEMM_AR,
}
Elsewhere = Callable[[Sequence[Mapping[str, str]]], Container[int]]
"""The indices of the rows of a table that are compared in another way, which need no reason."""

MAX_RANKS, MAX_SIZE = 64, 1 << 20
_LAYER = re.compile(r"hidden (\d{1,7}), ffn \d{1,7} local (\d{1,7})")


@dataclass(frozen=True, slots=True)
class FusedPart:
    """A GEMM of one GPU, m x n x k, with the collective of ``pattern``, or without one (GEMM)."""

    pattern: Pattern
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.pattern.value} {self.m} x {self.n} x {self.k}"


@dataclass(frozen=True, slots=True)
class FusedRow:
    """A fused kernel and its serial partner; a layer has several ``parts``, one after the other."""

    gpu: str
    ranks: int
    dtype: DType
    parts: tuple[FusedPart, ...]
    implementation: FusedKernel
    fused_us: float
    serial_us: float

    @property
    def label(self) -> str:
        """For instance ``8 GPUs, AG+GEMM 1024 x 6656 x 4096``."""
        return f"{self.ranks} GPUs, {', '.join(map(str, self.parts))}"


def fused_rows(path: Path, elsewhere: Elsewhere = lambda rows: frozenset()) -> Iterator[FusedRow | str]:
    """Yield every fused kernel of a table with a partner and a known schedule, or why rows were left out.

    Raises
    ------
    MissingTable, MeasuredError
        As ``read_rows``.
    """
    table = read_rows(path, COLUMNS, NUMBERS)
    yield from table.skipped
    left_out: Counter[str] = Counter()
    partners = {partner_key(row): float(row["time_us"]) for row in table.rows if row["impl"] in SERIAL}
    paired: set[tuple[str, ...]] = set()
    compared = elsewhere(table.rows)
    for index, row in enumerate(table.rows):
        if row["impl"] in SERIAL:
            continue
        fused = _fused(row, partners.get(partner_key(row)))
        if isinstance(fused, str):
            left_out[fused] += index not in compared
        else:
            paired.add(partner_key(row))
            yield fused
    left_out["serial, and nothing fused beside it is compared"] += sum(
        row["impl"] in SERIAL and partner_key(row) not in paired and index not in compared
        for index, row in enumerate(table.rows)
    )
    yield from left_out_lines(path, left_out)


def partner_key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a fused kernel and its serial partner have in common."""
    columns = ("gpu", "n_gpus", "op", "m", "n", "k", "shape_semantics", "dtype", "source")
    return tuple(row.get(column, "") for column in columns)


def _fused(row: Mapping[str, str], serial_us: float | None) -> FusedRow | str:
    """Return the fused kernel of a row, or why it is not compared."""
    reasons = [reason for word, reason in WITHOUT_PARTNER.items() if word in row["op"]]
    reasons += [reason for word, reason in UNFIT.items() if word in row["impl"]]
    if BESIDE in row["op"]:
        reasons.append("a GEMM beside a collective that does not wait for it: no implementation of both")
    if reasons:
        return reasons[0]
    name, gpu = gpu_named(row["gpu"])
    if gpu is None:
        return f"there is no profile of {row['gpu'][:60]}"
    if gpu.collectives is None:
        return f"the profile of {name} has no collectives"
    ranks, dtype = whole_number(row, "n_gpus", MAX_RANKS), row.get("dtype", "").partition(" ")[0]
    parts = parts_of(row, ranks) if ranks is not None and ranks > 1 else ()
    if ranks is None or not parts:
        return "the shape or the number of GPUs is not stated, or does not divide"
    if dtype not in [known.value for known in DType]:
        return "the type is not stated"
    if serial_us is None:
        return "no serial partner"
    implementation = implementation_named(row["impl"])
    if implementation is None:
        return f"no schedule is known for {row['impl'][:40]}"
    missing = [part.pattern.value for part in parts if not implementation.has_schedule(part.pattern)]
    if missing:
        return f"no schedule is known for {missing[0]} by {implementation.name}"
    return FusedRow(name, ranks, DType(dtype), parts, implementation, float(row["time_us"]), serial_us)


def parts_of(row: Mapping[str, str], ranks: int) -> tuple[FusedPart, ...]:
    """Return the GEMMs of one GPU and their collectives; none if the row does not state them."""
    if row["op"].startswith("TP MLP"):
        return _layer(row)
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


def _layer(row: Mapping[str, str]) -> tuple[FusedPart, ...]:
    """Return a feed-forward layer with a gate, as in Qwen3: up and gate in one GEMM, then down."""
    m, sizes = _size(row.get("m", "")), _LAYER.search(row.get("shape_semantics", ""))
    if m is None or sizes is None:
        return ()
    hidden, inner = map(int, sizes.groups())
    before, after = (Pattern.GEMM, Pattern.GEMM_AR) if "GEMM+AR" in row["op"] else (Pattern.AG_GEMM, Pattern.GEMM_RS)
    return FusedPart(before, m, 2 * inner, hidden), FusedPart(after, m, hidden, inner)


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_SIZE else None
