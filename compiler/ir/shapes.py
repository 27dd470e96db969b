"""Shapes of the kernels of one rank. Sizes are counts and positive, if not said otherwise; their maker checks them."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

_NUM_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}


class DType(Enum):
    """Element type; the value is its name in the language."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP32 = "fp32"

    @property
    def num_bytes(self) -> int:
        """Size of one element."""
        return _NUM_BYTES[self._value_]  # by the word, which hashes in no time: a search asks some million times


@dataclass(frozen=True, slots=True)
class GemmShape:
    """The GEMM of one rank: C[m, n] = A[m, k] B[k, n]."""

    m: int
    n: int
    k: int
    dtype: DType

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.m * self.n * self.k

    @property
    def accumulator_bytes(self) -> int:
        """The output while parts of it are being summed: in fp32."""
        return 4 * self.m * self.n


@dataclass(frozen=True, slots=True)
class GroupedGemmShape:
    """GEMMs of several experts in one launch: C_e[rows[e], n] = A_e[rows[e], k] B_e[k, n]; rows may be uneven or 0."""

    operation: ClassVar[str] = "grouped_gemm"

    rows: tuple[int, ...]
    n: int
    k: int
    dtype: DType

    @property
    def flops(self) -> int:
        """Operations of all experts, multiply and add counted as two."""
        return 2 * sum(self.rows) * self.n * self.k

    @property
    def accumulator_bytes(self) -> int:
        """The output while parts of it are being summed: in fp32."""
        return 4 * sum(self.rows) * self.n


@dataclass(frozen=True, slots=True)
class GemvShape:
    """Matrix times vector, y[n] = W[n, k] x[k], for each of a few vectors (``batch``) at once."""

    operation: ClassVar[str] = "gemv"

    n: int
    k: int
    dtype: DType
    batch: int = 1

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.batch * self.n * self.k


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention, forward: softmax(Q K^T) V for each of ``batch * heads``, where Q is [q_len, head_dim].

    ``kv_heads`` divides ``heads``; each of them serves as many query heads. ``causal`` aligns the last query with the
    last key: query i sees keys up to i + kv_len - q_len. ``partial`` is over some of the keys only, and leaves what
    the others are to be added to (``accumulator_bytes``).
    """

    operation: ClassVar[str] = "attention"

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    dtype: DType
    causal: bool
    partial: bool = False

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head."""
        if not self.causal:
            return self.q_len * self.kv_len
        seeing = min(self.q_len, self.kv_len)  # queries that see a key: the last sees all, each before it one less
        return seeing * self.kv_len - seeing * (seeing - 1) // 2

    @property
    def flops(self) -> int:
        """Operations of both products without what the mask hides, multiply and add counted as two; no softmax."""
        return 4 * self.batch * self.heads * self.pairs * self.head_dim

    @property
    def accumulator_bytes(self) -> int:
        """The output over some of the keys: in fp32, with the maximum and the sum of each row of the softmax.

        Online softmax rescales them when more keys come (Dao et al., FlashAttention, arXiv 2205.14135, algorithm 1;
        Liu et al., Ring Attention, arXiv 2310.01889).
        """
        return 4 * self.batch * self.heads * self.q_len * (self.head_dim + 2)


@dataclass(frozen=True, slots=True)
class ElementwiseShape:
    """One output of ``num_elements`` from ``num_inputs`` inputs of that size, element by element."""

    operation: ClassVar[str] = "add"

    num_elements: int
    num_inputs: int
    dtype: DType

    @property
    def flops(self) -> int:
        """Operations: one for each input after the first, at least one for each element."""
        return self.num_elements * max(1, self.num_inputs - 1)


KernelShape = GroupedGemmShape | GemvShape | AttentionShape | ElementwiseShape
