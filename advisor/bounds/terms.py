"""The terms of a bound, each for one resource that every schedule needs, and the pipelines behind them."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, GemmShape, OpCase, Pattern, cutting_of, tile_rows
from ...compiler.text.units import bytes_text
from ...simcore.kernels.dispatch import least_bytes, least_sm_ticks
from .boxes import Floats
from .copy_modes import BoundCase, served_ticks
from .kernels import ROUNDING_MARGIN, KernelClass, Ratios, least_ratios, lone_kernel
from .link_loads import blocks_of, farthest_ticks, loads_of

# Cells of shares; refinements of the costs; bisections of the time.
CELLS, REFINEMENTS, BISECTIONS = 96, 3, 22


@dataclass(frozen=True, slots=True)
class FedKernels:
    """Kernels of ``size`` operations at a rank, and the times at which shares of them can begin; times in us.

    Cell j of shares ends at ``ends[j]`` and begins at ``begins[j]`` at the earliest; both are non-decreasing. Kernels
    have ``sms`` SMs, or those of ``all_sms`` that copies with ``copies`` of SM time leave; after ``first`` they share
    them with ``others`` of SM time. Shares are counted over ``ranks`` ranks. Units of ``dealt`` (persistent) kernels
    may work on any share, and do not last as long as the kernel.
    """

    ratios: Ratios
    size: float
    ends: Floats
    begins: Floats
    sms: int
    all_sms: int
    first: float = 0.0
    copies: float = 0.0
    others: float = 0.0
    ranks: int = 1
    dealt: bool = False

    def least_us(self) -> float:
        """Return the least time."""
        low = float(self.begins[-1])
        high = 2 * (low + self.ratios.least * self.size / self.sms)
        if not high:
            return 0.0  # if memory has no latency, some kernels have no bound
        while not self._fits(high):
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(middle) else (middle, high)
        return low * ROUNDING_MARGIN

    def _fits(self, us: float) -> bool:
        """Whether the necessary conditions allow ``us`` for all kernels."""
        left, sms = us - self.begins, min(self.sms, self.all_sms - self.copies / us)
        if left[-1] <= 0 or sms <= 0:
            return False
        firsts = np.append(0.0, self.ends[:-1])
        ratios = self.ratios.within(left)
        for _ in range(REFINEMENTS):
            costs = np.cumsum((ratios * (self.ends - firsts) * self.size)[::-1])[::-1]
            if costs[0] > sms * left[0] or costs[0] + self.others > sms * (us - self.first):
                return False
            if self.dealt:
                return True
            if (costs > sms * left).any():
                return False
            reached = self._reached(us - np.append(costs[1:], 0.0) / sms)
            largest = np.where(reached >= firsts[:, None], reached - firsts, 0.0)
            sizes = np.tril(largest).max(axis=1) * self.size * self.ranks
            ratios = np.maximum(ratios, self.ratios.up_to(sizes / ROUNDING_MARGIN))
        return True

    def _reached(self, us: Floats) -> Floats:
        """Return the share that can have begun by ``us``."""
        begun = np.searchsorted(self.begins, us, side="right")
        return np.asarray(np.append(0.0, self.ends)[begun])


def kernels_alone(case: BoundCase, gemm: GemmShape) -> FedKernels:
    """Return the pipeline of the kernels, with the time before and after all of them."""
    begins = np.full(CELLS, _us(case.kernels.start + case.after_kernels))
    return _pipeline(case, gemm, np.arange(1, CELLS + 1) / CELLS, begins)


def kernels_and_links(case: BoundCase, gemm: GemmShape) -> FedKernels:
    """Return the pipeline of kernels after links, or of links after kernels with time reversed."""
    own = _own_share(case)
    if own == 1:
        return kernels_alone(case, gemm)
    own_cells = min(max(1, round(CELLS * own)), CELLS // 2) if own else 0
    ends = np.append(np.linspace(0, own, own_cells + 1)[1:], np.linspace(own, 1, CELLS - own_cells + 1)[1:])
    kernels, passed = case.kernels, _passed_us(case)(np.linspace(0, 1, CELLS - own_cells + 1)[:-1])
    first = case.first_byte_latency + case.last_byte_latency
    if case.scenario.shape.pattern.consumes:
        alone = _us(kernels.start)
        remote = np.maximum(alone, _us(first + kernels.launched) + passed)
    else:
        alone = _us(kernels.start + case.after_kernels)
        remote = np.maximum(alone, _us(kernels.start + first + case.after_arrival) + passed)
    return _pipeline(case, gemm, ends, np.append(np.full(own_cells, alone), remote))


def ratios_of(case: BoundCase, gemm: GemmShape) -> Ratios:
    """Return the least SM time of the kernels for each element."""
    division, pattern = case.division, case.scenario.shape.pattern
    # Data that is sent has been computed with all its slices.
    finished = pattern.produces and not case.kernels.persistent
    # A kernel that shares the SMs has the tile for its part of them.
    own = 0 if case.kernels.persistent else case.scenario.gpu.gemm.fewest_sms
    fewest = min(division.fewest, own or division.fewest)
    kind = KernelClass(fewest, division.most, case.kernels.persistent, finished, own > 0, case.kernels.splits)
    return least_ratios(case.scenario.gpu, gemm, kind, case.rounds)


def _pipeline(case: BoundCase, gemm: GemmShape, ends: Floats, begins: Floats) -> FedKernels:
    division, pattern, kernels = case.division, case.scenario.shape.pattern, case.kernels
    # Kernels that sum fill their SMs; after a persistent kernel their time is part of what follows it.
    sums = 0 if kernels.persistent else case.sum_ticks * division.most
    return FedKernels(
        ratios_of(case, gemm),
        float(gemm.m * gemm.n * gemm.k),
        ends,
        begins,
        division.most,
        case.scenario.gpu.sms,
        _us(kernels.start),
        copies=_us(case.copy_ticks) if division.apart else 0.0,
        others=_us(sums),
        ranks=case.scenario.num_ranks if pattern is Pattern.GEMM_AR else 1,
        dealt=kernels.persistent,
    )


def _own_share(case: BoundCase) -> float:
    """Return the share of the operations that needs no data of other ranks, and whose results none of them needs."""
    shape, n = case.scenario.shape, case.scenario.num_ranks
    if case.moved is None or not shape.pattern.overlaps:
        return 1.0
    if shape.pattern is Pattern.GEMM_AR:
        return 0.0
    rows = [tile_rows(shape, n, owner) for owner in range(n)]
    return rows[0] / sum(rows)


def _passed_us(case: BoundCase) -> Callable[[Floats], Floats]:
    """Return the time in which the links of a rank pass a share of the data that it needs, or that others need of it.

    Every part of a result of an all_reduce takes 2 (n - 1) messages, each with another set of contributions. So the
    messages before the last contribution of a rank are at most in proportion to the operations that all ranks together
    have done. If a switch sums, every part leaves each rank at least once.
    """
    scenario, moved, pattern = case.scenario, case.moved, case.scenario.shape.pattern
    assert moved is not None and scenario.shape.moved is not None, "asked only where something moves"
    network, sent = scenario.network, case.mode.sent
    if pattern is Pattern.GEMM_AR and not case.mode.can_sum:
        loads = [(moved.total, sum(network.bytes_per_s_into))]
    elif pattern is Pattern.GEMM_AR:
        loads = [(scenario.shape.moved.num_bytes, rate) for rate in network.bytes_per_s_out]
    else:
        into, out = (moved.into, network.bytes_per_s_into), (moved.out, network.bytes_per_s_out)
        loads = list(zip(*(into if pattern.consumes else out), strict=True))
        loads = loads if moved.rank is None else [loads[moved.rank]]
    whole = max(num_bytes * sent * _us_per_byte(case, rate) for num_bytes, rate in loads)
    if not (pattern.exchanges and scenario.system.fabric.link_for_each_pair):
        return lambda shares: np.asarray(float(whole) * shares)
    # A link for each block: small blocks arrive first.
    blocks = np.sort(np.array(blocks_of(scenario)[1:], float))
    passed = np.cumsum(np.append(blocks[:1] * len(blocks), np.diff(blocks) * np.arange(len(blocks) - 1, 0, -1)))
    us = blocks * float(sent * _us_per_byte(case, scenario.system.fabric.link.achieved_bytes_per_s))
    points, times = np.append(0.0, passed / blocks.sum()), np.append(0.0, us)
    return lambda shares: np.maximum(float(whole) * shares, np.interp(shares, points, times))


def _us_per_byte(case: BoundCase, rate: int) -> Fraction:
    """Return the least time for a byte; as in ``served_ticks`` up to half a tick a line is lost."""
    ticks = Fraction(TICKS_PER_SECOND, rate) - Fraction(1, 2 * case.scenario.gpu.line_bytes)
    return max(Fraction(0), ticks) / TICKS_PER_US


def _us(ticks: float) -> float:
    return ticks / TICKS_PER_US


class Term(NamedTuple):
    """One reason why no schedule can be faster than ``ticks``."""

    name: str
    ticks: int
    sentence: str


def work(case: BoundCase) -> Term | None:
    """Bound by the SM time of kernels, and of copies and sums on the same SMs."""
    scenario, sms = case.scenario, case.scenario.gpu.sms
    kernel = lone_kernel(scenario)
    if kernel is not None:
        ticks = kernel.num_units * kernel.unit_ticks // sms
        return Term("work", ticks, f"the units of the kernel fill all {sms} SMs this long")
    if not case.kernels.first:
        return None
    what = "GEMM" if scenario.shape.kernel is None else scenario.shape.kernel.operation
    ticks = max(case.kernels.first, _busy_sms(case))
    beside = " beside copies and sums" if case.copy_ticks or case.sum_ticks else ""
    return Term("work", ticks, f"the tiles of the {what} fill all {sms} SMs this long{beside}")


def _busy_sms(case: BoundCase) -> int:
    """Return the least time in which the SMs do all their work.

    SMs that copies share with kernels are divided dynamically; SMs reserved for copies are so all the time.
    """
    sms, kernels, copies, division = case.scenario.gpu.sms, case.kernels, case.copy_ticks, case.division
    start, end, gemm = kernels.start, case.after_kernels, _tiled_gemm(case.scenario)
    if gemm is None:
        area, alone = least_sm_ticks(case.scenario), 0
    else:
        area = int(ratios_of(case, gemm).least * gemm.m * gemm.n * gemm.k * TICKS_PER_US)
        alone = int(kernels_alone(case, gemm).least_us() * TICKS_PER_US)
    # Kernels that sum fill their SMs; after a persistent kernel their time is part of ``end``.
    sums = 0 if kernels.persistent else case.sum_ticks
    ticks = max(alone, start + area // division.most + max(sums, end))
    if division.apart:
        # Copies may begin before kernels do.
        least = max(1, division.fewest)
        ticks = max(ticks, start * least // sms + (area + copies) // sms)
        return max(ticks, copies // max(1, sms - least))
    # Copies and kernels that share SMs begin at their launch.
    shared = min(start, case.scenario.gpu.launch.kernel_ticks)
    return max(ticks, shared + (area + copies) // sms)


def links(case: BoundCase) -> Term | None:
    """Bound by the busiest link or cut, or the latency to the farthest rank, with the time before and after."""
    scenario, moved = case.scenario, case.moved
    if moved is None:
        return None
    sent, line = case.mode.sent, scenario.gpu.line_bytes
    loads = list(loads_of(scenario, moved))
    times = [served_ticks(int(load.num_bytes * sent), load.bytes_per_s, line) for load in loads]
    busy, load = max(zip(times, loads, strict=True), key=lambda timed: timed[0])
    passing, farthest = busy + case.last_byte_latency, farthest_ticks(scenario) + scenario.gpu.hbm.latency_ticks
    ticks = case.before_sending + case.first_byte_latency + max(passing, farthest) + case.after_arrival
    if farthest > passing:
        return Term("links", ticks, "what a rank has must reach the farthest one, and is small beside the latency")
    what = f"{bytes_text(float(load.num_bytes * sent))} must pass the links {load.where}"
    return Term("links", ticks, f"{what}, and be used after the last byte of it")


def engines(case: BoundCase) -> Term | None:
    """Bound by all engines of a rank together, with the time before and after their copies."""
    moved, mode, gpu = case.moved, case.mode, case.scenario.gpu
    if moved is None or case.scenario.system.replay is not None:
        return None
    busy = mode.engine_ticks(moved.issued, gpu.line_bytes) // mode.engines
    ticks = case.before_sending + mode.setup_ticks + busy + case.after_arrival
    return Term("engines", ticks, f"at most {mode.engines_text} of a rank copy what it has to move")


def hbm(case: BoundCase) -> Term | None:
    """Bound by the compulsory traffic of the busiest memory: the inputs of a rank, and its results.

    A kernel may take what arrives as it does, and send what it makes before it is written.
    """
    if not case.in_memory:
        return None
    scenario, gpu, moved = case.scenario, case.scenario.gpu, case.moved
    kernel = lone_kernel(scenario)
    num_bytes = _input_and_result_bytes(case) if kernel is None else kernel.hbm_read_bytes + kernel.hbm_write_bytes
    starts = [case.kernels.start] if case.kernels.first else []
    if moved is not None and not case.before_sending:
        starts.append(case.mode.setup_ticks)
    ticks = min(starts, default=0) + served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    return Term("hbm", ticks, "inputs and results pass the memory of a rank once each")


def _input_and_result_bytes(case: BoundCase) -> int:
    """Return what a rank reads of its inputs and writes of its results, at least."""
    scenario, moved, shape = case.scenario, case.moved, case.scenario.shape
    num_bytes, pattern, n = least_bytes(scenario), shape.pattern, scenario.num_ranks
    if moved is None or shape.moved is None:
        return num_bytes
    rank = moved.rank or 0
    arriving, leaving, whole = moved.into[rank], moved.out[rank], shape.moved.num_bytes
    if pattern.consumes:  # operands of the kernel, but not what arrives
        return num_bytes - arriving + (leaving if pattern.exchanges else 0)
    if pattern.produces and pattern.exchanges:  # results of the kernel, but not what leaves
        return num_bytes - leaving + arriving
    if pattern.sums:
        return num_bytes + (whole // n if pattern.reduces else whole) + (-whole if pattern.produces else whole)
    return num_bytes + moved.busiest_bytes + moved.read


def end_chunk(case: BoundCase) -> Term | None:
    """Bound by the work on remote rows, which follows their arrival or precedes their departure.

    Kernels other than GEMMs are taken to do all of this work after the first arrival, or before the last departure.
    """
    pattern, gemm = case.scenario.shape.pattern, _tiled_gemm(case.scenario)
    if case.moved is None or not pattern.overlaps:
        return None
    ticks = _end_chunk_ticks(case)
    if gemm is not None:
        ticks = max(ticks, int(kernels_and_links(case, gemm).least_us() * TICKS_PER_US))
    if pattern.consumes:
        return Term("first_chunk", ticks, "remote rows are computed as they arrive, at the rate of the links")
    what = "partial sums" if pattern.sums else "rows"
    return Term("last_chunk", ticks, f"{what} for others leave as they are computed, at the rate of the links")


def _end_chunk_ticks(case: BoundCase) -> int:
    """Return the time of the work on all remote rows at the ideal rate, with the first arrival or last departure."""
    sms, kernels, transfer = case.scenario.gpu.sms, case.kernels, case.first_byte_latency + case.last_byte_latency
    # Units of a persistent kernel are dealt to its groups in whole numbers: only one unit is certainly remote.
    remote = 0 if kernels.persistent else least_sm_ticks(case.scenario, _remote_share(case)) // sms
    if case.scenario.shape.pattern.consumes:
        return transfer + max(kernels.launched + remote, kernels.after)
    return max(kernels.first, kernels.start + remote) + transfer + case.after_arrival


def _remote_share(case: BoundCase) -> Fraction:
    """Return the share of the kernel that needs arriving data, or whose results others need."""
    shape, n = case.scenario.shape, case.scenario.num_ranks
    if shape.pattern is Pattern.GEMM_AR or not cutting_of(shape).by_rows:
        return Fraction(1)
    rows = [tile_rows(shape, n, owner) for owner in range(n)]
    return Fraction(sum(rows[1:]), sum(rows))


def _tiled_gemm(scenario: OpCase) -> GemmShape | None:
    """Return the GEMM of a rank; None if there is none, or if it has one column and is a matrix times a vector."""
    gemm = scenario.shape.gemm
    return None if gemm is None or gemm.n == 1 else gemm


# Terms that need no search over kernels.
CHEAP: tuple[Callable[[BoundCase], Term | None], ...] = (links, engines, hbm)
TERMS: tuple[Callable[[BoundCase], Term | None], ...] = (work, *CHEAP, end_chunk)
