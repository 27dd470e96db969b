"""What a trace says of a run: its GEMMs and collectives."""

from collections import Counter
from dataclasses import dataclass

from ....compiler.ir import DType
from .products import Product

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
    """A collective of ``num_ranks``, elements that go in and come out at this rank, and when its kernel ran."""

    operation: str
    num_in: int
    num_out: int
    num_ranks: int
    dtype: DType | None
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TracedRun:
    """What a trace of ``kind`` says of a run: GPU, rank, kernels in the order of time, and what was left out.

    ``unused`` is what was seen and not used, counted by the reason; ``has_shapes`` whether operations have those of
    their inputs. Without ``has_times`` kernels have durations and an order alone: they begin when the one before them
    ends.
    """

    kind: str
    has_times: bool
    gpu: str
    rank: int | None
    gemms: tuple[TracedGemm, ...]
    collectives: tuple[TracedCollective, ...]
    num_kernels: int
    notes: tuple[str, ...]
    unused: tuple[str, ...] = ()
    has_shapes: bool = True


def traced(product: Product, start_us: float, end_us: float) -> TracedGemm:
    """A product whose kernels ran so."""
    at = product.m, product.n, product.k, product.dtype, start_us, end_us
    return TracedGemm(*at, product.groups, product.gathers)


def told(unused: Unused) -> tuple[str, ...]:
    """What was not used, the most frequent first: ``1,092 GEMMs in float32``."""
    order = sorted(unused.items(), key=lambda one: (-one[1], one[0]))
    return tuple(f"{count:,} {noun}{'s' if count > 1 else ''} {why}" for (noun, why), count in order[:MAX_REASONS])
