"""What a trace says of a run: its GEMMs, its collectives, and the pairs that they form."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median

from ....compiler.ir import DType

MAX_SIZE = 1 << 24
DTYPES = {
    "BFloat16": DType.BF16,
    "Half": DType.FP16,
    "Float8_e4m3fn": DType.FP8,
    "Float8_e4m3fnuz": DType.FP8,
    "Float8_e5m2": DType.FP8,
    "Float8_e5m2fnuz": DType.FP8,
}
"""Element types by their name in PyTorch; operands have ``c10::`` before it."""
ELEMENT_BYTES = {
    **{name: dtype.bytes_of(1) for name, dtype in DTYPES.items()},
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}
"""Bytes of an element of a collective, by its type's name in PyTorch."""
_OTHER_TYPES = {"float": "float32", "double": "float64", "signed char": "int8", "unsigned char": "uint8"}
WITHOUT_SHAPES = "without shapes"
_FOUR_BITS = "with weights of 4 bits, a type that is not simulated"
_MOE = "of a fused mixture of experts, two products in one operation"


@dataclass(frozen=True, slots=True)
class Product:
    """[m, k] by [k, n] of ``dtype``; with ``groups`` each of them has a part of the m rows and a matrix of its own.

    The first operand of one that ``gathers`` may be the rows of this rank, which the operation gathers itself.
    """

    m: int
    n: int
    k: int
    dtype: DType
    groups: int = 1
    gathers: bool = False


_LAYER_NORM_LINEAR, _LINEAR = "_LayerNormLinear", "_Linear"
# The inputs that the first matrix may be, and the second one; the first that is a matrix counts.
_OPERANDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(("mm", "_scaled_mm", "linear", "bmm", "_int_mm"), ((0,), (1,))),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), ((0,), (1,))),
    **dict.fromkeys(("addmm", "_addmm_activation", "baddbmm"), ((1,), (2,))),
    # vLLM, SGLang, AITER
    **dict.fromkeys(("cutlass_scaled_mm", "cutlass_scaled_mm_azp", "cutlass_moe_mm"), ((1,), (2,))),
    **dict.fromkeys(("rocm_unquantized_gemm", "rocm_unquantized_gemm_impl", "wvSplitK", "LLMM1"), ((0,), (1,))),
    **dict.fromkeys(("apply_w8a8_block_fp8_linear", "w8a8_block_fp8_matmul_deepgemm"), ((0,), (1,))),
    **dict.fromkeys(("w8a8_triton_block_scaled_mm_func", "w8a8_block_fp8_matmul_func"), ((0,), (1,))),
    **dict.fromkeys(("fp8_scaled_mm", "fp8_blockwise_scaled_mm", "rocm_aiter_tuned_gemm"), ((0,), (1,))),
    "fp8_gemm_nt_op": ((0,), (2,)),
    # TransformerEngine; older versions have copies of the weight in fp8 behind it.
    _LAYER_NORM_LINEAR: ((0,), (3, 2)),
    _LINEAR: ((3, 1), (0,)),
}
_NOT_READ = {
    **dict.fromkeys(("_LayerNormMLP", "_GroupedLinear"), "of TransformerEngine, several products in one operation"),
    **dict.fromkeys(
        ("_LinearBackward", "_LayerNormLinearBackward", "_LayerNormMLPBackward", "_GroupedLinearBackward"),
        "of TransformerEngine's backward pass, several products in one operation",
    ),
    **dict.fromkeys(("inplace_fused_experts", "outplace_fused_experts", "fused_experts", "fused_moe"), _MOE),
    **dict.fromkeys(("moe_forward", "moe_forward_shared", "rocm_aiter_fused_moe", "trtllm_fp8_block_scale_moe"), _MOE),
    **dict.fromkeys(("awq_gemm", "gptq_gemm", "gptq_marlin_gemm", "marlin_gemm", "machete_mm"), _FOUR_BITS),
    **dict.fromkeys(("moe_wna16_gemm", "moe_wna16_marlin_gemm", "cutlass_scaled_fp4_mm", "nvfp4_gemm"), _FOUR_BITS),
}
"""Products that no pair is made of, and why: phrases behind their number."""
_KERNEL = re.compile(
    r"gemm|nvjet|cijk|xmma|splitk|cutlass|matmul|wgmma|\bmm_|triton_mm|triton_tem_\w*mm", re.IGNORECASE
)
_NO_PRODUCT = re.compile(r"flash|fmha|attention|attn|nccl|gemv", re.IGNORECASE)


def is_product_kernel(kernel: str) -> bool:
    """Whether a kernel is a GEMM, by its name: of cuBLAS, CUTLASS, Tensile (``Cijk_...``), CK or Triton."""
    return _KERNEL.search(kernel) is not None and _NO_PRODUCT.search(kernel) is None


def is_fp8_kernel(kernel: str) -> bool:
    """Whether the name of a kernel says that its operands are fp8, as TransformerEngine's operations do not."""
    return re.search("e4m3|nvjet_qq|float8", kernel, re.IGNORECASE) is not None


def product_of(operation: str, dims: object, types: object) -> Product | str | None:
    """The product that an operation is, or why it is none that is read; None for operations that are no products."""
    name = operation.rpartition("::")[2]
    if name in _NOT_READ:
        return _NOT_READ[name]
    if name not in _OPERANDS:
        return None
    if not isinstance(dims, list) or not isinstance(types, list) or not any(dims):
        return WITHOUT_SHAPES
    first, second = (_operand(dims, choice) for choice in _OPERANDS[name])
    if first is None or second is None:
        return "whose operands are no matrices"
    dtype = _dtype(types, first, second)
    if isinstance(dtype, str):
        return dtype
    return _product(_sizes(dims[first]), _sizes(dims[second]), dtype, gathers=name in (_LAYER_NORM_LINEAR, _LINEAR))


def _product(one: list[int], other: list[int], dtype: DType, *, gathers: bool) -> Product | str:
    """Rows of the first matrix, of all groups, by the second; its inner dimension is the one that is as long."""
    k = one[-1]
    if not all(0 < size <= MAX_SIZE for size in (*one, *other)) or prod(one[:-1]) > MAX_SIZE:
        return "with a size of 0, or above 16,777,216"
    groups = other[0] if len(other) == 3 else 1
    if (len(other) == 3 and len(one) == 3 and one[0] != groups) or len(other) > 3 or k not in other[-2:]:
        return "whose sizes do not meet"
    n = other[-1] if other[-2] == k else other[-2]
    return Product(prod(one[:-1]), n, k, dtype, groups, gathers)


def _operand(dims: Sequence[object], choice: tuple[int, ...]) -> int | None:
    """The first of ``choice`` that has rows and columns."""
    return next((at for at in choice if at < len(dims) and len(_sizes(dims[at])) > 1), None)


def _sizes(found: object) -> list[int]:
    """The sizes of a tensor; none of anything else."""
    sizes = found if isinstance(found, list) else []
    return sizes if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes) else []


def _dtype(types: Sequence[object], first: int, second: int) -> DType | str:
    """The type of both operands, fp8 where either is; else why it is none that is simulated."""
    names = [str(types[at]).removeprefix("c10::") if at < len(types) else "" for at in (first, second)]
    found = [DTYPES.get(name) for name in names]
    if DType.FP8 in found:
        return DType.FP8
    other = next((name for name, dtype in zip(names, found, strict=True) if dtype is None), "")
    if found[0] is not None and not other:
        return found[0]
    said = _OTHER_TYPES.get(other, other[:32])
    return f"in {said}, for which no GPU of the library has a rate" if said else "whose type the trace does not say"


MAX_KEPT = 2_000_000
"""Kernels and operations that are kept; a trace of one step has some ten thousand."""

MAX_REASONS = 12
"""Reasons that are told."""
Unused = Counter[tuple[str, str]]
"""How often something was seen and not used: a noun, and why."""


@dataclass(frozen=True, slots=True)
class TracedGemm:
    """A GEMM of [m, k] by [k, n], and when its kernels ran, in us; more of it is said at ``Product``."""

    m: int
    n: int
    k: int
    dtype: DType
    start_us: float
    end_us: float
    groups: int = 1
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """A collective of ``num_ranks``, elements that go in and come out at this rank, and when its kernel ran.

    ``element_bytes`` is 0 where they are not known, and ``group`` empty where its ranks are not.
    """

    operation: str
    num_in: int
    num_out: int
    num_ranks: int
    dtype: DType | None
    start_us: float
    end_us: float
    element_bytes: int = 0
    group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TracedCopy:
    """A copy from GPU ``source`` to GPU ``target``, when it ran, in us, and its bytes, 0 where they are not known."""

    start_us: float
    end_us: float
    source: int
    target: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel or a copy on ``stream``, when it ran, in us, and what it does where that is known.

    ``blocks`` are its thread blocks, 0 where they are not known. ``waited_us`` of its time it waited for other ranks,
    where their traces say so.
    """

    name: str
    stream: int
    start_us: float
    end_us: float
    does: TracedGemm | TracedCollective | None = None
    blocks: int = 0
    waited_us: float = 0.0

    @property
    def took_us(self) -> float:
        """How long it worked."""
        return self.end_us - self.start_us - self.waited_us


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step that the run marks by its number, and when it ran, in us."""

    number: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TracedRun:
    """What a trace of ``kind`` says of a run: GPU, rank, kernels in the order of time, and what was left out.

    ``unused`` is what was seen and not used, counted by the reason; ``has_shapes`` whether operations have those of
    their inputs. ``num_kernels`` counts what ran, ``kernels`` are those that were kept, a GEMM one of them. ``steps``
    are those that the run marks. Without ``has_times`` kernels have durations and an order alone: they begin when the
    one before them ends. ``copies`` are those between GPUs.
    """

    kind: str
    has_times: bool
    gpu: str
    rank: int | None
    kernels: tuple[TracedKernel, ...]
    num_kernels: int
    notes: tuple[str, ...]
    unused: tuple[str, ...] = ()
    has_shapes: bool = True
    steps: tuple[TracedStep, ...] = ()
    copies: tuple[TracedCopy, ...] = ()

    @property
    def gemms(self) -> tuple[TracedGemm, ...]:
        """The GEMMs in the order of time."""
        return tuple(each.does for each in self.kernels if isinstance(each.does, TracedGemm))

    @property
    def collectives(self) -> tuple[TracedCollective, ...]:
        """The collectives in the order of time."""
        return tuple(each.does for each in self.kernels if isinstance(each.does, TracedCollective))


def traced(product: Product, start_us: float, end_us: float) -> TracedGemm:
    """A product whose kernels ran so."""
    at = product.m, product.n, product.k, product.dtype, start_us, end_us
    return TracedGemm(*at, product.groups, product.gathers)


def reported(unused: Unused) -> tuple[str, ...]:
    """What was not used, the most frequent first: ``1,092 GEMMs in float32``."""
    order = sorted(unused.items(), key=lambda one: (-one[1], one[0]))
    return tuple(f"{count:,} {noun}{'s' if count > 1 else ''} {why}" for (noun, why), count in order[:MAX_REASONS])


MAX_GAP_US = 1000.0
"""A GEMM and a collective with more time than this between them are no pair."""


@dataclass(frozen=True, slots=True)
class PairShape:
    """What pairs of one kind have in common: the collective, the GEMM of one GPU, the ranks and the experts.

    An all_to_all is ``dispatched`` where it comes first.
    """

    operation: str
    m: int
    n: int
    k: int
    dtype: DType
    num_ranks: int
    groups: int = 1
    dispatched: bool = False

    @property
    def is_gathered(self) -> bool:
        """Whether the collective comes first."""
        return self.operation == "all_gather" or self.dispatched


@dataclass(frozen=True, slots=True)
class TracedPair:
    """A pair that a run has ``count`` times: medians of the times of both, and from the first begin to the last end.

    ``together_us`` is None where the trace does not say when kernels began.
    """

    shape: PairShape
    count: int
    collective_us: float
    gemm_us: float
    together_us: float | None

    @property
    def hidden(self) -> float | None:
        """The share of the collective that passes beside the GEMM; None where it is not known."""
        if self.together_us is None:
            return None
        return max(0.0, min(1.0, (self.collective_us + self.gemm_us - self.together_us) / self.collective_us))


def find_pairs(run: TracedRun, unused: Unused | None = None) -> tuple[TracedPair, ...]:
    """Return the kinds of pairs of a run, those that take the most time first.

    Collectives whose size fits a GEMM that they make no pair with are counted in ``unused`` by the reason.
    """
    times: dict[PairShape, list[tuple[float, float, float]]] = defaultdict(list)
    for shape, collective, gemm in pairs_of(run, Unused() if unused is None else unused):
        end, start = max(collective.end_us, gemm.end_us), min(collective.start_us, gemm.start_us)
        times[shape].append((collective.end_us - collective.start_us, gemm.end_us - gemm.start_us, end - start))
    found = []
    for shape, each in times.items():
        collective_us, gemm_us, together_us = (median(column) for column in zip(*each, strict=True))
        pair = TracedPair(shape, len(each), collective_us, gemm_us, together_us if run.has_times else None)
        found.append((len(each) * together_us, pair))
    return tuple(pair for _, pair in sorted(found, key=lambda one: -one[0]))


def pairs_of(run: TracedRun, unused: Unused) -> Iterator[tuple[PairShape, TracedCollective, TracedGemm]]:
    """Yield each collective with its GEMM; no GEMM is in two pairs of one kind."""
    by_operand, by_shard, by_result = (defaultdict[int, list[TracedGemm]](list) for _ in range(3))
    for gemm in run.gemms:
        by_operand[gemm.m * gemm.k].append(gemm)
        by_result[gemm.m * gemm.n].append(gemm)
        if gemm.gathers:
            by_shard[gemm.m * gemm.k].append(gemm)
    taken: set[tuple[bool, TracedGemm]] = set()
    for collective in run.collectives:
        operation, ranks = collective.operation, collective.num_ranks
        if ranks < 2:
            continue
        near: list[tuple[bool, TracedGemm | None, int]] = []  # (it comes first, the GEMM, its rows by those it has)
        if operation in ("all_gather", "all_to_all"):
            near.append((True, _next(by_operand[collective.num_out], collective), 1))
        if operation == "all_gather":
            near.append((True, _next(by_shard[collective.num_in], collective), ranks))
        else:
            near.append((False, _last(by_result[collective.num_in], collective), 1))
        why = ""
        for first, found, times in near:
            if found is None or (first, found) in taken:
                continue
            reason = _why_not(collective, found, found.m * times)
            if not reason:
                taken.add((first, found))
                shape = PairShape(operation, found.m * times, found.n, found.k, found.dtype, ranks, found.groups)
                yield replace(shape, dispatched=first and operation == "all_to_all"), collective, found
                break
            why = why or reason
        else:
            if why:
                unused[operation, why] += 1


def _why_not(collective: TracedCollective, gemm: TracedGemm, rows: int) -> str:
    """Why both are no pair though their sizes fit; empty where they are one."""
    if max(collective.start_us, gemm.start_us) - min(collective.end_us, gemm.end_us) > MAX_GAP_US:
        return "more than 1 ms from the GEMM that its size fits"
    if collective.dtype is not None and collective.dtype is not gemm.dtype:
        return f"in {collective.dtype.value} beside a GEMM in {gemm.dtype.value}: a pair has one type"
    if gemm.groups > 1 and collective.operation != "all_to_all":
        return "beside the products of several experts: their collective is an all_to_all"
    if collective.operation != "all_reduce" and rows % collective.num_ranks:  # that takes any number of rows
        return f"beside a GEMM of {rows} rows, which do not divide among {collective.num_ranks} ranks"
    return ""


def _next(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The first GEMM that begins after the collective does."""
    at = bisect_left(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at] if at < len(gemms) else None


def _last(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The last GEMM that begins before the collective does."""
    at = bisect_right(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at - 1] if at else None
