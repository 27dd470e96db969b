"""Pairs of a GEMM and a collective in a trace: those whose sizes fit, and that follow each other.

A trace does not say which kernel reads what. An all_gather whose output has as many elements as the first matrix of the
next GEMM is taken to gather it, and a reduce_scatter or all_reduce with as many as the result of the GEMM before it to
sum that. An all_to_all belongs to either, and alone to one of several experts. An operation that gathers has the rows
of its rank. Weights that are gathered in one piece, as FSDP does, fit no matrix and are left alone.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ....compiler.ir import DType
from .run import TracedCollective, TracedGemm, TracedRun, Unused

MAX_GAP_US = 1000.0
"""A GEMM and a collective with more time than this between them are no pair."""


@dataclass(frozen=True, slots=True)
class PairShape:
    """What pairs of one kind have in common: the collective, the GEMM of one GPU, the ranks and the experts.

    An all_to_all is ``dispatched`` where it comes first.
    """

    operation: str
    m: int
    n: int
    k: int
    dtype: DType
    num_ranks: int
    groups: int = 1
    dispatched: bool = False

    @property
    def is_gathered(self) -> bool:
        """Whether the collective comes first."""
        return self.operation == "all_gather" or self.dispatched


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


def find_pairs(run: TracedRun, unused: Unused | None = None) -> tuple[TracedPair, ...]:
    """Return the kinds of pairs of a run, those that take the most time first.

    Collectives whose size fits a GEMM that they make no pair with are counted in ``unused`` by the reason.
    """
    times: dict[PairShape, list[tuple[float, float, float]]] = defaultdict(list)
    for shape, collective, gemm in _pairs(run, Unused() if unused is None else unused):
        end, start = max(collective.end_us, gemm.end_us), min(collective.start_us, gemm.start_us)
        times[shape].append((collective.end_us - collective.start_us, gemm.end_us - gemm.start_us, end - start))
    found = []
    for shape, each in times.items():
        collective_us, gemm_us, together_us = (median(column) for column in zip(*each, strict=True))
        pair = TracedPair(shape, len(each), collective_us, gemm_us, together_us if run.has_times else None)
        found.append((len(each) * together_us, pair))
    return tuple(pair for _, pair in sorted(found, key=lambda one: -one[0]))


def _pairs(run: TracedRun, unused: Unused) -> Iterator[tuple[PairShape, TracedCollective, TracedGemm]]:
    """Yield each collective with its GEMM; no GEMM is in two pairs of one kind."""
    by_operand: dict[int, list[TracedGemm]] = defaultdict(list)
    by_shard: dict[int, list[TracedGemm]] = defaultdict(list)
    by_result: dict[int, list[TracedGemm]] = defaultdict(list)
    for gemm in run.gemms:
        by_operand[gemm.m * gemm.k].append(gemm)
        by_result[gemm.m * gemm.n].append(gemm)
        if gemm.gathers:
            by_shard[gemm.m * gemm.k].append(gemm)
    taken: set[tuple[bool, TracedGemm]] = set()
    for collective in run.collectives:
        operation, ranks = collective.operation, collective.num_ranks
        if ranks < 2:
            continue
        near: list[tuple[bool, TracedGemm | None, int]] = []  # (it comes first, the GEMM, its rows by those it has)
        if operation in ("all_gather", "all_to_all"):
            near.append((True, _next(by_operand[collective.num_out], collective), 1))
        if operation == "all_gather":
            near.append((True, _next(by_shard[collective.num_in], collective), ranks))
        else:
            near.append((False, _last(by_result[collective.num_in], collective), 1))
        why = ""
        for first, found, times in near:
            if found is None or (first, found) in taken:
                continue
            reason = _why_not(collective, found, found.m * times)
            if not reason:
                taken.add((first, found))
                shape = PairShape(operation, found.m * times, found.n, found.k, found.dtype, ranks, found.groups)
                yield replace(shape, dispatched=first and operation == "all_to_all"), collective, found
                break
            why = why or reason
        else:
            if why:
                unused[operation, why] += 1


def _why_not(collective: TracedCollective, gemm: TracedGemm, rows: int) -> str:
    """Why both are no pair though their sizes fit; empty where they are one."""
    if max(collective.start_us, gemm.start_us) - min(collective.end_us, gemm.end_us) > MAX_GAP_US:
        return "more than 1 ms from the GEMM that its size fits"
    if collective.dtype not in (None, gemm.dtype):
        types = f"in {collective.dtype.value} beside a GEMM in {gemm.dtype.value}" if collective.dtype else ""
        return f"{types}: a pair has one type"
    if gemm.groups > 1 and collective.operation != "all_to_all":
        return "beside the products of several experts: their collective is an all_to_all"
    if collective.operation != "all_reduce" and rows % collective.num_ranks:  # that takes any number of rows
        return f"beside a GEMM of {rows} rows, which do not divide among {collective.num_ranks} ranks"
    return ""


def _next(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The first GEMM that begins after the collective does."""
    at = bisect_left(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at] if at < len(gemms) else None


def _last(gemms: Sequence[TracedGemm], collective: TracedCollective) -> TracedGemm | None:
    """The last GEMM that begins before the collective does."""
    at = bisect_right(gemms, collective.start_us, key=lambda gemm: gemm.start_us)
    return gemms[at - 1] if at else None
