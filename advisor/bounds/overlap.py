"""Pipelines of a bound: the kernels of a GEMM with the links that feed or drain them."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, GemmShape, Pattern, tile_rows
from .boxes import Floats
from .cases import BoundCase
from .gemm_area import KernelClass, Ratios, least_ratios
from .least_traffic import blocks_of
from .link_loads import ports_of
from .pipeline import CELLS, Pipeline


def kernels_alone(case: BoundCase, gemm: GemmShape) -> Pipeline:
    """Return the pipeline of the kernels, with the time before and after all of them."""
    begins = np.full(CELLS, _us(case.kernels.start + case.after_kernels))
    return _pipeline(case, gemm, np.arange(1, CELLS + 1) / CELLS, begins)


def kernels_and_links(case: BoundCase, gemm: GemmShape) -> Pipeline:
    """Return the pipeline of kernels after links, or of links after kernels with time reversed."""
    own = _own_share(case)
    if own == 1:
        return kernels_alone(case, gemm)
    own_cells = min(max(1, round(CELLS * own)), CELLS // 2) if own else 0
    ends = np.append(np.linspace(0, own, own_cells + 1)[1:], np.linspace(own, 1, CELLS - own_cells + 1)[1:])
    kernels, passed = case.kernels, _passed_us(case)(np.linspace(0, 1, CELLS - own_cells + 1)[:-1])
    first = case.first_byte_latency + case.last_byte_latency
    if case.scenario.workload.pattern.consumes:
        alone = _us(kernels.start)
        remote = np.maximum(alone, _us(first + kernels.launched) + passed)
    else:
        alone = _us(kernels.start + case.after_kernels)
        remote = np.maximum(alone, _us(kernels.start + first + case.after_arrival) + passed)
    return _pipeline(case, gemm, ends, np.append(np.full(own_cells, alone), remote))


def ratios_of(case: BoundCase, gemm: GemmShape) -> Ratios:
    """Return the least SM time of the kernels for each element."""
    division, pattern = case.division, case.scenario.workload.pattern
    # Data that is sent has been computed with all its slices.
    finished = pattern.produces and not case.kernels.persistent
    kind = KernelClass(division.fewest, division.most, case.kernels.persistent, finished)
    return least_ratios(case.scenario.gpu, gemm, kind, case.rounds)


def _pipeline(case: BoundCase, gemm: GemmShape, ends: Floats, begins: Floats) -> Pipeline:
    division, pattern, kernels = case.division, case.scenario.workload.pattern, case.kernels
    # Kernels that sum fill their SMs; after a persistent kernel their time is part of what follows it.
    sums = 0 if kernels.persistent else case.sum_ticks * division.most
    return Pipeline(
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
    workload, n = case.scenario.workload, case.scenario.num_ranks
    if case.moved is None or not workload.pattern.overlaps:
        return 1.0
    if workload.pattern is Pattern.GEMM_AR:
        return 0.0
    rows = [tile_rows(workload, n, owner) for owner in range(n)]
    return rows[0] / sum(rows)


def _passed_us(case: BoundCase) -> Callable[[Floats], Floats]:
    """Return the time in which the links of a rank pass a share of the data that it needs, or that others need of it.

    Every part of a result of an all_reduce takes 2 (n - 1) messages, each with another set of contributions. So the
    messages before the last contribution of a rank are at most in proportion to the operations that all ranks together
    have done. If a switch sums, every part leaves each rank at least once.
    """
    scenario, moved, pattern = case.scenario, case.moved, case.scenario.workload.pattern
    assert moved is not None and scenario.workload.moved is not None, "asked only where something moves"
    ports, sent = ports_of(scenario), case.mode.sent
    if pattern is Pattern.GEMM_AR and not case.mode.can_sum:
        loads = [(moved.total, sum(ports.into))]
    elif pattern is Pattern.GEMM_AR:
        loads = [(scenario.workload.moved.num_bytes, rate) for rate in ports.out]
    else:
        sizes, rates = (moved.into, ports.into) if pattern.consumes else (moved.out, ports.out)
        loads = list(zip(sizes, rates, strict=True))
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
