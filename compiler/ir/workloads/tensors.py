"""Tensors of a workload, their element types, and how they lie on the ranks."""

from dataclasses import dataclass
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

    @property
    def layout(self) -> str:
        """How it lies on the ranks, for messages."""
        if self.shard is Shard.FLAT:
            return "in flat shards"
        return "replicated" if self.shard is Shard.NONE else f"sharded by {self.shard.value}"
