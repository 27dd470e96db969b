"""GEMMs and collectives of a trace that torch.profiler wrote on a GPU.

A kernel of a GEMM and the operation that launched it share an "External id"; the operation has the shapes, so that the
trace needs ``record_shapes=True``. A kernel of NCCL or RCCL has the name, the size and the ranks of its collective.
"""

import math

from ....compiler.ir import DType
from .chrome import ChromeTrace
from .run import DTYPES, MAX_KEPT, TracedCollective, TracedGemm, TracedRun, gemm_shape

_COLLECTIVES = {"allgather": "all_gather", "reducescatter": "reduce_scatter", "allreduce": "all_reduce"}


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
        "torch.profiler",
        True,
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
            shape = gemm_shape(str(event.get("name")), args.get("Input Dims"), args.get("Input type"))
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
            dtype = DTYPES.get(str(args.get("dtype")))
            self.collectives.append(TracedCollective(operation, num_in, num_out, num_ranks, dtype, *span))


def _span(event: dict[str, object]) -> tuple[float, float] | None:
    start, duration = event.get("ts"), event.get("dur")
    if not isinstance(start, int | float) or not isinstance(duration, int | float):
        return None
    if not (math.isfinite(start) and math.isfinite(duration) and 0 < duration < 1e12 and abs(start) < 1e18):
        return None
    return float(start), float(start) + float(duration)


def _member(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _gpu(properties: object) -> str:
    first = properties[0] if isinstance(properties, list) and properties else None
    return str(_member(first, "name") or "")[:128]
