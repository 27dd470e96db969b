"""A lower bound on the makespan of any schedule of a scenario, whatever its template, chunks, engine or explicit plan.

Each term follows one resource that no schedule can do without: the SMs, the links, the memory, and the first (or last)
chunk between the kernels and the fabric. The bound is the largest term, computed apart for schedules that copy by DMA
and for those that copy by SMs, the smaller of the two. It holds at every granularity of the simulator: services there
are rounded to the tick for each unit, and the terms take the lowest that this can make of a byte.

With other rules the terms would not hold; ``ASSUMPTIONS`` are part of the answer.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from ..compiler.scenario import TICKS_PER_SECOND, FabricKind, GemmShape, Pattern, Scenario
from ..compiler.schedule import EngineKind
from ..compiler.topology import Edge, topology_of
from ..simcore.kernels.gemm import hbm_bytes, min_sm_ticks

ASSUMPTIONS = (
    "kernels take at least the time per tile of the fitted GEMM form, whatever their shape",
    "every byte is moved by itself: no multicast, no reduction in the network, no compression",
    "a partial sum goes straight to the rank that owns it; gathered rows may be forwarded",
    "a kernel that uses what arrived starts with a launch after the arrival",
    "ranks have equal shares, and one engine kind copies for the whole schedule",
)


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
    """The bound for schedules that copy by engines of ``kinds``.

    Raises
    ------
    ValueError
        If ``kinds`` is empty.
    """
    if not kinds:
        raise ValueError("a bound needs at least one kind of engine")
    return min((_bound_of(_Limits(scenario, kind)) for kind in kinds), key=lambda bound: bound.ticks)


def served_ticks(num_bytes: int, bytes_per_s: int, line_bytes: int) -> int:
    """The least time in which a server passes ``num_bytes``, at any granularity.

    A unit is a multiple of a line and its service is rounded to the nearest tick, so half a tick a line may be missing.
    """
    per_byte = Fraction(TICKS_PER_SECOND, bytes_per_s) - Fraction(1, 2 * line_bytes)
    return max(0, int(num_bytes * per_byte))


def _bound_of(limits: "_Limits") -> Bound:
    terms = tuple(term for term in (make(limits) for make in TERMS) if term is not None)
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(largest.ticks, largest.name, terms)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the terms are made of, for one kind of engine. Times in ticks."""

    scenario: Scenario
    kind: EngineKind

    @property
    def shard_bytes(self) -> int:
        """A rank's part of the moved tensor, 0 if nothing has to move."""
        moved, n = self.scenario.workload.moved, self.scenario.num_ranks
        return 0 if moved is None or n == 1 else moved.num_bytes // n

    @property
    def lead(self) -> int:
        """From the start of a transfer to its first byte at the link: setup, and the way out of memory."""
        gpu = self.scenario.gpu
        if self.kind is EngineKind.DMA:
            return gpu.dma.setup_ticks + gpu.hbm.latency_ticks
        return gpu.sm_copy.setup_ticks + gpu.hbm.latency_ticks + gpu.l2.latency_ticks

    @property
    def landing(self) -> int:
        """From a byte's end of service at the last link to the end of its transfer."""
        fabric = self.scenario.system.fabric
        if not fabric.kind.symmetric:
            return min(edge.latency_ticks for edge in self.edges_into_ranks) + self.scenario.gpu.hbm.latency_ticks
        switched = fabric.switch.latency_ticks if fabric.switch is not None else 0
        return fabric.link.latency_ticks + switched + self.scenario.gpu.hbm.latency_ticks

    @property
    def edges_into_ranks(self) -> tuple[Edge, ...]:
        """The last edges of all ways, on a fabric that is not the same from every rank."""
        n = self.scenario.num_ranks
        return tuple(edge for edge in topology_of(self.scenario.system.fabric, n).edges if edge.target < n)

    @property
    def first_tile(self) -> int:
        """From the launch of a kernel to the end of its first tile: one step of the inner dimension at least."""
        model = self.scenario.gpu.gemm
        return model.start_ticks + model.k_step_ticks + model.tile_ticks

    @property
    def before_sending(self) -> int:
        """What must happen before the first transfer: GEMM+RS computes a tile."""
        return self.first_tile if self.scenario.workload.pattern is Pattern.GEMM_RS else 0

    @property
    def after_arrival(self) -> int:
        """What must follow the last transfer: AG+GEMM computes with it, partial sums are reduced."""
        gpu, pattern = self.scenario.gpu, self.scenario.workload.pattern
        if pattern is Pattern.AG_GEMM:
            return gpu.launch.event_ticks + self.first_tile
        if not pattern.reduces:
            return 0
        kernel = gpu.launch.kernel_ticks + gpu.launch.event_ticks
        # SMs may add as they store, which passes the memory once more.
        return kernel if self.kind is EngineKind.DMA else min(kernel, gpu.hbm.latency_ticks)

    def sm_ticks(self, shape: GemmShape) -> int:
        """Time of ``shape`` spread over all SMs without loss."""
        return min_sm_ticks(self.scenario.gpu, shape) // self.scenario.gpu.sms


def _work(limits: _Limits) -> Term | None:
    gemm = limits.scenario.workload.gemm
    if gemm is None:
        return None
    gpu = limits.scenario.gpu
    ticks = max(limits.first_tile, gpu.gemm.start_ticks + limits.sm_ticks(gemm))
    return Term("work", ticks, f"the tiles of the GEMM fill all {gpu.sms} SMs this long")


def _links(limits: _Limits) -> Term | None:
    if not limits.shard_bytes:
        return None
    busy, what = _busiest_link(limits)
    ticks = limits.before_sending + limits.lead + busy + limits.landing + limits.after_arrival
    return Term("links", ticks, f"{what} must pass, and be used after the last byte of it")


def _busiest_link(limits: _Limits) -> tuple[int, str]:
    """Time of service that some link cannot avoid, and what it passes.

    Bytes into a rank cross the links into it, whatever way they come; the busiest passes at least the mean. Partial
    sums take the shortest way around a ring, so there each link also passes what is on its way to others.
    """
    scenario, fabric, n = limits.scenario, limits.scenario.system.fabric, limits.scenario.num_ranks
    rate, line, shard = fabric.link.achieved_bytes_per_s, scenario.gpu.line_bytes, limits.shard_bytes
    if fabric.kind is FabricKind.FULL_MESH:
        return served_ticks(shard, rate, line), "one shard over each of the links into a rank"
    if fabric.kind is FabricKind.SWITCH:
        assert fabric.switch is not None, "the compiler gives every switch fabric its switch"
        port = min(rate, fabric.switch.bytes_per_s)
        return served_ticks((n - 1) * shard, port, line), f"{n - 1} shards through the switch port of a rank"
    if not fabric.kind.symmetric:
        into = Counter[int]()
        for edge in limits.edges_into_ranks:
            into[edge.target] += edge.bytes_per_s
        slowest = min(into.values())  # all cross the cut around the rank whose links are slowest together
        return served_ticks((n - 1) * shard, slowest, line), f"{n - 1} shards over the links into a rank"
    right = n // 2 if fabric.both_ways else n - 1
    if scenario.workload.pattern.reduces:
        loads = (right * (right + 1) // 2, (n - 1 - right) * (n - right) // 2)
        return served_ticks(
            max(loads) * shard, rate, line
        ), f"{max(loads)} shards over each link one way around the ring"
    links = 2 if fabric.both_ways and n > 2 else 1
    return served_ticks((n - 1) * shard, links * rate, line), f"{n - 1} shards over the {links} links into a rank"


def _hbm(limits: _Limits) -> Term:
    """Compulsory traffic of the busiest memory, at least the mean over ranks."""
    scenario, n, shard = limits.scenario, limits.scenario.num_ranks, limits.shard_bytes
    gemm, pattern, gpu = scenario.workload.gemm, scenario.workload.pattern, scenario.gpu
    num_bytes = 0 if gemm is None else sum(hbm_bytes(gemm, accumulate=False))
    num_bytes += 2 * (n - 1) * shard
    if pattern.reduces:
        # A kernel reads n parts and writes their sum; SMs that add as they store read what is there.
        num_bytes += (n + 1 if limits.kind is EngineKind.DMA else n - 1) * shard
    starts = [gpu.gemm.start_ticks] if gemm is not None else []
    if shard and pattern is not Pattern.GEMM_RS:
        starts.append(gpu.dma.setup_ticks if limits.kind is EngineKind.DMA else gpu.sm_copy.setup_ticks)
    ticks = min(starts, default=0) + served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    return Term("hbm", ticks, "tensors and transfers pass the memory of a rank once each")


def _end_chunk(limits: _Limits) -> Term | None:
    """Work on remote rows begins after the first arrival, or ends before the last departure."""
    scenario, n = limits.scenario, limits.scenario.num_ranks
    gemm, pattern = scenario.workload.gemm, scenario.workload.pattern
    if gemm is None or not limits.shard_bytes:
        return None
    remote = limits.sm_ticks(replace(gemm, m=gemm.m // n * (n - 1)))
    start = scenario.gpu.gemm.start_ticks
    way = limits.lead + limits.landing
    if pattern is Pattern.AG_GEMM:
        ticks = way + scenario.gpu.launch.event_ticks + start + remote
        return Term("first_chunk", ticks, "remote rows are computed after the first of them has arrived")
    ticks = start + remote + way + limits.after_arrival
    return Term("last_chunk", ticks, "the last partial sums for others leave after they are computed")


TERMS: tuple[Callable[[_Limits], Term | None], ...] = (_work, _links, _hbm, _end_chunk)
