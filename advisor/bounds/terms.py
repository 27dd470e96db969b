"""The terms of a bound, each for one resource that no schedule can do without."""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from ...compiler.ir import TICKS_PER_US, GemmShape, Pattern, Scenario, cutting_of, tile_rows
from ...simcore.kernels.min_work import least_bytes, least_sm_ticks
from .cases import BoundCase
from .copy_modes import served_ticks
from .kernels import lone_kernel
from .least_traffic import loads_of
from .overlap import kernels_alone, kernels_and_links, ratios_of


class Term(NamedTuple):
    """One reason why no schedule can be faster than ``ticks``."""

    name: str
    ticks: int
    sentence: str


def work(limits: BoundCase) -> Term | None:
    """SM time of kernels, and of copies and sums that take SMs from them."""
    scenario, sms = limits.scenario, limits.scenario.gpu.sms
    kernel = lone_kernel(scenario)
    if kernel is not None:
        ticks = kernel.num_units * kernel.unit_ticks // sms
        return Term("work", ticks, f"the units of the kernel fill all {sms} SMs this long")
    if not limits.kernels.first:
        return None
    what = "GEMM" if scenario.workload.kernel is None else scenario.workload.kernel.operation
    ticks = max(limits.kernels.first, _busy_sms(limits))
    beside = " beside copies and sums" if limits.copy_ticks or limits.sum_ticks else ""
    return Term("work", ticks, f"the tiles of the {what} fill all {sms} SMs this long{beside}")


def _busy_sms(limits: BoundCase) -> int:
    """The time in which the SMs can do all their work.

    Copies that share the SMs of the kernels leave the choice to the moment; others have theirs all the time.
    """
    sms, kernels, copies, division = limits.scenario.gpu.sms, limits.kernels, limits.copy_ticks, limits.division
    start, end, gemm = kernels.start, limits.after_kernels, _tiled_gemm(limits.scenario)
    if gemm is None:
        area, alone = least_sm_ticks(limits.scenario), 0
    else:
        area = int(ratios_of(limits, gemm).least * gemm.m * gemm.n * gemm.k * TICKS_PER_US)
        alone = int(kernels_alone(limits, gemm).least_us() * TICKS_PER_US)
    # Kernels that sum fill what SMs they have; after a persistent kernel they are in ``end``.
    sums = 0 if kernels.persistent else limits.sum_ticks
    ticks = max(alone, start + area // division.most + max(sums, end))
    if division.apart:
        # Copies may begin before kernels do.
        least = max(1, division.fewest)
        ticks = max(ticks, start * least // sms + (area + copies) // sms)
        return max(ticks, copies // max(1, sms - least))
    # Those that queue for the same SMs begin when they are launched.
    shared = min(start, limits.scenario.gpu.launch.kernel_ticks)
    return max(ticks, shared + (area + copies) // sms)


def links(limits: BoundCase) -> Term | None:
    """The busiest link or cut, with what comes before the first byte and after the last."""
    scenario, moved = limits.scenario, limits.moved
    if moved is None:
        return None
    sent, line = limits.way.sent, scenario.gpu.line_bytes
    loads = list(loads_of(scenario, moved))
    times = [served_ticks(int(load.num_bytes * sent), load.bytes_per_s, line) for load in loads]
    busy, load = max(zip(times, loads, strict=True), key=lambda found: found[0])
    ticks = limits.before_sending + limits.lead + busy + limits.landing + limits.after_arrival
    what = f"{float(load.num_bytes * sent) / 2**20:.1f} MiB must pass the links {load.where}"
    return Term("links", ticks, f"{what}, and be used after the last byte of it")


def engines(limits: BoundCase) -> Term | None:
    """All that copies at a rank together, with what comes before and after."""
    moved, way, gpu = limits.moved, limits.way, limits.scenario.gpu
    if moved is None or limits.scenario.system.replay is not None:
        return None
    busy = way.engine_ticks(moved.issued, gpu.line_bytes) // way.engines
    ticks = limits.before_sending + way.setup_ticks + busy + limits.after_arrival
    who = f"{way.engines} SMs" if way.by_sms else f"{way.engines} engines"
    return Term("engines", ticks, f"at most {who} of a rank copy what it has to move")


def hbm(limits: BoundCase) -> Term:
    """Compulsory traffic of the busiest memory: operands and results of kernels, what arrives, and what is sent of it.

    Later reads of what arrived may be served by a cache.
    """
    scenario, gpu, moved = limits.scenario, limits.scenario.gpu, limits.moved
    kernel = lone_kernel(scenario)
    num_bytes = least_bytes(scenario) if kernel is None else kernel.hbm_read_bytes + kernel.hbm_write_bytes
    if moved is not None:
        num_bytes += moved.busiest_bytes + moved.read + limits.sum_bytes
    starts = [limits.kernels.start] if limits.kernels.first else []
    if moved is not None and not limits.before_sending:
        starts.append(limits.way.setup_ticks)
    ticks = min(starts, default=0) + served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    return Term("hbm", ticks, "tensors and transfers pass the memory of a rank once each")


def end_chunk(limits: BoundCase) -> Term | None:
    """Work on remote rows begins when they have arrived, or they depart when they have been computed.

    Kernels that are no GEMM are taken to do all of it after the first arrival, or before the last departure.
    """
    pattern, gemm = limits.scenario.workload.pattern, _tiled_gemm(limits.scenario)
    if limits.moved is None or not pattern.overlaps:
        return None
    ticks = _end_chunk_ticks(limits)
    if gemm is not None:
        ticks = max(ticks, int(kernels_and_links(limits, gemm).least_us() * TICKS_PER_US))
    if pattern.consumes:
        return Term("first_chunk", ticks, "remote rows are computed as they arrive, at the rate of the links")
    what = "partial sums" if pattern.sums else "rows"
    return Term("last_chunk", ticks, f"{what} for others leave as they are computed, at the rate of the links")


def _end_chunk_ticks(limits: BoundCase) -> int:
    """Work on all remote rows after the first arrival, or before the last departure, at the ideal rate."""
    sms, kernels, transfer = limits.scenario.gpu.sms, limits.kernels, limits.lead + limits.landing
    # Units of a persistent kernel are dealt to its groups in whole numbers: one is all that is sure to be remote.
    remote = 0 if kernels.persistent else least_sm_ticks(limits.scenario, _remote_share(limits)) // sms
    if limits.scenario.workload.pattern.consumes:
        return transfer + max(kernels.launched + remote, kernels.after)
    return max(kernels.first, kernels.start + remote) + transfer + limits.after_arrival


def _remote_share(limits: BoundCase) -> Fraction:
    """The share of the kernel that needs what arrives, or that others need."""
    workload, n = limits.scenario.workload, limits.scenario.num_ranks
    if workload.pattern is Pattern.GEMM_AR or not cutting_of(workload).by_rows:
        return Fraction(1)
    rows = [tile_rows(workload, n, owner) for owner in range(n)]
    return Fraction(sum(rows[1:]), sum(rows))


def _tiled_gemm(scenario: Scenario) -> GemmShape | None:
    """The GEMM of a rank; None where there is none, or one column, which is no GEMM."""
    gemm = scenario.workload.gemm
    return None if gemm is None or gemm.n == 1 else gemm


CHEAP: tuple[Callable[[BoundCase], Term | None], ...] = (links, engines, hbm)
TERMS: tuple[Callable[[BoundCase], Term | None], ...] = (work, *CHEAP, end_chunk)
