"""Implementations: fused kernels and libraries that a user can switch on, with the costs that were measured of them.

Times are ticks of 10 fs, rates bytes per second. Fractions are exact.
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .devices.hardware import Provenance
from .schedules.schedule import Choice, EngineKind
from .workloads.pattern import Pattern
from .workloads.tensors import DType

OF_LAYERS = ("transformer_engine",)
"""Implementations of which it is known what they switch on for a whole layer, by their names in the library."""


class TransferPath(Enum):
    """How an implementation moves bytes between GPUs; the value is the word in the language.

    TILE_STORES are stores of a GEMM's epilogue, IN_SWITCH copies and sums of the switch (multimem). LIBRARY is a call
    of the collective library, before or after the GEMM.
    """

    COPY_ENGINE = "copy_engine"
    SM_COPY = "sm_copy"
    TILE_STORES = "tile_stores"
    IN_SWITCH = "in_switch"
    LIBRARY = "library"

    @property
    def engine(self) -> EngineKind:
        """The engine of a schedule that takes this path."""
        return EngineKind.DMA if self is TransferPath.COPY_ENGINE else EngineKind.SM


@dataclass(frozen=True, slots=True)
class Method:
    """How an implementation carries out one pattern on one system.

    ``rate`` is the share of the link's achieved rate that the path reaches, ``limit_bytes_per_s`` the most that it
    reaches on any link. A call costs ``call_ticks`` on the host and ``barrier_ticks`` for barriers between ranks, in
    which nothing else happens. The host issues each kernel and copy in ``step_ticks`` and runs ahead of the GPU. With
    ``tiles`` its GEMM has these alone, and does not split the inner dimension. Below ``rereads_below`` rows it goes
    through its tiles row by row, and reads the second operand again for every ``rows_per_read`` rows of tiles.
    ``missing`` are numbers that are not known: without them there is no prediction. ``error`` is the mean
    relative error of predicted speedups over the library on rows it was not fitted to, None if there were none;
    ``shortest_ticks`` is the shortest time among those rows and the rows of the fit.
    """

    pattern: Pattern
    choice: Choice
    path: TransferPath
    rate: Fraction = Fraction(1)
    limit_bytes_per_s: int | None = None
    call_ticks: int = 0
    barrier_ticks: int = 0
    step_ticks: int = 0
    tiles: tuple[tuple[int, int], ...] = ()
    rereads_below: int = 0
    rows_per_read: Fraction = Fraction(1)
    missing: tuple[str, ...] = ()
    error: Fraction | None = None
    shortest_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Implementation:
    """An implementation: the GPUs and element types it is known for, and its methods by pattern."""

    name: str
    gpus: tuple[str, ...]
    dtypes: tuple[DType, ...]
    methods: tuple[Method, ...]
    provenance: tuple[Provenance, ...] = ()

    def method(self, pattern: Pattern) -> Method | None:
        """Return how it carries out ``pattern``, None if it does not."""
        return next((method for method in self.methods if method.pattern is pattern), None)
