"""Tables of attention kernels of frameworks against the form of ``simcore/kernels/attention.py``.

A table is a file ``attention_NAME.csv`` or ``.csv.gz``, or without a NAME, with the columns gpu, op, phase, kernel,
batch, q_len, kv_len, heads, kv_heads, head_dim, window and latency_us, all in bf16 and causal. A profile has the
constants of one kernel (``FITTED``), fitted to some of its rows; rows of others say how far those are from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from zlib import crc32

from ....compiler.ir import TICKS_PER_US, AttentionShape, DType, Gpu
from ....simcore.kernels.attention import attention_work
from .collectives import gpu_named, tables_of, whole_number
from .csv_rows import TableComparison, rows_in
from .gemm import MAX_DIMENSION, gpu_name

PATTERNS = ("attention.csv", "attention.csv.gz", "attention_*.csv", "attention_*.csv.gz")
COLUMNS = ("gpu", "op", "phase", "kernel", "window")
SIZES = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
PHASES = ("context", "generation")
FITTED: Mapping[str, str] = {"H100": "vllm_flash_attn_fa3", "B200": "vllm_flashinfer_trtllm"}
"""How the names of the kernels begin that the constants of a GPU were fitted to."""
MAX_HEAD_DIM = 256
"""Nothing is fitted to larger heads: they have kernels of their own."""
LONG_US = 100
FIT, HELD_OUT = "fit", "held out"


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
    def half(self) -> str:
        """Whether it may be fitted to: half of the configurations of heads are held out, and all large heads."""
        if self.gpu not in FITTED or not self.kernel.startswith(FITTED[self.gpu]):
            return ""
        heads = f"{self.shape.heads}/{self.shape.kv_heads}/{self.shape.head_dim}"
        return HELD_OUT if self.shape.head_dim > MAX_HEAD_DIM or in_odd_half(heads) else FIT


def in_odd_half(name: str) -> bool:
    """Whether a checksum puts ``name`` into the half that is held out, the same in every run."""
    return crc32(name.encode()) % 2 == 1


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
        else:
            length = f"{'below' if row.time_us < LONG_US else 'from'} {LONG_US} us"
            group = ", ".join(each for each in (row.half, length) if each)
            operation, predicted_us = f"attention {row.phase}, {row.kernel}", attention_us(gpu, row.shape)
            yield TableComparison(row.gpu, operation, group, row.shape.text, row.time_us, predicted_us)


@lru_cache(maxsize=8192)
def attention_us(gpu: Gpu, shape: AttentionShape) -> float:
    """Return the time of the kernel on all SMs by the profile, in us."""
    return attention_work(gpu, shape, gpu.sms).alone_ticks / TICKS_PER_US


def _row(file: str, row: Mapping[str, str]) -> AttentionRow | str:
    """Return what a row measures, or why it is not compared."""
    sizes = [whole_number(row, name, MAX_DIMENSION) for name in SIZES]
    if row["op"] != "gqa":
        return "keys and values of heads of other sizes (MLA) are not modelled"
    if row["window"] not in ("0", "0.0"):
        return "a window of keys is not modelled"
    if row["phase"] not in PHASES:
        return "the phase is not known"
    batch, heads, kv_heads, q_len, kv_len, head_dim = sizes
    if not (batch and heads and kv_heads and q_len and kv_len and head_dim) or heads % kv_heads:
        return f"a size is not a whole number up to {MAX_DIMENSION}, or kv_heads do not divide heads"
    shape = AttentionShape(batch, heads, kv_heads, q_len, kv_len, head_dim, DType.BF16, causal=True)
    kernel = row["kernel"][:40]
    return AttentionRow(gpu_name(row["gpu"]), row["phase"], kernel, shape, float(row["latency_us"]), file)
