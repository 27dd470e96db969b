"""Tensors of a workload, their element types, and how they lie on the ranks."""

from dataclasses import dataclass, replace
from enum import Enum

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
        return _NUM_BYTES[self._value_]  # by the word, whose hash is cached: a search asks some million times


class Shard(Enum):
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
        return self.rows * self.cols * self.dtype.num_bytes

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
