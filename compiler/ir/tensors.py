"""Tensors of a workload, their element types, how they lie on the ranks, and patterns of data flow."""

from dataclasses import dataclass, replace
from enum import Enum


class Word(Enum):
    """An enumeration whose members are hashed by identity, of which ``Enum`` hashes the names, in Python."""

    __hash__ = object.__hash__


# Elements that share a scale, 1 where they have none, and the bytes of them all with it.
_BLOCKS = {
    "bf16": (1, 2),
    "fp16": (1, 2),
    "fp8": (1, 1),
    "fp32": (1, 4),
    "fp8_block": (128, 132),
    "mxfp8": (32, 33),
    "nvfp4": (16, 9),
    "mxfp4": (32, 17),
}
_ALIKE = {"fp8_block": "fp8", "mxfp8": "fp8", "mxfp4": "nvfp4"}


class DType(Word):
    """Element type; the value is its name in the language.

    Types with scales have one for each block of elements along the inner dimension of a product: of FP8_BLOCK 4 bytes
    for 128 elements, of weights too, where kernels share it among 128 rows (DeepGEMM); of MXFP8 and MXFP4 1 byte for
    32 (OCP Microscaling Formats 1.0); of NVFP4 1 byte for 16 (NVIDIA cuBLAS, block scaling).
    """

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP32 = "fp32"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"

    @property
    def alike(self) -> "DType":
        """The type whose fitted constants, and for FP8_BLOCK whose peak, serve where it has none of its own."""
        return DType(_ALIKE.get(self._value_, self._value_))

    @property
    def of_product(self) -> "DType":
        """The type that a product of this type has unless its call says another: bf16 of types with scales."""
        return DType.BF16 if self.block > 1 else self

    @property
    def block(self) -> int:
        """How many elements share a scale; 1 if the type has none."""
        return _BLOCKS[self._value_][0]

    def bytes_of(self, elements: int) -> int:
        """Size of so many elements with their part of the scales, in whole bytes."""
        block, size = _BLOCKS[self._value_]  # by the word, whose hash is cached: a search asks some million times
        return elements * size if block == 1 else -(-elements * size // block)

    @property
    def mean_bytes(self) -> float:
        """Size of one element with its part of a scale."""
        block, size = _BLOCKS[self._value_]
        return size / block


class Shard(Word):
    """Which dimension of a tensor is split evenly among the ranks; the value is the word in the language.

    FLAT: all elements in a row are, whatever the shape, as parameters are that FSDP shards.
    """

    NONE = "replicated"
    ROWS = "rows"
    COLS = "cols"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix; ``rows`` and ``cols`` are its full shape before sharding."""

    name: str
    dtype: DType
    rows: int
    cols: int
    shard: Shard

    @property
    def num_bytes(self) -> int:
        """Size of the whole tensor, all shards together."""
        return self.dtype.bytes_of(self.rows * self.cols)

    def shape_at(self, num_ranks: int) -> tuple[int, int]:
        """Rows and columns that each of ``num_ranks`` has; a flat shard as some rows."""
        rows = self.rows // num_ranks if self.shard in (Shard.ROWS, Shard.FLAT) else self.rows
        return rows, self.cols // num_ranks if self.shard is Shard.COLS else self.cols

    def part(self, part: "ColumnPart") -> "Tensor":
        """Some of its columns, as a tensor."""
        return replace(self, name=f"{self.name}.{part.name}", cols=part.cols)

    @property
    def layout(self) -> str:
        """How it lies on the ranks, for messages."""
        if self.shard is Shard.FLAT:
            return "in flat shards"
        return "replicated" if self.shard is Shard.NONE else f"sharded by {self.shard.value}"


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """``cols`` of the ``of`` columns of a tensor, from ``first`` on, and their word in the language: ``a_back.kv``.

    Of a tensor by cols each rank has its share of them all.
    """

    name: str
    first: int
    cols: int
    of: int

    def first_of(self, num_cols: int) -> int:
        """Where it begins in the ``num_cols`` columns of a rank."""
        return self.first * num_cols // self.of


class Pattern(Word):
    """How data flow between the kernel and the collective; the value is the field's name for it.

    GEMM in a value stands for the kernel, whichever it is: ``OpShape.label`` names it. KERNEL is one kernel alone that
    is no GEMM. In ``GEMM || ...`` the two need nothing of each other.
    """

    GEMM = "GEMM"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    AG_GEMM = "AG+GEMM"
    GEMM_RS = "GEMM+RS"
    KERNEL = "kernel"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"
    GEMM_AR = "GEMM+AR"
    A2A_GEMM = "A2A+GEMM"
    GEMM_BESIDE_AG = "GEMM || all_gather"
    GEMM_BESIDE_A2A = "GEMM || all_to_all"
    GEMM_A2A = "GEMM+A2A"
    GEMM_A2A_GEMM = "GEMM+A2A+GEMM"

    @property
    def gathers(self) -> bool:
        """Whether an all_gather stands alone or precedes the compute."""
        return self in _GATHER

    @property
    def reduces(self) -> bool:
        """Whether a reduce_scatter stands alone or follows the compute; False for an all_reduce."""
        return self in _REDUCE

    @property
    def sums(self) -> bool:
        """Whether partial results of all ranks are added up."""
        return self in _SUM

    @property
    def overlaps(self) -> bool:
        """Whether one kernel depends on one collective or the other way round, so that parts can hide each other."""
        return self in _OVERLAP

    @property
    def consumes(self) -> bool:
        """Whether the kernel, or the last of two, works on what the collective brings."""
        return self in _CONSUME

    @property
    def produces(self) -> bool:
        """Whether the collective takes what the kernel, or the first of two, makes."""
        return self in _PRODUCE

    @property
    def independent(self) -> bool:
        """Whether there are a kernel and a collective that need nothing of each other."""
        return self in (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A)

    @property
    def exchanges(self) -> bool:
        """Whether every rank holds a block for every other: an all_to_all."""
        return self in _EXCHANGE


# Asked about so often that members are looked up once: until Python 3.12 that takes as long as ten attributes.
_GATHER = frozenset((Pattern.ALL_GATHER, Pattern.AG_GEMM))
_REDUCE = frozenset((Pattern.REDUCE_SCATTER, Pattern.GEMM_RS))
_SUM = _REDUCE | {Pattern.ALL_REDUCE, Pattern.GEMM_AR}
_CONSUME = frozenset((Pattern.AG_GEMM, Pattern.A2A_GEMM, Pattern.GEMM_A2A_GEMM))
_PRODUCE = frozenset((Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A, Pattern.GEMM_A2A_GEMM))
_OVERLAP = _CONSUME | _PRODUCE
_EXCHANGE = frozenset(
    (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_BESIDE_A2A, Pattern.GEMM_A2A, Pattern.GEMM_A2A_GEMM)
)


UNIT_BYTES = 16
"""Uneven parts are cut between units of so many bytes along columns: what one thread loads at a time."""


@dataclass(frozen=True, slots=True)
class RankParts:
    """A tensor whose row blocks are the parts of the ranks.

    ``by_columns``: the parts are columns of what the text names, and ``moved`` is the transpose of that. ``loads`` are
    as in ``OpShape``, empty where the parts are equal.
    """

    moved: Tensor
    by_columns: bool = False
    loads: tuple[tuple[int, ...], ...] = ()


def rank_parts(tensor: Tensor, num_ranks: int) -> RankParts | None:
    """The parts of ``tensor``, one for each rank; None if it has fewer rows and columns than there are ranks.

    >>> from .tensors import DType
    >>> found = rank_parts(Tensor("y", DType.BF16, 4, 8192, Shard.NONE), 8)
    >>> found.moved.rows, found.moved.cols, found.by_columns
    (8192, 4, True)
    >>> rank_parts(Tensor("y", DType.BF16, 4, 8192, Shard.NONE), 6).loads[0]
    (1368, 1368, 1368, 1368, 1360, 1360)
    """
    rows, cols = tensor.rows, tensor.cols
    if max(rows, cols) < num_ranks:
        return None
    by_columns = rows % num_ranks > 0 and (cols % num_ranks == 0 or cols > rows)
    moved = replace(tensor, shard=Shard.ROWS)
    if by_columns:
        moved = replace(moved, rows=cols, cols=rows)
    if moved.rows % num_ranks == 0:
        return RankParts(moved, by_columns)
    unit = max(tensor.dtype.block, int(UNIT_BYTES / tensor.dtype.mean_bytes)) if by_columns else 1
    if moved.rows % unit or moved.rows < unit * num_ranks:
        unit = 1
    least, more = divmod(moved.rows // unit, num_ranks)
    blocks = tuple(unit * (least + (rank < more)) for rank in range(num_ranks))
    return RankParts(moved, by_columns, (blocks,) * num_ranks)
