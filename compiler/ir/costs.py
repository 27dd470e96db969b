"""Models of the times of kernels and of collective libraries, as a profile of a GPU has them.

Times are ticks of 10 fs, sizes are bytes, rates are bytes or operations per second. Fractions are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from math import log2
from typing import Self

from .tensors import DType

TYPES_WITH_CONSTANTS = ("fp8", "fp8_block", "mxfp8", "nvfp4", "mxfp4")
"""The types that may have constants of their own: fields of ``GemmModel`` and ``GroupedModel``, words of a file."""

Range = tuple[int, int]
"""A smallest and a largest value, both included."""


@dataclass(frozen=True, slots=True)
class ProtocolModel:
    """One protocol of a collective library: ``start`` beyond the common one, ``step`` for each of its steps.

    LL has only the common start, and LL128 of all_to_all has no steps.
    """

    start_ticks: int = 0
    step_ticks: int = 0
    bytes_per_s: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class NvlsModel:
    """all_reduce summed by the switch, from ``from_bytes`` and ``ranks`` GPUs on. The rate counts the buffer once."""

    start_ticks: int
    bytes_per_s: int
    from_bytes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class ExchangeModel:
    """all_to_all; from ``simple_from_bytes`` per rank on the library uses its SIMPLE protocol."""

    start_ticks: int
    ll: ProtocolModel
    ll128: ProtocolModel
    simple: ProtocolModel
    own_bytes_per_s: int
    simple_from_bytes: int


class SumForm(Enum):
    """How a framework's own kernel makes an all_reduce; the value begins the words of its numbers in the language.

    ONE_SHOT: each rank gets what all others have, and sums. TWO_SHOT: each sums its part, and all get that. IN_SWITCH:
    the switch sums and copies. Bytes that count for its rate, of a buffer b on n ranks: (n - 1) b, 2 (n - 1) b / n, b.
    """

    ONE_SHOT = "one_shot"
    TWO_SHOT = "two_shot"
    IN_SWITCH = "in_switch"


@dataclass(frozen=True, slots=True)
class SumKernel:
    """A framework's own all_reduce, taken for buffers below a size for each number of ranks; others have none."""

    form: SumForm
    start_ticks: int
    step_ticks: int
    bytes_per_s: int
    below: tuple[tuple[int, int], ...]

    def below_bytes(self, ranks: int) -> int:
        """The size from which on it is not taken, 0 if it never is."""
        return dict(self.below).get(ranks, 0)


@dataclass(frozen=True, slots=True)
class ExchangeKernel:
    """A framework's own dispatch or combine, for ``least_ranks`` to ``most_ranks``, see ``kernels/nccl.py``.

    Added to ``start_ticks`` are ``step_ticks`` for each doubling of ranks, ``expert_ticks`` for each expert of a rank,
    and ``row_ticks`` for each row of a rank. What leaves a rank goes at ``bytes_per_s``: a row once for each of its
    experts if ``copies``, else once for each rank that has one. Of fewer than ``least_top`` experts nothing is known.
    ``back``: it is a combine. ``name`` is that of the implementation.
    """

    start_ticks: int
    bytes_per_s: int
    least_ranks: int
    most_ranks: int
    step_ticks: int = 0
    expert_ticks: int = 0
    row_ticks: int = 0
    copies: bool = False
    least_top: int = 1
    name: str = ""
    back: bool = False

    def split(
        self, ranks: int, num_bytes: int, sent_rows: int, rows: int, copies: int, experts: int
    ) -> tuple[int, Fraction]:
        """The ticks beside ``start_ticks`` in which nothing is sent, and the bytes that leave a rank.

        ``num_bytes`` are those of ``sent_rows`` rows, a row once for each rank that has one of its experts; each
        rank has ``rows`` rows of its own, ``copies`` for its experts, and shares ``experts`` with the others. Of
        experts in groups these are those of one.
        """
        of_experts = (2 * experts * self.expert_ticks + ranks) // (2 * ranks)
        counted = Fraction(num_bytes * (copies if self.copies else sent_rows), sent_rows)
        fixed = round(log2(ranks) * self.step_ticks) + of_experts + rows * self.row_ticks
        return fixed, counted * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class FusedExperts:
    """One kernel in place of a dispatch, the two products of gated experts and their combine.

    It has all SMs, and does row-wise work in passing. It starts in ``start_ticks``, and ``rank_ticks`` more for each
    rank; then it multiplies at ``flops_per_s`` rows that are padded for each expert to ``block_rows``, reads weights
    of ``weight_bytes`` each at ``hbm_bytes_per_s``, and moves a row once for each expert at the rate of the links. The
    three hide each other but for ``exponent``: their times are summed to this power. It was measured on
    ``least_ranks`` to ``most_ranks`` with up to ``most_rows`` rows of a rank; ``error`` and ``shortest_ticks`` are as
    those of a method.
    """

    start_ticks: int
    flops_per_s: int
    hbm_bytes_per_s: int
    exponent: Fraction
    block_rows: int
    weight_bytes: Fraction
    least_ranks: int
    most_ranks: int
    rank_ticks: int = 0
    most_rows: int | None = None
    error: Fraction | None = None
    shortest_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Collectives:
    """A collective library on one node: rings, and NVLS and all_to_all if the profile has them.

    ``simple_from_bytes`` (per rank) and ``NvlsModel.from_bytes`` are choices of one build of the library, not
    properties of the hardware. ``reduce_factor`` multiplies the bytes where they are summed. ``error`` is the relative
    error of a predicted time. ``link_bytes_per_s`` is what a GPU sends over the links that the constants were fitted
    on, ``link_latency_ticks`` their latency from GPU to GPU; None if not said. ``links`` are those of a GPU to all
    others, if each pair had one of its own; None if they were fitted behind a switch. ``kernels`` are those of a
    framework that calls the library for what they do not do: the first that takes a size makes the all_reduce.
    ``routed`` are those for a dispatch and a combine, of one framework.
    """

    start_ticks: int
    ll: ProtocolModel
    ll128: ProtocolModel
    simple: ProtocolModel
    own_bytes_per_s: int
    reduce_factor: Fraction
    simple_from_bytes: int
    error: Fraction
    validated: bool
    nvls: NvlsModel | None = None
    all_to_all: ExchangeModel | None = None
    link_bytes_per_s: int | None = None
    link_latency_ticks: int | None = None
    links: int | None = None
    kernels: tuple[SumKernel, ...] = ()
    routed: tuple[ExchangeKernel, ...] = ()

    def exchange(self, *, back: bool) -> ExchangeKernel | None:
        """The framework's kernel of a dispatch, or of a combine if ``back``; None if it has none."""
        return next((each for each in self.routed if each.back is back), None)


@dataclass(frozen=True, slots=True)
class TypedModel:
    """Constants of kernels by type, in fields named after it; None where they were not fitted."""

    def own_type(self, dtype: DType) -> DType | None:
        """The type with constants of its own that serve for ``dtype``; None if those of all types do."""
        return next((each for each in (dtype, dtype.alike) if getattr(self, each.value, None) is not None), None)

    def of(self, dtype: DType) -> Self:
        """The constants of kernels of ``dtype``."""
        own = self.own_type(dtype)
        return self if own is None else getattr(self, own.value)

    def with_types(self, models: Mapping[str, Self | None]) -> Self:
        """The same with constants of the types that ``models`` names."""
        return replace(self, **models)


@dataclass(frozen=True, slots=True)
class Sustained:
    """The clock under load: work of a GEMM beyond what takes ``after_ticks`` at the peak is done at ``clock`` of it.

    It counts for the whole GEMM of an op, so that how a schedule cuts it changes nothing.
    """

    after_ticks: int
    clock: Fraction


@dataclass(frozen=True, slots=True)
class GemmModel(TypedModel):
    """Constants of the fitted GEMM form, see ``simcore/kernels/gemm_form.py`` for the formula.

    ``error`` is the relative error of a predicted time, ``resolution`` the relative difference between two
    schedules below which the profile cannot tell them apart. Two SMs together compute one of ``pair_tiles``.
    ``cluster`` is the number of neighbouring SMs that read a shared operand from L2 once. ``fitted_l2`` is (bytes per
    instance, number of instances) of the L2 that the constants were fitted with, None where it is that of the GPU.
    Without ``splits_k`` the inner dimension of a tile stays whole. What has no constants of its type has these.
    With ``ragged_ticks``, by which each row beyond M lengthens 64 elements of the inner dimension of a block, kernels
    have the block of fewest waves, not the fastest tile; ``uneven`` is how much longer the math of blocks takes whose
    columns do not divide a block of scales. A kernel can be had with the tile for ``fewest_sms`` or more of the SMs;
    with 0 always for all that are left to kernels. ``sustained`` is the clock under load of kernels of one type that
    take more power than others.
    """

    # Kernel times are cached by GPU, and fractions and tiles take long to hash.
    start_ticks: int
    mma_fraction: Fraction = field(hash=False)
    hbm_fraction: Fraction = field(hash=False)
    tile_ticks: int
    k_step_ticks: int
    split_ticks: int
    split_bytes_per_s: int
    exponent: Fraction = field(hash=False)
    quantisation: Fraction = field(hash=False)
    tiles: tuple[tuple[int, int], ...] = field(hash=False)
    error: Fraction = field(hash=False)
    resolution: Fraction = field(hash=False)
    validated: bool
    pair_tiles: tuple[tuple[int, int], ...] = ()
    cluster: int = 1
    fitted_l2: tuple[int, int] | None = None
    splits_k: bool = True
    ragged_ticks: int | None = None
    uneven: Fraction = field(default=Fraction(0), hash=False)
    fewest_sms: int = 0
    sustained: Sustained | None = field(default=None, hash=False)
    fp8: "GemmModel | None" = field(default=None, hash=False)
    fp8_block: "GemmModel | None" = field(default=None, hash=False)
    mxfp8: "GemmModel | None" = field(default=None, hash=False)
    nvfp4: "GemmModel | None" = field(default=None, hash=False)
    mxfp4: "GemmModel | None" = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class AttentionModel:
    """Constants of the fitted form of forward attention, see ``simcore/kernels/attention.py`` for the formula.

    Those of ``decode`` are of the kernel for few queries of each sequence. ``queries`` is the most rows of a block.
    Without ``decode_hbm_fraction`` decode reads at the achieved rate of the profile. Up to ``packed`` heads that share
    keys have their queries in one block. ``token_ticks`` is what a framework takes for each new position beside the
    kernel, ready for its cache. Decode packs up to ``decode_packed`` of them, None for all, and a head that shares no
    keys has ``decode_head_ticks``. More take a kernel with ``decode_alone_ticks`` for each head, which reads all its
    keys: the first in up to ``decode_first_ticks``, all at ``decode_again_fraction`` of memory's peak on all SMs, and
    those of few heads split, for ``decode_split_ticks``. With a ``decode_least_fraction`` heads that share no keys take
    it too, and fewer where the keys of packed heads have whole blocks for less than that share of the SMs.
    """

    start_ticks: int
    mma_fraction: Fraction = field(hash=False)
    softmax_fraction: Fraction = field(hash=False)
    hbm_fraction: Fraction = field(hash=False)
    unit_ticks: int
    queries: int
    decode_start_ticks: int
    decode_unit_ticks: int
    decode_block_ticks: int
    decode_hbm_fraction: Fraction | None = field(default=None, hash=False)
    packed: int = 1
    token_ticks: int = 0
    decode_packed: int | None = None
    decode_head_ticks: int | None = None
    decode_alone_ticks: int = 0
    decode_first_ticks: int = 0
    decode_split_ticks: int = 0
    decode_again_fraction: Fraction = field(default=Fraction(1), hash=False)
    decode_least_fraction: Fraction = field(default=Fraction(0), hash=False)


@dataclass(frozen=True, slots=True)
class GroupedModel(TypedModel):
    """Constants of the fitted form of grouped GEMMs, see ``simcore/kernels/grouped_gemm.py`` for the formula.

    Types that have none, but for the two of 16 bits, have those of plain GEMMs. ``choice_ticks`` is what it takes to
    look at one choice of a token, where each rank looks at those of all, ``sort_ticks`` what it takes longer to sort
    many tokens than few, ``epilogue_ticks`` to write a tile of 32,768 elements from one SM, beside the steps of its
    next tile, ``row_ticks`` what each row takes beside a product, however wide it is.
    """

    start_ticks: int
    mma_fraction: Fraction = field(hash=False)
    hbm_fraction: Fraction = field(hash=False)
    tile_ticks: int
    exponent: Fraction = field(hash=False)
    rows_fraction: Fraction = field(hash=False)
    choice_ticks: int = 0
    sort_ticks: int = 0
    epilogue_ticks: int = 0
    row_ticks: int = 0
    fp8: "GroupedModel | None" = field(default=None, hash=False)
    fp8_block: "GroupedModel | None" = field(default=None, hash=False)
    mxfp8: "GroupedModel | None" = field(default=None, hash=False)
    nvfp4: "GroupedModel | None" = field(default=None, hash=False)
    mxfp4: "GroupedModel | None" = field(default=None, hash=False)
