"""Copy modes that the bounds distinguish: by DMA engines, by SMs in each protocol, or stores and pulls of tiles.

SMs that copy are either shared with the kernels or reserved for copies; a schedule says how many there are.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from ...compiler.ir import TICKS_PER_SECOND, CopyProtocol, EngineKind, EngineMode, Gpu, OpCase, Pattern
from ...compiler.planning.knobs.engine import max_copy_sms
from ...compiler.planning.staging import reject_reach
from ...simcore.kernels.working_set import hit_share
from ...simcore.lower.machine import LL128_BYTES, LL128_PAYLOAD
from .kernels import MAX_ROUNDS, KernelLimits
from .link_loads import LeastTraffic

# Reserved SMs are bounded in ranges that end at 1 / s of all SMs, for each s.
RANGE_DIVISORS = (16, 10, 7, 5, 4, 3)
# Bytes on the links for each byte of payload.
_SENT = {
    CopyProtocol.SIMPLE: Fraction(1),
    CopyProtocol.LL: Fraction(2),
    CopyProtocol.LL128: Fraction(LL128_BYTES, LL128_PAYLOAD),
}


@dataclass(frozen=True, slots=True)
class Division:
    """Kernels have ``fewest`` to ``most`` SMs; the SMs that copy are ``apart`` from these, or shared with kernels."""

    fewest: int
    most: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class CopyMode:
    """How a schedule copies: the setup of a copy, and the bytes sent for each byte of payload.

    A rank has at most ``engines`` of ``bytes_per_s`` each. ``can_sum`` is whether they can ask a switch for sums. Tiles
    that store what they have computed (``from_tiles``) read nothing for it, take no SM time, and may add what arrives;
    those that pull what they compute take none either.
    """

    kind: EngineKind
    setup_ticks: int
    engines: int
    bytes_per_s: int
    sent: Fraction = Fraction(1)
    can_sum: bool = False
    from_tiles: bool = False

    @property
    def by_sms(self) -> bool:
        """Whether SMs copy from memory; an SM that copies does not compute."""
        return self.kind is EngineKind.SM and not self.from_tiles

    @property
    def engines_text(self) -> str:
        """What the engines are."""
        return f"{self.engines} {'SMs' if self.kind is EngineKind.SM else 'engines'}"

    def engine_ticks(self, num_bytes: int, line_bytes: int) -> int:
        """Least time in which one engine copies ``num_bytes`` of payload."""
        return served_ticks(int(num_bytes * self.sent), self.bytes_per_s, line_bytes)


def copy_modes_of(scenario: OpCase, kind: EngineKind) -> tuple[CopyMode, ...]:
    """Return all modes with engines of ``kind``. Data that a switch copies or sums has no flags between its bytes."""
    gpu, system = scenario.gpu, scenario.system
    if kind is EngineKind.DMA:
        dma = gpu.dma
        by_dma = CopyMode(kind, min(dma.setup_ticks, dma.prelaunch_ticks), max(1, dma.engines), dma.bytes_per_s)
        return (by_dma, *_with_ports(scenario, by_dma))
    most, rate = max(1, max_copy_sms(gpu)), gpu.sm_copy.bytes_per_s
    sums, shape = reject_reach(system, sums=True) is None, scenario.shape
    tiles: tuple[CopyMode, ...] = ()
    if (shape.pattern.produces or shape.pattern.consumes) and shape.may_persist:
        tiles = (CopyMode(kind, 0, gpu.sms, rate, from_tiles=True),)
    flagged = [protocol for protocol in system.fabric.link.protocols if protocol is not CopyProtocol.SIMPLE]
    if flagged and (sums or reject_reach(system, sums=False) is None):
        return (CopyMode(kind, 0, most, rate, can_sum=sums), *tiles)
    return (
        CopyMode(kind, gpu.sm_copy.setup_ticks, most, rate, can_sum=sums),
        *(CopyMode(kind, 0, most, rate, _SENT[protocol]) for protocol in flagged),
        *tiles,
    )


def _with_ports(scenario: OpCase, by_dma: CopyMode) -> tuple[CopyMode, ...]:
    """SMs and network cards side by side, where a schedule asks for them: as fast as either, and no SM is needed."""
    requested_engines = (*scenario.explore.values("engine"), *(each.body.engine for each in scenario.schedules))
    if all(engine.mode is not EngineMode.PORTS for engine in requested_engines):
        return ()
    sms, rate = max_copy_sms(scenario.gpu), scenario.gpu.sm_copy.bytes_per_s
    return (replace(by_dma, setup_ticks=0, engines=by_dma.engines + sms, bytes_per_s=max(by_dma.bytes_per_s, rate)),)


def divisions_of(gpu: Gpu, mode: CopyMode) -> tuple[Division, ...]:
    """Return all divisions of the SMs between kernels and copies, in ranges."""
    whole, sms = Division(gpu.sms, gpu.sms), gpu.sms
    if not mode.by_sms:
        return (whole,)
    counts = sorted(
        {1, *(sms // share + 1 for share in RANGE_DIVISORS if 0 < sms // share < mode.engines), mode.engines + 1}
    )
    ranges = ((max(1, sms - after + 1), max(1, sms - first)) for first, after in pairwise(counts))
    return whole, *(Division(fewest, most, apart=True) for fewest, most in ranges)


def served_ticks(num_bytes: int, bytes_per_s: int, line_bytes: int) -> int:
    """Return the least time in which a server passes ``num_bytes``, at any granularity.

    A unit is a multiple of a line, and its service is rounded to the nearest tick: up to half a tick a line is lost.
    """
    ticks, num_served = _per_byte(bytes_per_s, line_bytes)
    return max(0, num_bytes * ticks // num_served)


@lru_cache
def _per_byte(bytes_per_s: int, line_bytes: int) -> tuple[int, int]:
    """Return the numerator and the denominator of the ticks of a byte."""
    return (Fraction(TICKS_PER_SECOND, bytes_per_s) - Fraction(1, 2 * line_bytes)).as_integer_ratio()


# Lines for each SM that a block to sum must have to occupy all SMs; pieces of smaller blocks hold fewer SMs.
MIN_SUM_LINES_PER_SM = 128


@dataclass(frozen=True, slots=True)
class BoundCase:
    """One copy mode, one class of kernels and one division of the SMs between both; times in ticks.

    ``moved`` is the least traffic in this mode, ``rounds`` the number of refinements in the search over kernels. What
    neighbours hand over need not be ``in_memory``.
    """

    scenario: OpCase
    mode: CopyMode
    kernels: KernelLimits
    moved: LeastTraffic | None
    division: Division
    rounds: int = MAX_ROUNDS
    in_memory: bool = True

    @property
    def first_byte_latency(self) -> int:
        """From the start of a transfer to its first byte at the link: setup, and the latency of memory.

        0 for the writes of a replayed profile, which are under way, and for what tiles store.
        """
        gpu = self.scenario.gpu
        produces = self.scenario.shape.pattern.produces
        if self.scenario.system.replay is not None or (self.mode.from_tiles and produces):
            return 0
        l2 = gpu.l2.latency_ticks if self.mode.kind is EngineKind.SM else 0
        return self.mode.setup_ticks + gpu.hbm.latency_ticks + l2

    @property
    def last_byte_latency(self) -> int:
        """From the end of a byte's service at the last link to the end of its transfer."""
        n, network = self.scenario.num_ranks, self.scenario.network
        last_links = (edge.latency_ticks for edge in network.own if edge.target < n)
        return self.scenario.gpu.hbm.latency_ticks + min(last_links, default=0)

    @property
    def sums_by_kernels(self) -> bool:
        """Whether only kernels can sum: the switch cannot, nor can copies into data that a kernel still writes."""
        pattern = self.scenario.shape.pattern
        if not pattern.sums or self.mode.can_sum or self.mode.from_tiles or self.moved is None:
            return False
        return not self.mode.by_sms or pattern is Pattern.GEMM_RS

    @property
    def before_sending(self) -> int:
        """Time before the first transfer if a kernel produces the data to send."""
        return self.kernels.first if self.scenario.shape.pattern.produces else 0

    @property
    def after_arrival(self) -> int:
        """Time after the last transfer: a kernel on the gathered data, or the sum of arrived partial sums.

        The last transfer of an all_reduce may bring a result.
        """
        pattern = self.scenario.shape.pattern
        if pattern.consumes:
            return self.kernels.after
        if not pattern.reduces or self.mode.can_sum or self.mode.from_tiles:
            return 0
        return self.kernels.sum_after if self.sums_by_kernels else self.scenario.gpu.hbm.latency_ticks

    @property
    def after_kernels(self) -> int:
        """Time after the last unit of kernels whose results are summed: the sum here, or a copy and the sum elsewhere.

        The sum of an all_reduce is then sent to others. Kernels that sum begin when a persistent one has ended.
        """
        pattern, copy = self.scenario.shape.pattern, self.first_byte_latency + self.last_byte_latency
        if not (pattern.sums and pattern.produces) or self.moved is None:
            return 0
        everywhere = pattern is Pattern.GEMM_AR
        if self.mode.from_tiles:  # the last tile may be one that its own rank wants
            return copy if everywhere else 0
        here, there = self.kernels.sum_launch, copy + self.kernels.sum_after
        if not self.sums_by_kernels:
            return copy if everywhere else min(here, copy)
        if self.kernels.persistent:
            return here + max(self.sum_ticks, copy + self._results_ticks if everywhere else 0)
        return min(here + copy if everywhere else here, there)

    @property
    def _results_ticks(self) -> int:
        """Time in which the links bring the sums of an all_reduce to all ranks."""
        assert self.moved is not None, "asked only where something moves"
        n = self.scenario.num_ranks
        num_bytes = int(n * self.moved.read * (n - 1) * self.mode.sent)
        return served_ticks(num_bytes, sum(self.scenario.network.bytes_per_s_into), self.scenario.gpu.line_bytes)

    @property
    def sum_bytes(self) -> int:
        """Memory traffic of the kernels that sum at a rank: each part that arrived, its own part, and the result.

        Parts that arrived may still be in a cache.
        """
        shape, n, cache = self.scenario.shape, self.scenario.num_ranks, self.scenario.gpu.last_cache
        if not self.sums_by_kernels or shape.moved is None:
            return 0
        shard = shape.moved.num_bytes // n
        parts = (n - 1) * shard
        hits = 0 if cache is None else hit_share(int(parts * self.mode.sent), cache.instances * cache.size_bytes)
        return (n + 1) * shard - int(parts * hits)

    @property
    def sum_ticks(self) -> int:
        """Time in which kernels that sum hold all SMs; 0 for small blocks, whose pieces hold few."""
        gpu, moved = self.scenario.gpu, self.scenario.shape.moved
        if (
            moved is None
            or moved.num_bytes // self.scenario.num_ranks < MIN_SUM_LINES_PER_SM * gpu.sms * gpu.line_bytes
        ):
            return 0
        return served_ticks(self.sum_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)

    @property
    def copy_ticks(self) -> int:
        """SM ticks of the copies of a rank if SMs copy."""
        if self.moved is None or not self.mode.by_sms:
            return 0
        return self.mode.engine_ticks(self.moved.issued, self.scenario.gpu.line_bytes)
