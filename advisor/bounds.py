"""A lower bound on the makespan of any schedule: of any template, algorithm, engine and tactics, or written out.

Each term follows one resource that no schedule can do without: the SMs, the links, the memory, and the first (or last)
chunk between the kernels and the fabric. The bound is the largest term, computed apart for each way to copy (by DMA, by
SMs in each protocol), the smallest of these. It holds at every granularity of the simulator: services there are rounded
to the tick for each unit, and the terms take the lowest that this can make of a byte.

With other rules the terms would not hold; ``ASSUMPTIONS`` are part of the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from ..compiler.plan import build_schedule, default_engine
from ..compiler.scenario import TICKS_PER_SECOND, FabricKind, GemmShape, Pattern, Scenario
from ..compiler.schedule import Choice, EngineKind, Protocol, TileGroup
from ..compiler.tactics import why_no_reach
from ..compiler.topology import topology_of
from ..simcore.kernels.gemm import hbm_bytes, min_sm_ticks
from ..simcore.kernels.pick import compute_work
from ..simcore.kernels.work import KernelWork
from ..simcore.protocols import LL128_BYTES, LL128_PAYLOAD
from .least_traffic import LeastTraffic, least_traffic, ports_of, ring_bytes

ASSUMPTIONS = (
    "kernels take at least the time per tile of the fitted GEMM form, whatever their shape",
    "every byte is moved by itself, but where the switch copies or sums; no compression",
    "a kernel that uses what arrived has a tile to compute after the last of it",
    "ranks have equal shares, none is faster than its profile says, and one engine kind copies for the whole schedule",
)

# Bytes on the links for each byte of payload.
_SENT = {Protocol.SIMPLE: Fraction(1), Protocol.LL: Fraction(2), Protocol.LL128: Fraction(LL128_BYTES, LL128_PAYLOAD)}


class Term(NamedTuple):
    """One reason why no schedule can be faster than ``ticks``."""

    name: str
    ticks: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule takes less than ``ticks``; ``binding`` names the term that says so."""

    ticks: int
    binding: str
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def lower_bound(scenario: Scenario, kinds: tuple[EngineKind, ...] = tuple(EngineKind)) -> Bound:
    """The bound for schedules that copy by engines of ``kinds``; at least one tick.

    Raises
    ------
    ValueError
        If ``kinds`` is empty.
    """
    if not kinds:
        raise ValueError("a bound needs at least one kind of engine")
    ways = [way for kind in kinds for way in _ways(scenario, kind)]
    moved = least_traffic(scenario)
    return min((_bound_of(_Limits(scenario, way, moved)) for way in ways), key=lambda bound: bound.ticks)


def served_ticks(num_bytes: int, bytes_per_s: int, line_bytes: int) -> int:
    """The least time in which a server passes ``num_bytes``, at any granularity.

    A unit is a multiple of a line and its service is rounded to the nearest tick, so half a tick a line may be missing.
    """
    per_byte = Fraction(TICKS_PER_SECOND, bytes_per_s) - Fraction(1, 2 * line_bytes)
    return max(0, int(num_bytes * per_byte))


@dataclass(frozen=True, slots=True)
class _Way:
    """How a schedule copies: what a copy costs before its first byte, and bytes sent for each byte of payload."""

    kind: EngineKind
    setup_ticks: int
    sent: Fraction = Fraction(1)


def _ways(scenario: Scenario, kind: EngineKind) -> tuple[_Way, ...]:
    """All ways with engines of ``kind``. What the switch copies or sums has no flags between its bytes."""
    gpu, system = scenario.gpu, scenario.system
    if kind is EngineKind.DMA:
        return (_Way(kind, min(gpu.dma.setup_ticks, gpu.dma.prelaunch_ticks)),)
    flagged = [each for each in system.fabric.link.protocols if each is not Protocol.SIMPLE]
    if flagged and (why_no_reach(system, sums=True) is None or why_no_reach(system, sums=False) is None):
        return (_Way(kind, 0),)
    return (_Way(kind, gpu.sm_copy.setup_ticks), *(_Way(kind, 0, _SENT[each]) for each in flagged))


def _bound_of(limits: "_Limits") -> Bound:
    terms = tuple(term for term in (make(limits) for make in TERMS) if term is not None)
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the terms are made of, for one way to copy. Times in ticks."""

    scenario: Scenario
    way: _Way
    moved: LeastTraffic | None

    @property
    def lead(self) -> int:
        """From the start of a transfer to its first byte at the link: setup, and the way out of memory."""
        gpu = self.scenario.gpu
        l2 = gpu.l2.latency_ticks if self.way.kind is EngineKind.SM else 0
        return self.way.setup_ticks + gpu.hbm.latency_ticks + l2

    @property
    def landing(self) -> int:
        """From a byte's end of service at the last link to the end of its transfer."""
        fabric, n, hbm = self.scenario.system.fabric, self.scenario.num_ranks, self.scenario.gpu.hbm.latency_ticks
        if not fabric.kind.symmetric:
            return hbm + min(edge.latency_ticks for edge in topology_of(fabric, n).edges if edge.target < n)
        switched = fabric.switch.latency_ticks if fabric.switch is not None else 0
        return hbm + fabric.link.latency_ticks + switched

    @property
    def first_tile(self) -> int:
        """From the launch of a kernel to the end of its first tile: one step of the inner dimension at least.

        0 for a GEMM of one column, which is a matrix times a vector and has no tiles.
        """
        gemm, model = self.scenario.workload.gemm, self.scenario.gpu.gemm
        return 0 if gemm is None or gemm.n == 1 else model.start_ticks + model.k_step_ticks + model.tile_ticks

    @property
    def unit(self) -> int:
        """A work unit of a persistent kernel, which was launched before.

        Where the last wave is not full a unit is shorter than a tile, by less than half.
        """
        return max(0, self.first_tile - self.scenario.gpu.gemm.start_ticks) // 2

    @property
    def before_sending(self) -> int:
        """What must happen before the first transfer: GEMM+RS and GEMM+AR compute a tile."""
        return self.unit if self.scenario.workload.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR) else 0

    @property
    def after_arrival(self) -> int:
        """What must follow the last transfer: a tile of what is gathered; partial sums are added to what is there."""
        pattern, system = self.scenario.workload.pattern, self.scenario.system
        if pattern in (Pattern.AG_GEMM, Pattern.A2A_GEMM):
            return self.unit
        summed = pattern.reduces and why_no_reach(system, sums=True) is not None
        return self.scenario.gpu.hbm.latency_ticks if summed else 0

    def sm_ticks(self, shape: GemmShape) -> int:
        """Time of ``shape`` spread over all SMs without loss; not known for a matrix times a vector."""
        return 0 if shape.n == 1 else min_sm_ticks(self.scenario.gpu, shape) // self.scenario.gpu.sms


def _work(limits: _Limits) -> Term | None:
    gpu, gemm = limits.scenario.gpu, limits.scenario.workload.gemm
    kernel = _lone_kernel(limits.scenario)
    if kernel is not None:
        ticks = kernel.num_units * kernel.unit_ticks // gpu.sms
        return Term("work", ticks, f"the units of the kernel fill all {gpu.sms} SMs this long")
    if gemm is None or gemm.n == 1:
        return None
    ticks = max(limits.first_tile, gpu.gemm.start_ticks + limits.sm_ticks(gemm))
    return Term("work", ticks, f"the tiles of the GEMM fill all {gpu.sms} SMs this long")


def _lone_kernel(scenario: Scenario) -> KernelWork | None:
    """The kernel of a workload that is one kernel and no GEMM."""
    if scenario.workload.kernel is None:
        return None
    schedule = build_schedule(scenario, Choice("serial", scenario.num_ranks, default_engine(scenario)))
    (group,) = (step for step in schedule.steps if isinstance(step, TileGroup))
    return compute_work(scenario, group, scenario.gpu.sms)


def _links(limits: _Limits) -> Term | None:
    if limits.moved is None:
        return None
    busy, what = _busiest_link(limits, limits.moved)
    ticks = limits.before_sending + limits.lead + busy + limits.landing + limits.after_arrival
    return Term("links", ticks, f"{what}, and be used after the last byte of it")


def _busiest_link(limits: _Limits, moved: LeastTraffic) -> tuple[int, str]:
    """Time of service that some link cannot avoid, and what it passes.

    Bytes into a rank cross the links into it, whatever way they come, and the busiest of them passes at least the mean.
    """
    scenario, ports = limits.scenario, ports_of(limits.scenario)
    loads = [(num_bytes, rate, "into") for num_bytes, rate in zip(moved.into, ports.into, strict=True)]
    loads += [(num_bytes, rate, "out of") for num_bytes, rate in zip(moved.out, ports.out, strict=True)]
    loads.append((moved.total, sum(ports.into), "into all ranks together"))
    if scenario.system.fabric.kind is FabricKind.RING and scenario.workload.pattern.exchanges:
        loads.append((ring_bytes(scenario), ports.out[0], "around the ring from"))
    sent, line = limits.way.sent, scenario.gpu.line_bytes
    ticks, (num_bytes, _, where) = max(
        ((served_ticks(int(each[0] * sent), each[1], line), each) for each in loads if each[1]), key=lambda one: one[0]
    )
    whose = "" if where.endswith("together") else " a rank"
    return ticks, f"{num_bytes / 2**20:.1f} MiB must pass the links {where}{whose}"


def _hbm(limits: _Limits) -> Term:
    """Compulsory traffic of the busiest memory: operands and results of kernels, what arrives, and what is sent of it.

    Later reads of what arrived may be served by a cache.
    """
    scenario, gpu, moved = limits.scenario, limits.scenario.gpu, limits.moved
    gemm, kernel = scenario.workload.gemm, _lone_kernel(scenario)
    num_bytes = 0 if gemm is None else sum(hbm_bytes(gemm, accumulate=False))
    if kernel is not None:
        num_bytes += kernel.hbm_read_bytes + kernel.hbm_write_bytes
    if moved is not None:
        num_bytes += moved.busiest_bytes + moved.read
    starts = [gpu.gemm.start_ticks] if limits.first_tile else []
    if moved is not None and not limits.before_sending:
        starts.append(limits.way.setup_ticks)
    ticks = min(starts, default=0) + served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    return Term("hbm", ticks, "tensors and transfers pass the memory of a rank once each")


def _end_chunk(limits: _Limits) -> Term | None:
    """Work on remote rows begins after the first arrival, or ends before the last departure.

    Of an all_reduce every rank needs a part of all that this one computes.
    """
    scenario, n, pattern = limits.scenario, limits.scenario.num_ranks, limits.scenario.workload.pattern
    gemm = scenario.workload.gemm
    if gemm is None or limits.moved is None or not pattern.overlaps:
        return None
    own = scenario.workload.split[0] if scenario.workload.split else gemm.m // n
    remote = limits.sm_ticks(replace(gemm, m=gemm.m if pattern is Pattern.GEMM_AR else max(1, gemm.m - own)))
    # Units of a persistent kernel are dealt to its groups in whole numbers.
    remote = remote * (scenario.gpu.sms - 4) // scenario.gpu.sms
    ticks = limits.lead + limits.landing + remote
    if not pattern.sums:
        return Term("first_chunk", ticks, "remote rows are computed after the first of them has arrived")
    ticks += limits.after_arrival
    return Term("last_chunk", ticks, "the last partial sums for others leave after they are computed")


TERMS: tuple[Callable[[_Limits], Term | None], ...] = (_work, _links, _hbm, _end_chunk)
