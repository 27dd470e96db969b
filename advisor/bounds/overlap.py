"""How the kernels of a GEMM and the links keep up with each other: the pipelines of a bound."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, GemmShape, Pattern, tile_rows
from .boxes import Floats
from .cases import BoundCase
from .gemm_area import KernelClass, Ratios, least_ratios
from .least_traffic import blocks_of, ports_of
from .pipeline import CELLS, Pipeline


def kernels_alone(limits: BoundCase, gemm: GemmShape) -> Pipeline:
    """The kernels, with what comes before and after all of them."""
    begins = np.full(CELLS, _us(limits.kernels.start + limits.after_kernels))
    return _pipeline(limits, gemm, np.arange(1, CELLS + 1) / CELLS, begins)


def kernels_and_links(limits: BoundCase, gemm: GemmShape) -> Pipeline:
    """The kernels behind the links, or the links behind the kernels and time reversed."""
    own = _own_share(limits)
    if own == 1:
        return kernels_alone(limits, gemm)
    few = min(max(1, round(CELLS * own)), CELLS // 2) if own else 0
    ends = np.append(np.linspace(0, own, few + 1)[1:], np.linspace(own, 1, CELLS - few + 1)[1:])
    kernels, passed = limits.kernels, _passed_us(limits)(np.linspace(0, 1, CELLS - few + 1)[:-1])
    first = limits.lead + limits.landing
    if limits.scenario.workload.pattern.consumes:
        alone = _us(kernels.start)
        remote = np.maximum(alone, _us(first + kernels.launched) + passed)
    else:
        alone = _us(kernels.start + limits.after_kernels)
        remote = np.maximum(alone, _us(kernels.start + first + limits.after_arrival) + passed)
    return _pipeline(limits, gemm, ends, np.append(np.full(few, alone), remote))


def ratios_of(limits: BoundCase, gemm: GemmShape) -> Ratios:
    """What kernels cost."""
    division, pattern = limits.division, limits.scenario.workload.pattern
    # What leaves has been computed with all its slices.
    finished = pattern.produces and not limits.kernels.persistent
    kind = KernelClass(division.fewest, division.most, limits.kernels.persistent, finished)
    return least_ratios(limits.scenario.gpu, gemm, kind, limits.rounds)


def _pipeline(limits: BoundCase, gemm: GemmShape, ends: Floats, begins: Floats) -> Pipeline:
    division, pattern, kernels = limits.division, limits.scenario.workload.pattern, limits.kernels
    # Kernels that sum fill what SMs they have; after a persistent kernel they are in what follows it.
    sums = 0 if kernels.persistent else limits.sum_ticks * division.most
    return Pipeline(
        ratios_of(limits, gemm),
        float(gemm.m * gemm.n * gemm.k),
        ends,
        begins,
        division.most,
        limits.scenario.gpu.sms,
        _us(kernels.start),
        copies=_us(limits.copy_ticks) if division.apart else 0.0,
        others=_us(sums),
        ranks=limits.scenario.num_ranks if pattern is Pattern.GEMM_AR else 1,
        dealt=kernels.persistent,
    )


def _own_share(limits: BoundCase) -> float:
    """The share of the operations that needs nothing from other ranks, and whose results none needs."""
    workload, n = limits.scenario.workload, limits.scenario.num_ranks
    if limits.moved is None or not workload.pattern.overlaps:
        return 1.0
    if workload.pattern is Pattern.GEMM_AR:
        return 0.0
    rows = [tile_rows(workload, n, owner) for owner in range(n)]
    return rows[0] / sum(rows)


def _passed_us(limits: BoundCase) -> Callable[[Floats], Floats]:
    """The time in which the links of a rank pass a share of what it needs, or of what others need of it.

    Every part of a result of an all_reduce takes 2 (n - 1) messages of which each carries another set of contributions,
    so that those before the last contribution of some rank are at most in proportion to what has been computed by all
    ranks together. Where a switch sums, it leaves each rank at least once.
    """
    scenario, moved, pattern = limits.scenario, limits.moved, limits.scenario.workload.pattern
    assert moved is not None and scenario.workload.moved is not None, "asked only where something moves"
    ports, sent = ports_of(scenario), limits.way.sent
    if pattern is Pattern.GEMM_AR and not limits.way.can_sum:
        loads = [(moved.total, sum(ports.into))]
    elif pattern is Pattern.GEMM_AR:
        loads = [(scenario.workload.moved.num_bytes, rate) for rate in ports.out]
    else:
        sizes, rates = (moved.into, ports.into) if pattern.consumes else (moved.out, ports.out)
        loads = list(zip(sizes, rates, strict=True))
        loads = loads if moved.rank is None else [loads[moved.rank]]
    whole = max(num_bytes * sent * _us_per_byte(limits, rate) for num_bytes, rate in loads)
    if not (pattern.exchanges and scenario.system.fabric.link_for_each_pair):
        return lambda shares: np.asarray(float(whole) * shares)
    # A link for each block, so that small ones are there first.
    blocks = np.sort(np.array(blocks_of(scenario)[1:], float))
    passed = np.cumsum(np.append(blocks[:1] * len(blocks), np.diff(blocks) * np.arange(len(blocks) - 1, 0, -1)))
    us = blocks * float(sent * _us_per_byte(limits, scenario.system.fabric.link.achieved_bytes_per_s))
    points, times = np.append(0.0, passed / blocks.sum()), np.append(0.0, us)
    return lambda shares: np.maximum(float(whole) * shares, np.interp(shares, points, times))


def _us_per_byte(limits: BoundCase, rate: int) -> Fraction:
    """As ``served_ticks``: half a tick a line may be missing."""
    ticks = Fraction(TICKS_PER_SECOND, rate) - Fraction(1, 2 * limits.scenario.gpu.line_bytes)
    return max(Fraction(0), ticks) / TICKS_PER_US


def _us(ticks: float) -> float:
    return ticks / TICKS_PER_US
