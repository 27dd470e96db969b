"""Tables of attention kernels of frameworks against the form of ``simcore/kernels/attention.py``.

A table is a file ``attention_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, op, phase, kernel,
batch, q_len, kv_len, heads, kv_heads, head_dim, window and latency_us, all in bf16 and causal. A profile has the
constants of one kernel (``FITTED``) and of TensorRT-LLM's own, fitted to some of their rows; rows of others say how far
the first are from them. The op
``mla`` has the sizes of DeepSeek-V3 (arXiv 2412.19437, section 4.2), absorbed where it generates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from ....compiler.ir import TICKS_PER_US, AttentionShape, DType, Gpu
from ....compiler.ir.operations.attention import TRTLLM
from ....simcore.kernels.attention import MAX_HEAD_DIM, attention_work
from .csv_rows import (
    FIT,
    HELD_OUT,
    TableComparison,
    in_odd_half,
    is_positive,
    rows_in,
    tables_of,
    too_fast,
    whole_number,
)
from .gemm import MAX_DIMENSION, gpu_name, gpu_named

PATTERNS = ("attention.csv", "attention.csv.gz", "attention_*.csv", "attention_*.csv.gz")
COLUMNS = ("gpu", "op", "phase", "kernel", "window")
SIZES = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
PHASES, NO_WINDOW = ("context", "generation"), ("0", "0.0")
FITTED: Mapping[str, str] = {"H100": "vllm_flash_attn_fa3", "B200": "vllm_flashinfer_trtllm"}
"""How the names of the kernels begin that the constants of a GPU were fitted to."""
FITTED_WIDE = "flashinfer"
"""The kernel of TensorRT-LLM that the constants of heads over 256 were fitted to."""
FITTED_MLA, MLA_HEADS = TRTLLM, (1, 4, 16, 64)
"""The same of MLA on both, and the heads of the rows that its constants were fitted to."""
MLA_COLS: Mapping[str, tuple[int, int]] = {"context": (192, 128), "generation": (576, 512)}
"""Columns of a key and of a value by phase."""
MOST_SHARING = 32
"""Heads that share keys and are packed in generation; with more TensorRT-LLM reads their keys again for each."""
LONG_US = 100


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """One measured kernel; ``half`` is empty for one of a framework that nothing was fitted to."""

    gpu: str
    phase: str
    kernel: str
    shape: AttentionShape
    time_us: float
    file: str

    @property
    def by_head(self) -> bool:
        """Whether so many heads share keys in generation that TensorRT-LLM does not pack them."""
        sharing = self.shape.heads > MOST_SHARING * self.shape.kv_heads
        return sharing and self.phase == PHASES[1] and self.kernel == TRTLLM and self.shape.values is None

    @property
    def is_wide(self) -> bool:
        """Whether heads are wider than any that constants were fitted to."""
        return self.shape.values is None and self.shape.head_dim > MAX_HEAD_DIM

    def least_us(self, gpu: Gpu) -> float:
        """Return the time of the products at the peak of ``gpu``: none is shorter."""
        return 1e6 * self.shape.flops / gpu.peak(self.shape.dtype)

    @property
    def half(self) -> str:
        """Whether it may be fitted to: half of the configurations of heads are held out, large heads and windows."""
        shape = self.shape
        fitted = FITTED.get(self.gpu) if shape.values is None else FITTED_MLA
        if fitted is None or not (shape.by or self.kernel.startswith(fitted)):
            return ""
        if shape.values is not None:
            return FIT if shape.heads in MLA_HEADS else HELD_OUT
        heads = f"{shape.heads}/{shape.kv_heads}/{shape.head_dim}"
        others = (self.is_wide and self.kernel != FITTED_WIDE) or shape.window is not None
        return HELD_OUT if others or in_odd_half(heads) else FIT


def attention_rows(folder: Path) -> Iterator[AttentionRow | str]:
    """Yield every row of every table of ``folder``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for path in tables_of(folder, PATTERNS):
        yield from rows_in((path,), COLUMNS, (*SIZES, "latency_us"), partial(_row, path.name))


def attention_comparisons(folder: Path) -> Iterator[TableComparison | str]:
    """Yield every row beside its prediction, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    for row in attention_rows(folder):
        gpu = None if isinstance(row, str) else gpu_named(row.gpu)[1]
        if isinstance(row, str):
            yield row
        elif gpu is None:
            yield f"{row.file}: there is no profile of {row.gpu[:40]}"
        elif row.time_us < row.least_us(gpu):
            yield f"{row.file}: {too_fast(row.shape.text, row.time_us, row.gpu)}"
        else:
            length = f"{'below' if row.time_us < LONG_US else 'from'} {LONG_US} us"
            window = "window" if row.shape.window is not None else ""
            sharing = f"over {MOST_SHARING} heads a key" if row.by_head else ""
            wide = f"heads over {MAX_HEAD_DIM}" if row.is_wide else ""
            group = ", ".join(each for each in (row.half, wide, sharing, window, length) if each)
            name = "attention" if row.shape.values is None else "mla"
            operation, predicted_us = f"{name} {row.phase}, {row.kernel}", attention_us(gpu, row.shape)
            yield TableComparison(row.gpu, operation, group, row.shape.text, row.time_us, predicted_us)


@lru_cache(maxsize=8192)
def attention_us(gpu: Gpu, shape: AttentionShape) -> float:
    """Return the time of the kernel on all SMs by the profile, in us."""
    return attention_work(gpu, shape, gpu.sms).alone_ticks / TICKS_PER_US


def _row(file: str, row: Mapping[str, str]) -> AttentionRow | str:
    """Return what a row measures, or why it is not compared."""
    sizes = [whole_number(row, name, MAX_DIMENSION) for name in SIZES]
    mla = {"gqa": False, "mla": True}.get(row["op"])
    if mla is None:
        return f"{row['op'][:40]} is none of gqa and mla"
    if row["window"] not in NO_WINDOW and not is_positive(row["window"]):
        return "a window is not a number of keys"
    window = None if row["window"] in NO_WINDOW else whole_number(row, "window", MAX_DIMENSION) or 0
    if row["phase"] not in PHASES:
        return "the phase is not known"
    batch, heads, kv_heads, q_len, kv_len, head_dim = sizes
    if not (batch and heads and kv_heads and q_len and kv_len and head_dim) or heads % kv_heads or window == 0:
        return f"a size is not a whole number up to {MAX_DIMENSION}, or kv_heads do not divide heads"
    if mla and head_dim != MLA_COLS[row["phase"]][0]:
        return f"keys of MLA have other columns than {MLA_COLS[row['phase']][0]}"
    shape = AttentionShape(batch, heads, kv_heads, q_len, kv_len, head_dim, DType.BF16, causal=True, window=window)
    if mla:
        absorbed = row["phase"] == PHASES[1]
        values = MLA_COLS[row["phase"]][1]
        shape = replace(shape, kv_heads=1 if absorbed else heads, values=values, in_keys=absorbed)
    kernel = row["kernel"][:40]
    ours = kernel == TRTLLM or (kernel == FITTED_WIDE and head_dim > MAX_HEAD_DIM)
    if ours and not mla and gpu_name(row["gpu"]) in FITTED:
        shape = replace(shape, by=TRTLLM)
    return AttentionRow(gpu_name(row["gpu"]), row["phase"], kernel, shape, float(row["latency_us"]), file)
