"""The terms of a bound, each for one resource that every schedule needs."""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from ...compiler.ir import TICKS_PER_US, GemmShape, Pattern, Scenario, cutting_of, tile_rows
from ...compiler.text.quantities import bytes_text
from ...simcore.kernels.dispatch import least_bytes, least_sm_ticks
from .cases import BoundCase
from .copy_modes import served_ticks
from .kernels import lone_kernel
from .link_loads import loads_of
from .overlap import kernels_alone, kernels_and_links, ratios_of


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
    what = "GEMM" if scenario.workload.kernel is None else scenario.workload.kernel.operation
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
    """Bound by the busiest link or cut, with the time before the first byte and after the last."""
    scenario, moved = case.scenario, case.moved
    if moved is None:
        return None
    sent, line = case.mode.sent, scenario.gpu.line_bytes
    loads = list(loads_of(scenario, moved))
    times = [served_ticks(int(load.num_bytes * sent), load.bytes_per_s, line) for load in loads]
    busy, load = max(zip(times, loads, strict=True), key=lambda timed: timed[0])
    ticks = case.before_sending + case.first_byte_latency + busy + case.last_byte_latency + case.after_arrival
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
    scenario, moved, workload = case.scenario, case.moved, case.scenario.workload
    num_bytes, pattern, n = least_bytes(scenario), workload.pattern, scenario.num_ranks
    if moved is None or workload.moved is None:
        return num_bytes
    rank = moved.rank or 0
    arriving, leaving, whole = moved.into[rank], moved.out[rank], workload.moved.num_bytes
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
    pattern, gemm = case.scenario.workload.pattern, _tiled_gemm(case.scenario)
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
    if case.scenario.workload.pattern.consumes:
        return transfer + max(kernels.launched + remote, kernels.after)
    return max(kernels.first, kernels.start + remote) + transfer + case.after_arrival


def _remote_share(case: BoundCase) -> Fraction:
    """Return the share of the kernel that needs arriving data, or whose results others need."""
    workload, n = case.scenario.workload, case.scenario.num_ranks
    if workload.pattern is Pattern.GEMM_AR or not cutting_of(workload).by_rows:
        return Fraction(1)
    rows = [tile_rows(workload, n, owner) for owner in range(n)]
    return Fraction(sum(rows[1:]), sum(rows))


def _tiled_gemm(scenario: Scenario) -> GemmShape | None:
    """Return the GEMM of a rank; None if there is none, or if it has one column and is a matrix times a vector."""
    gemm = scenario.workload.gemm
    return None if gemm is None or gemm.n == 1 else gemm


# Terms that need no search over kernels.
CHEAP: tuple[Callable[[BoundCase], Term | None], ...] = (links, engines, hbm)
TERMS: tuple[Callable[[BoundCase], Term | None], ...] = (work, *CHEAP, end_chunk)
