"""Slower ways to carry out a whole collective, which leave kernels beside it more of the network on chip.

Copies that come as fast as the links go take more of the network than a GEMM leaves, and the GEMM waits for the rest.
One copy engine that has its copies in pieces is slower by the setup of each: where enough kernels are at hand, it takes
longer and costs them less. Once a GEMM leaves what they take, a longer time gains nothing more.
"""

from collections.abc import Iterator

from ...compiler.ir import Choice, EngineChoice, EngineKind, Explore, Gpu, System
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from .contention import Uses
from .copiers import Copier

MOST_PIECES = 32
"""Pieces of a shard at most: smaller ones are mostly the setup of copies, which is assumed in most profiles."""

LEAST_STEP = 1.25
"""Factor by which each pace is slower than the one before, at least."""

NUM_PACES = 2
"""Paces that a joint schedule may choose from, besides the fastest: the slowest that gain something."""

FREE = 0.1
"""Share of what the fastest copies cost kernels at which no slower ones are looked for."""

_LIMITS = ("engine", "schedules", "chunks", "algorithm")


def slowed_ticks(gpu: Gpu, copies: Uses, length: int) -> int:
    """How much longer GEMMs take beside ``copies`` of so many ticks."""
    if gpu.noc is None:
        return 0
    return int(length * (1 - Uses(noc=float(gpu.noc.gemm_share)).beside(copies, 1.0)))


def is_limited(explore: Explore) -> bool:
    """Whether the file says by what, or in how many pieces, collectives may be carried out."""
    return any(word in _LIMITS for word, _ in explore.asked)


def slower(system: System, copier: Copier) -> Iterator[Choice]:
    """Yield choices of a whole collective, each slower than the one before, by an engine beside those of ``copier``."""
    engine = EngineChoice(EngineKind.DMA, 1)
    if copier.takes(engine) and copier.engine.count < system.gpu.dma.engines:
        for doublings in range(1, MOST_PIECES.bit_length()):
            yield Choice(DEFAULT_ALGORITHM, system.num_ranks << doublings, engine)
