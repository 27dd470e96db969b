"""GEMMs and collectives of a trace that torch.profiler wrote on a GPU.

A kernel of a GEMM and the operation that launched it share an "External id"; the operation has the shapes, so that the
trace needs ``record_shapes=True``. A kernel of NCCL or RCCL has the name, the size and the ranks of its collective.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....compiler.ir import DType
from .chrome import ChromeTrace

MAX_KEPT = 2_000_000
"""Kernels and operations that are kept; a trace of one step has some ten thousand."""
MAX_SIZE = 1 << 24
_DTYPES = {
    "c10::BFloat16": DType.BF16,
    "c10::Half": DType.FP16,
    "c10::Float8_e4m3fn": DType.FP8,
    "c10::Float8_e4m3fnuz": DType.FP8,
    "BFloat16": DType.BF16,
    "Half": DType.FP16,
    "Float8_e4m3fn": DType.FP8,
}
# The operand of each operation that the first matrix is; the second one follows it.
_GEMMS = {"aten::mm": 0, "aten::_scaled_mm": 0, "aten::addmm": 1}
_COLLECTIVES = {"allgather": "all_gather", "reducescatter": "reduce_scatter", "allreduce": "all_reduce"}


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
    """What a trace says of a run: GPU, rank, kernels in the order of time, and what was left out."""

    gpu: str
    rank: int | None
    gemms: tuple[TracedGemm, ...]
    collectives: tuple[TracedCollective, ...]
    num_kernels: int
    notes: tuple[str, ...]


def read_run(trace: ChromeTrace) -> TracedRun:
    """Return the GEMMs and collectives of a trace.

    Raises
    ------
    TraceError
        If the text is no trace.
    """
    reader = _Reader()
    for event in trace.events():
        reader.take(event)
    notes = [trace.note] if trace.note else []
    if reader.full:
        notes.append(f"only the first {MAX_KEPT:,} kernels and operations were kept")
    gemms = sorted(reader.gemms(), key=lambda gemm: gemm.start_us)
    collectives = sorted(reader.collectives, key=lambda each: each.start_us)
    rank = _member(trace.members.get("distributedInfo"), "rank")
    return TracedRun(
        _gpu(trace.members.get("deviceProperties")),
        rank if isinstance(rank, int) else None,
        tuple(gemms),
        tuple(collectives),
        reader.num_kernels,
        tuple(notes),
    )


class _Reader:
    def __init__(self) -> None:
        self._shapes: dict[int, tuple[int, int, int, DType]] = {}
        self._spans: dict[int, tuple[float, float]] = {}
        self.collectives: list[TracedCollective] = []
        self.num_kernels = 0

    @property
    def full(self) -> bool:
        """Whether nothing more is kept."""
        return len(self._shapes) + len(self._spans) + len(self.collectives) >= MAX_KEPT

    def take(self, event: dict[str, object]) -> None:
        """Take up one event."""
        category, args = event.get("cat"), event.get("args")
        if category not in ("kernel", "cpu_op") or not isinstance(args, dict):
            return
        self.num_kernels += category == "kernel"
        number = args.get("External id")
        if self.full:
            return
        if category == "cpu_op":
            shape = _shape(event.get("name"), args)
            if shape is not None and isinstance(number, int):
                self._shapes[number] = shape
            return
        span = _span(event)
        if span is None:
            return
        name = str(args.get("Collective name") or event.get("name"))[:256].lower().replace("_", "")
        operation = next((value for key, value in _COLLECTIVES.items() if key in name), None)
        if operation is not None and ("Collective name" in args or "nccl" in name):
            self._collective(operation, args, span)
        elif isinstance(number, int) and "nccl" not in name:
            start, end = self._spans.get(number, span)
            self._spans[number] = min(start, span[0]), max(end, span[1])

    def gemms(self) -> list[TracedGemm]:
        """Return the operations with kernels; those of one operation count as one."""
        return [TracedGemm(*shape, *self._spans[key]) for key, shape in self._shapes.items() if key in self._spans]

    def _collective(self, operation: str, args: dict[str, object], span: tuple[float, float]) -> None:
        sizes = [args.get(key) for key in ("In msg nelems", "Out msg nelems", "Group size")]
        if all(isinstance(size, int) and 0 < size < 1 << 50 for size in sizes):
            num_in, num_out, num_ranks = (int(size) for size in sizes if isinstance(size, int))
            dtype = _DTYPES.get(str(args.get("dtype")))
            self.collectives.append(TracedCollective(operation, num_in, num_out, num_ranks, dtype, *span))


def _span(event: dict[str, object]) -> tuple[float, float] | None:
    start, duration = event.get("ts"), event.get("dur")
    if not isinstance(start, int | float) or not isinstance(duration, int | float):
        return None
    if not (math.isfinite(start) and math.isfinite(duration) and 0 < duration < 1e12 and abs(start) < 1e18):
        return None
    return float(start), float(start) + float(duration)


def _shape(name: object, args: dict[str, object]) -> tuple[int, int, int, DType] | None:
    """The shape of a GEMM: m, n, k and type; None for other operations, and for shapes that do not fit."""
    first = _GEMMS.get(str(name))
    dims, types = args.get("Input Dims"), args.get("Input type")
    if first is None or not isinstance(dims, list) or not isinstance(types, list):
        return None
    one, other = (_matrix(dims, first + number) for number in (0, 1))
    dtype = _DTYPES.get(str(types[first])) if len(types) > first else None
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


def _member(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _gpu(properties: object) -> str:
    first = properties[0] if isinstance(properties, list) and properties else None
    return str(_member(first, "name") or "")[:128]
