"""The terms of a bound, each for one resource that no schedule can do without."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ..compiler.extents import cutting_of, tile_rows
from ..compiler.scenario import Pattern
from ..simcore.kernels.least import least_bytes, least_sm_ticks
from .bounds_kernels import lone_kernel
from .bounds_limits import Limits
from .bounds_ways import served_ticks
from .least_traffic import loads_of


class Term(NamedTuple):
    """One reason why no schedule can be faster than ``ticks``."""

    name: str
    ticks: int
    sentence: str


def work(limits: Limits) -> Term | None:
    """SM time of kernels, and of copies and sums that take SMs from them."""
    scenario, sms = limits.scenario, limits.scenario.gpu.sms
    kernel = lone_kernel(scenario)
    if kernel is not None:
        ticks = kernel.num_units * kernel.unit_ticks // sms
        return Term("work", ticks, f"the units of the kernel fill all {sms} SMs this long")
    if not limits.kernels.first:
        return None
    what = "GEMM" if scenario.workload.kernel is None else scenario.workload.kernel.operation
    ticks = max(limits.kernels.first, min(_busy_sms(limits)))
    beside = " beside copies and sums" if limits.copy_ticks or limits.sum_ticks else ""
    return Term("work", ticks, f"the tiles of the {what} fill all {sms} SMs this long{beside}")


def _busy_sms(limits: Limits) -> Iterator[int]:
    """The time in which the SMs can do all their work, for every number of them that may copy.

    Copies that share the SMs of the kernels leave the choice to the moment; others have theirs all the time.
    """
    sms, kernels, copies = limits.scenario.gpu.sms, limits.kernels, limits.copy_ticks
    start, end = kernels.start, limits.after_kernels
    # Kernels that sum fill what SMs they have; after a persistent kernel they are in ``end``.
    sums = 0 if kernels.persistent else limits.sum_ticks
    area, ideal, few = kernels.sm_ticks(), least_sm_ticks(limits.scenario), kernels.few
    # Copies may begin before kernels do: those that queue for the same SMs when they are launched, others at once.
    shared = min(start, limits.scenario.gpu.launch.kernel_ticks)
    yield max(start + area // sms + max(sums, end), shared + (area + copies) // sms)
    if not limits.way.by_sms:
        return
    if few:
        apart = start * (sms - few) // sms + (area + copies) // sms
        yield max(start + area // (sms - 1) + max(sums, end), apart, copies // few)
    yield max(start + ideal // max(1, sms - few - 1) + max(sums, end), start // 2 + (ideal + copies) // sms)


def links(limits: Limits) -> Term | None:
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


def engines(limits: Limits) -> Term | None:
    """All that copies at a rank together, with what comes before and after."""
    moved, way, gpu = limits.moved, limits.way, limits.scenario.gpu
    if moved is None or limits.scenario.system.replay is not None:
        return None
    busy = way.engine_ticks(moved.issued, gpu.line_bytes) // way.engines
    ticks = limits.before_sending + way.setup_ticks + busy + limits.after_arrival
    who = f"{way.engines} SMs" if way.by_sms else f"{way.engines} engines"
    return Term("engines", ticks, f"at most {who} of a rank copy what it has to move")


def hbm(limits: Limits) -> Term:
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


def end_chunk(limits: Limits) -> Term | None:
    """Work on remote rows begins after the first arrival, or ends before the last departure.

    Of an all_reduce every rank needs a part of all that this one computes. Units of a persistent kernel are dealt to
    its groups in whole numbers, so that one of them is all that is sure to be on remote rows.
    """
    sms, pattern = limits.scenario.gpu.sms, limits.scenario.workload.pattern
    if limits.moved is None or not pattern.overlaps:
        return None
    kernels, transfer = limits.kernels, limits.lead + limits.landing
    remote = 0 if kernels.persistent else kernels.sm_ticks(_remote_share(limits)) // sms
    if pattern.consumes:
        ticks = transfer + max(kernels.launched + remote, kernels.after)
        return Term("first_chunk", ticks, "remote rows are computed after the first of them has arrived")
    ticks = max(kernels.first, kernels.start + remote) + transfer + limits.after_arrival
    what = "partial sums" if pattern.sums else "rows"
    return Term("last_chunk", ticks, f"the last {what} for others leave after they are computed")


def _remote_share(limits: Limits) -> Fraction:
    """The share of the kernel that needs what arrives, or that others need."""
    workload, n = limits.scenario.workload, limits.scenario.num_ranks
    if workload.pattern is Pattern.GEMM_AR or not cutting_of(workload).by_rows:
        return Fraction(1)
    rows = [tile_rows(workload, n, owner) for owner in range(n)]
    return Fraction(sum(rows[1:]), sum(rows))


TERMS: tuple[Callable[[Limits], Term | None], ...] = (work, links, engines, hbm, end_chunk)
