"""What a trace says of a run: its GEMMs and collectives."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....compiler.ir import DType

MAX_KEPT = 2_000_000
"""Kernels and operations that are kept; a trace of one step has some ten thousand."""
MAX_SIZE = 1 << 24
DTYPES = {
    "c10::BFloat16": DType.BF16,
    "c10::Half": DType.FP16,
    "c10::Float8_e4m3fn": DType.FP8,
    "c10::Float8_e4m3fnuz": DType.FP8,
    "BFloat16": DType.BF16,
    "Half": DType.FP16,
    "Float8_e4m3fn": DType.FP8,
}
FIRST_MATRIX = {"aten::mm": 0, "aten::_scaled_mm": 0, "aten::addmm": 1}
"""The operand of each operation that the first matrix is; the second one follows it."""


@dataclass(frozen=True, slots=True)
class TracedGemm:
    """A GEMM of [m, k] by [k, n], and when its kernels ran, in us."""

    m: int
    n: int
    k: int
    dtype: DType
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """A collective of ``num_ranks``, elements that go in and come out at this rank, and when its kernel ran."""

    operation: str
    num_in: int
    num_out: int
    num_ranks: int
    dtype: DType | None
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TracedRun:
    """What a trace of ``kind`` says of a run: GPU, rank, kernels in the order of time, and what was left out.

    Without ``has_times`` kernels have durations and an order alone: they begin when the one before them ends.
    """

    kind: str
    has_times: bool
    gpu: str
    rank: int | None
    gemms: tuple[TracedGemm, ...]
    collectives: tuple[TracedCollective, ...]
    num_kernels: int
    notes: tuple[str, ...]


def gemm_shape(operation: str, dims: object, types: object) -> tuple[int, int, int, DType] | None:
    """The shape of a GEMM, (m, n, k, type); None for other operations, and for sizes and types that do not fit."""
    first = FIRST_MATRIX.get(operation)
    if first is None or not isinstance(dims, list) or not isinstance(types, list):
        return None
    one, other = (_matrix(dims, first + number) for number in (0, 1))
    dtype = DTYPES.get(str(types[first])) if len(types) > first else None
    if one is None or other is None or one[1] != other[0] or dtype is None:
        return None
    return one[0], other[1], one[1], dtype


def _matrix(dims: Sequence[object], number: int) -> tuple[int, int] | None:
    found = dims[number] if len(dims) > number else None
    if not isinstance(found, list) or len(found) != 2:
        return None
    if not all(isinstance(size, int) and 0 < size <= MAX_SIZE for size in found):
        return None
    return int(found[0]), int(found[1])
