"""GEMMs and collectives of a trace that torch.profiler wrote on a GPU, and what else was seen.

A kernel of a GEMM and the operation that launched it share an "External id"; the operation has the shapes, so that the
trace needs ``record_shapes=True``. A kernel of NCCL or RCCL has the name, the size and the ranks of its collective; an
all_reduce of vLLM has its ranks, and the operation that launched it its size.
"""

import math
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace

from ....compiler.ir import DType
from ....compiler.text.diagnostics import printable
from ....simcore.kernels.nccl import NcclCollective
from .chrome import ChromeTrace, member
from .run import (
    DTYPES,
    ELEMENT_BYTES,
    MAX_KEPT,
    MAX_SIZE,
    Product,
    TracedCollective,
    TracedCopy,
    TracedGemm,
    TracedKernel,
    TracedRun,
    TracedStep,
    Unused,
    is_fp8_kernel,
    is_product_kernel,
    product_of,
    reported,
    traced,
)

MAX_STEPS = 10_000


_COLLECTIVES = {each.value.replace("_", ""): each.value for each in NcclCollective}
_OTHERS = ("broadcast", "sendrecv", "send", "recv", "gather", "scatter", "reduce", "barrier")
_TAKEN = ("kernel", "cpu_op", "gpu_memcpy", "gpu_memset")
_MARKS, _STEP = ("user_annotation", "gpu_user_annotation"), "ProfilerStep#"
_RANKS = re.compile(r"\[\d{1,6}(, ?\d{1,6}){0,1023}\]")
_OWN_REDUCE = re.compile(r"cross_device_reduce_\dstage<[^,<>]{1,64},\s*(\d{1,3})")
"""vLLM's and SGLang's all_reduce in one kernel, for so many ranks (``csrc/custom_all_reduce.cuh``)."""
_OTHER_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|userbuffers|deep_?ep|nvshmem|cross_device_reduce"
)
"""Collectives by kernels of symmetric memory, TransformerEngine's userbuffers, DeepEP and others."""


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
    reader.finish()
    rank = member(trace.members.get("distributedInfo"), "rank")
    return TracedRun(
        "torch.profiler",
        True,
        _gpu(trace.members.get("deviceProperties")),
        rank if isinstance(rank, int) else None,
        reader.kernels(),
        reader.num_kernels,
        tuple(notes),
        reported(reader.unused),
        reader.has_shapes,
        tuple(step for _, step in sorted(reader.steps.items())),
        tuple(reader.copies),
    )


@dataclass(slots=True)
class _Kernels:
    """The kernels of one operation: from the first begin to the last end, of its GEMMs alone if it has any."""

    is_product: bool
    is_fp8: bool
    start_us: float
    end_us: float

    def add(self, other: "_Kernels") -> None:
        if other.is_product and not self.is_product:
            self.is_product, self.is_fp8, self.start_us, self.end_us = True, other.is_fp8, other.start_us, other.end_us
        elif other.is_product or not self.is_product:
            self.start_us, self.end_us = min(self.start_us, other.start_us), max(self.end_us, other.end_us)


class _Reader:
    def __init__(self) -> None:
        self._products: dict[int, Product | str] = {}
        self._names: dict[int, str] = {}
        self._reduced: dict[int, tuple[int, DType | None]] = {}
        self._kernels: dict[int, _Kernels] = {}
        self._own_reduces: list[tuple[int, int, tuple[float, float], int]] = []
        self.steps: dict[int, TracedStep] = {}
        self.copies: list[TracedCopy] = []
        # (name, stream, begin, end, operation, blocks), and the collectives among them by their place
        self._ran: list[tuple[str, int, float, float, int, int]] = []
        self._moving: dict[int, TracedCollective] = {}
        self._gemms: dict[int, TracedGemm] = {}
        self.num_kernels, self.has_shapes = 0, False
        self.unused: Unused = Counter()

    @property
    def full(self) -> bool:
        """Whether nothing more is kept."""
        kept = len(self._products) + len(self._kernels) + len(self._moving) + len(self._own_reduces)
        return max(kept, len(self._ran)) >= MAX_KEPT

    def take(self, event: dict[str, object]) -> None:
        """Take up one event."""
        category, args = event.get("cat"), event.get("args")
        if category in _MARKS:
            self._mark(event)
        if category not in _TAKEN or not isinstance(args, dict):
            return
        self.num_kernels += category == "kernel"
        number = args.get("External id")
        number = number if isinstance(number, int) else -1
        if self.full:
            return
        if category == "cpu_op":
            if number >= 0:
                self._operation(number, str(event.get("name"))[:256], args)
            return
        span = _span(event)
        if span is None:
            return
        name, stream = sys.intern(str(event.get("name"))[:512]), args.get("stream", event.get("tid"))
        self._ran.append((name, stream if type(stream) is int else 0, *span, number, _blocks(args)))
        if category == "gpu_memcpy":
            self._copy(args, span)
        if category == "kernel":
            self._kernel(number, str(event.get("name"))[:512], args, span)

    def _copy(self, args: dict[str, object], span: tuple[float, float]) -> None:
        """Remember a copy between GPUs, of which alone the trace says both."""
        ends = [args.get(key) for key in ("fromDevice", "toDevice", "bytes")]
        source, target, size = (each if type(each) is int and each >= 0 else 0 for each in ends)
        if source != target and size:
            self.copies.append(TracedCopy(*span, source, target, size))

    def _mark(self, event: dict[str, object]) -> None:
        """Remember a step that the run marks: when the GPU began and ended it, else when the host did."""
        name, span = str(event.get("name"))[:64], _span(event)
        number = name.removeprefix(_STEP)
        if name == number or not number.isdecimal() or span is None or len(self.steps) >= MAX_STEPS:
            return
        if event.get("cat") == _MARKS[1] or int(number) not in self.steps:
            self.steps[int(number)] = TracedStep(int(number), *span)

    def _operation(self, number: int, name: str, args: dict[str, object]) -> None:
        dims, types = args.get("Input Dims"), args.get("Input type")
        self.has_shapes = self.has_shapes or (isinstance(dims, list) and any(dims))
        product = product_of(name, dims, types)
        if product is not None:
            self._products[number] = product
        elif "all_reduce" in name:
            self._reduced[number] = _largest(dims, types)
        elif len(self._names) < MAX_KEPT:
            self._names[number] = sys.intern(name)

    def _kernel(self, number: int, name: str, args: dict[str, object], span: tuple[float, float]) -> None:
        said = str(args.get("Collective name") or name)[:256].lower().replace("_", "")
        own = _OWN_REDUCE.search(name)
        if "Collective name" in args or "nccl" in said:
            self._collective(said, args, span)
        elif own is not None:
            self._own_reduces.append((number, int(own[1]), span, len(self._ran) - 1))
        elif _OTHER_COLLECTIVE.search(name.lower()) is not None and not is_product_kernel(name):
            self.unused[
                "collective", "by a kernel that is none of NCCL, whose size and ranks the trace does not say"
            ] += 1
        elif number >= 0:
            kernels = _Kernels(is_product_kernel(name), is_fp8_kernel(name), *span)
            if number in self._kernels:
                self._kernels[number].add(kernels)
            else:
                self._kernels[number] = kernels
        elif is_product_kernel(name):
            self._no_operation()

    def finish(self) -> None:
        """Join operations and their kernels, whichever came first."""
        for number, kernels in self._kernels.items():
            product = self._products.get(number)
            if isinstance(product, Product):
                is_fp8 = product.gathers and kernels.is_fp8  # TransformerEngine quantizes within the operation
                product = replace(product, dtype=DType.FP8) if is_fp8 else product
                self._gemms[number] = traced(product, kernels.start_us, kernels.end_us)
            elif product is not None:
                self.unused["GEMM", product] += 1
            elif kernels.is_product and number in self._names:
                self.unused["GEMM", f"of {printable(self._names[number])[:64]}, which is no known product"] += 1
            elif kernels.is_product:
                self._no_operation()
        for number, num_ranks, span, place in self._own_reduces:
            size, dtype = self._reduced.get(number, (0, None))
            if size:
                each = 0 if dtype is None else dtype.bytes_of(1)
                self._moving[place] = TracedCollective("all_reduce", size, size, num_ranks, dtype, *span, each)
            else:
                self.unused["all_reduce", "of vLLM's own kernel without its size"] += 1

    def kernels(self) -> tuple[TracedKernel, ...]:
        """All kernels and copies in the order of time; those of one GEMM are one."""
        found, seen = list[TracedKernel](), set[int]()
        for place, (name, stream, start, end, number, blocks) in enumerate(self._ran):
            gemm = self._gemms.get(number)
            if gemm is not None and self._kernels[number].is_product == is_product_kernel(name):
                if number not in seen:
                    found.append(TracedKernel(name, stream, gemm.start_us, gemm.end_us, gemm, blocks))
                seen.add(number)
            else:
                found.append(TracedKernel(name, stream, start, end, self._moving.get(place), blocks))
        return tuple(sorted(found, key=lambda each: (each.start_us, each.end_us)))

    def _no_operation(self) -> None:
        self.unused["GEMM", "whose operation the trace does not have, as in CUDA graphs"] += 1

    def _collective(self, name: str, args: dict[str, object], span: tuple[float, float]) -> None:
        operation = next((value for key, value in _COLLECTIVES.items() if key in name), None)
        sizes = [args.get(key) for key in ("In msg nelems", "Out msg nelems", "Group size")]
        if operation is None:
            other = next((each for each in _OTHERS if each in name), "of another kind")
            self.unused["collective", f"that no pair has ({other})"] += 1
        elif all(isinstance(size, int) and 0 < size < 1 << 50 for size in sizes):
            num_in, num_out, num_ranks = (int(size) for size in sizes if isinstance(size, int))
            said = str(args.get("dtype"))
            sizes_and_type, each = (num_in, num_out, num_ranks, DTYPES.get(said)), ELEMENT_BYTES.get(said, 0)
            group = _group(args.get("Process Group Ranks"), num_ranks)
            self._moving[len(self._ran) - 1] = TracedCollective(operation, *sizes_and_type, *span, each, group)
        else:
            self.unused[operation, "without its size and ranks"] += 1


def _group(text: object, num_ranks: int) -> tuple[int, ...]:
    """The ranks of a process group, as in ``[0, 1, 2, 3]``; none where they are cut off or not said."""
    if not isinstance(text, str) or not _RANKS.fullmatch(text):
        return ()
    ranks = tuple(int(each) for each in text.strip("[]").split(","))
    return ranks if len(set(ranks)) == num_ranks == len(ranks) else ()


def _largest(dims: object, types: object) -> tuple[int, DType | None]:
    """Elements of the largest tensor among the inputs, and its type; 0 without one."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0, None
    found = [
        (_elements(sizes), DTYPES.get(str(dtype).removeprefix("c10::")))
        for sizes, dtype in zip(dims, types, strict=False)
    ]
    return max(found, key=lambda one: one[0], default=(0, None))


def _elements(sizes: object) -> int:
    whole = isinstance(sizes, list) and sizes and all(type(size) is int and 0 < size <= MAX_SIZE for size in sizes)
    return math.prod(sizes) if whole and isinstance(sizes, list) else 0


def _span(event: dict[str, object]) -> tuple[float, float] | None:
    start, duration = event.get("ts"), event.get("dur")
    if not isinstance(start, int | float) or not isinstance(duration, int | float):
        return None
    if not (math.isfinite(start) and math.isfinite(duration) and 0 < duration < 1e12 and abs(start) < 1e18):
        return None
    return float(start), float(start) + float(duration)


def _blocks(args: dict[str, object]) -> int:
    """Thread blocks of a kernel; 0 where they are not said."""
    grid = args.get("grid")
    known = isinstance(grid, list) and len(grid) == 3 and all(type(size) is int and 0 < size < 1 << 31 for size in grid)
    return math.prod(grid) if known and isinstance(grid, list) else 0


def _gpu(properties: object) -> str:
    first = properties[0] if isinstance(properties, list) and properties else None
    return str(member(first, "name") or "")[:128]
