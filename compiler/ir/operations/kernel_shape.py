"""The kernel of one rank: its sizes, work and traffic, and how it may be cut beside a collective.

Sizes are counts and positive, if not said otherwise; the operation that makes a shape checks them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from ..tensors import DType, Pattern, Tensor, Word

# Tiles read 64 elements of the inner dimension at a time; a chunk of columns keeps to that.
COLUMN_STEP = 64


class Adds(Word):
    """Which chunks of what a collective brings add to one output, so that their kernels run one after the other.

    ROWS and BLOCKS: chunks from different ranks do, either all rows of each rank or rows at the same place of each.
    """

    NONE = "none"
    ROWS = "rows"
    COLUMNS = "columns"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Cutting:
    """How a kernel before or after a collective may be cut.

    ``by_rows``: whether some rows can be computed without the others. ``head``: columns of the moved tensor that stay
    together and need nothing of the others, as those of one head of keys; 1 where columns add up or make no difference.
    """

    adds: Adds = Adds.NONE
    by_rows: bool = True
    head: int = 1

    @property
    def adds_ranks(self) -> bool:
        """Whether what comes from different ranks adds to one output."""
        return self.adds in (Adds.ROWS, Adds.BLOCKS)

    @property
    def column_step(self) -> int:
        """A chunk of columns is a multiple of this."""
        return COLUMN_STEP if self.head == 1 else self.head


class KernelShape(ABC):
    """The work of one kernel of one rank. Shapes are frozen dataclasses; their fields are part of a plan's scenario.

    A kernel that only stands alone needs ``flops``, ``operand_bytes`` and ``output_bytes``; the rest concerns kernels
    before or after a collective, whose moved tensor and pattern the methods are given.
    """

    __slots__ = ()

    operation: ClassVar[str]
    """The word of its operation."""
    tiled: ClassVar[bool] = False
    """Whether it multiplies matrices tile by tile: launch, drain and resolution are then those of the GEMM profile."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""

    @property
    @abstractmethod
    def operand_bytes(self) -> int:
        """Bytes that it reads at least: every operand once."""

    @property
    @abstractmethod
    def output_bytes(self) -> int:
        """Bytes that it writes at least: the output once."""

    @property
    def accumulator_bytes(self) -> int:
        """The output while parts of it are being summed; 0 where no part of it ever is."""
        return 0

    @property
    def text(self) -> str:
        """Element type and sizes for people; empty where nothing is said of them."""
        return ""

    def cutting(self, pattern: Pattern, moved: Tensor) -> Cutting:
        """How it may be cut before or after the collective that moves ``moved``; by rows if not said."""
        return Cutting(head=moved.cols)

    def tile_extent(self, pattern: Pattern, moved: Tensor | None) -> tuple[int, int]:
        """(columns of the output, inner dimension that tiles may be sliced along); (1, 1) is one tile for a plan.

        If not said, the output has the columns of the moved tensor, which tiles after a collective are sliced along.
        """
        return (1, 1) if moved is None else (moved.cols, moved.cols if pattern.consumes else 1)

    def at_rank(self, rows: int, experts: tuple[int, ...], of: int) -> Self:
        """The kernel of a rank that gets ``rows`` in an uneven all_to_all, ``experts`` of them for each expert.

        This one gets ``of`` rows.
        """
        return self

    @property
    def ranks_differ(self) -> bool:
        """Whether each rank has a kernel of its own, see ``of_rank``, whatever it gets in a collective."""
        return False

    def of_rank(self, rank: int) -> Self:
        """The kernel of one rank."""
        return self


class ProductShape(KernelShape):
    """A product of matrices, C = A B, multiplied at the rate of the type of A, ``dtype``.

    ``weights`` is the type of B and ``out`` that of C; None where they follow from ``dtype``.
    """

    __slots__ = ()

    tiled = True
    dtype: DType
    weights: DType | None
    out: DType | None

    @property
    def right(self) -> DType:
        """The type of B."""
        return self.weights or self.dtype

    @property
    def product(self) -> DType:
        """The type of C."""
        return self.out or self.dtype.of_product

    def sizes_text(self, m: int, n: int, k: int) -> str:
        """Types and sizes of a product, for people."""
        types = self.dtype.value if self.right is self.dtype else f"{self.dtype.value} by {self.right.value}"
        return f"{types} {m} x {n} x {k}"


def matrix_cutting(pattern: Pattern) -> Cutting:
    """A product with what a collective brings: columns of what arrives are its inner dimension."""
    return Cutting(Adds.COLUMNS if pattern.consumes else Adds.NONE)
