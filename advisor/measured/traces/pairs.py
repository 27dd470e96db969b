"""Pairs of a GEMM and a collective in a trace: those whose sizes fit, and that follow each other.

A trace does not say which kernel reads what. An all_gather whose output has as many elements as the first matrix of the
next GEMM is taken to gather it, and a reduce_scatter or all_reduce with as many as the result of the GEMM before it to
sum that. Weights that are gathered in one piece, as FSDP does, fit no matrix and are left alone.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ....compiler.ir import DType
from .run import TracedCollective, TracedGemm, TracedRun

MAX_GAP_US = 1000.0
"""A GEMM and a collective with more time than this between them are no pair."""


@dataclass(frozen=True, slots=True)
class PairShape:
    """What pairs of one kind have in common: the collective, the GEMM of one GPU, and the ranks."""

    operation: str
    m: int
    n: int
    k: int
    dtype: DType
    num_ranks: int

    @property
    def is_gathered(self) -> bool:
        """Whether the collective comes first."""
        return self.operation == "all_gather"


@dataclass(frozen=True, slots=True)
class TracedPair:
    """A pair that a run has ``count`` times: medians of the times of both, and from the first begin to the last end.

    ``together_us`` is None where the trace does not say when kernels began.
    """

    shape: PairShape
    count: int
    collective_us: float
    gemm_us: float
    together_us: float | None

    @property
    def hidden(self) -> float | None:
        """The share of the collective that passes beside the GEMM; None where it is not known."""
        if self.together_us is None:
            return None
        return max(0.0, min(1.0, (self.collective_us + self.gemm_us - self.together_us) / self.collective_us))


def find_pairs(run: TracedRun) -> tuple[TracedPair, ...]:
    """Return the kinds of pairs of a run, those that take the most time first."""
    times: dict[PairShape, list[tuple[float, float, float]]] = defaultdict(list)
    for collective, gemm in _pairs(run):
        shape = PairShape(collective.operation, gemm.m, gemm.n, gemm.k, gemm.dtype, collective.num_ranks)
        end, start = max(collective.end_us, gemm.end_us), min(collective.start_us, gemm.start_us)
        times[shape].append((collective.end_us - collective.start_us, gemm.end_us - gemm.start_us, end - start))
    found = []
    for shape, each in times.items():
        collective_us, gemm_us, together_us = (median(column) for column in zip(*each, strict=True))
        pair = TracedPair(shape, len(each), collective_us, gemm_us, together_us if run.has_times else None)
        found.append((len(each) * together_us, pair))
    return tuple(pair for _, pair in sorted(found, key=lambda one: -one[0]))


def _pairs(run: TracedRun) -> Iterator[tuple[TracedCollective, TracedGemm]]:
    """Yield each collective with its GEMM; no GEMM is in two pairs of one kind."""
    by_operand: dict[int, list[TracedGemm]] = defaultdict(list)
    by_result: dict[int, list[TracedGemm]] = defaultdict(list)
    for gemm in run.gemms:
        by_operand[gemm.m * gemm.k].append(gemm)
        by_result[gemm.m * gemm.n].append(gemm)
    taken: set[tuple[bool, TracedGemm]] = set()
    for collective in run.collectives:
        if collective.num_ranks < 2:
            continue
        gathers = collective.operation == "all_gather"
        fitting = by_operand[collective.num_out] if gathers else by_result[collective.num_in]
        near = _next(fitting, collective) if gathers else _last(fitting, collective)
        if near is not None and (gathers, near) not in taken and _belong(collective, near):
            taken.add((gathers, near))
            yield collective, near


def _belong(collective: TracedCollective, gemm: TracedGemm) -> bool:
    """Whether type, rows and time fit."""
    gap_us = max(collective.start_us, gemm.start_us) - min(collective.end_us, gemm.end_us)
    return collective.dtype in (None, gemm.dtype) and gemm.m % collective.num_ranks == 0 and gap_us <= MAX_GAP_US


def _next(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The first GEMM that begins after the collective does."""
    at = bisect_left(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at] if at < len(gemms) else None


def _last(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The last GEMM that begins before the collective does."""
    at = bisect_right(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at - 1] if at else None
