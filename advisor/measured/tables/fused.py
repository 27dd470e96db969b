"""Tables of fused kernels and their serial partners: what rows say of a shape, and the scenario of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ....compiler import compile_text
from ....compiler.ir import DType, OpCase, Pattern
from ....compiler.request.request import Request
from ....compiler.request.scenario import request_text, system_text

PATTERNS = ("overlap_*.csv", "overlap_*.csv.gz")
COLUMNS = ("gpu", "op", "impl")
NUMBERS = ("n_gpus", "time_us")
SERIAL = ("torch+nccl", "nccl+cublas", "torch AR/nccl baseline")
OPERATIONS: Mapping[str, Pattern] = {
    "AG+GEMM": Pattern.AG_GEMM,
    "GEMM+RS": Pattern.GEMM_RS,
    "GEMM+AR": Pattern.GEMM_AR,
}
MAX_RANKS, MAX_SIZE = 64, 1 << 20


@dataclass(frozen=True, slots=True)
class FusedPart:
    """A GEMM of one GPU, m x n x k, with the collective of ``pattern``, or without one (GEMM)."""

    pattern: Pattern
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.pattern.value} {self.m} x {self.n} x {self.k}"


def partner_key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a fused kernel and its serial partner have in common."""
    columns = ("gpu", "n_gpus", "op", "m", "n", "k", "shape_semantics", "dtype", "source")
    return tuple(row.get(column, "") for column in columns)


def parts_of(row: Mapping[str, str], ranks: int) -> tuple[FusedPart, ...]:
    """Return the GEMMs of one GPU and their collectives; none if the row does not state them."""
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


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_SIZE else None


def scenario_on(gpu: str, ranks: int, dtype: DType, part: FusedPart) -> OpCase:
    """Return the scenario of ``part`` on the GPUs of the shipped library, behind its switch or in a full mesh.

    Raises
    ------
    CompileError
        If the shape does not divide among the ranks, or the switch has fewer ports.
    """
    request = Request(part.pattern.value, part.m, part.n, part.k, dtype=dtype.value, gpu=gpu, ranks=ranks)
    return compile_text(request_text(request, ranks, head=system_text(request))).scenario().case
