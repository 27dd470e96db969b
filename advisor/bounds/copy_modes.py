"""The ways in which schedules copy, told apart by the bounds: by DMA engines, or by SMs in each protocol.

SMs that copy are either those of the kernels, in turn, or others all the time; how many, a schedule says.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ...compiler.ir import TICKS_PER_SECOND, CopyProtocol, EngineKind, Gpu, Scenario
from ...compiler.planning.knobs.engine import max_copy_sms
from ...compiler.planning.reach import reject_reach
from ...simcore.lower.protocols import LL128_BYTES, LL128_PAYLOAD

# Numbers of SMs that copy are bounded together up to these parts of all.
SHARES = (16, 10, 7, 5, 4, 3)
# Bytes on the links for each byte of payload.
_SENT = {
    CopyProtocol.SIMPLE: Fraction(1),
    CopyProtocol.LL: Fraction(2),
    CopyProtocol.LL128: Fraction(LL128_BYTES, LL128_PAYLOAD),
}


@dataclass(frozen=True, slots=True)
class Division:
    """Kernels have ``fewest`` to ``most`` SMs; those that copy may be ``apart`` from them."""

    fewest: int
    most: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class CopyMode:
    """How a schedule copies: what a copy costs before its first byte, and bytes sent for each byte of payload.

    At most ``engines`` of ``bytes_per_s`` each copy at a rank. ``can_sum`` is whether they can ask a switch for sums.
    """

    kind: EngineKind
    setup_ticks: int
    engines: int
    bytes_per_s: int
    sent: Fraction = Fraction(1)
    can_sum: bool = False

    @property
    def by_sms(self) -> bool:
        """Whether SMs copy, which then do not compute."""
        return self.kind is EngineKind.SM

    def engine_ticks(self, num_bytes: int, line_bytes: int) -> int:
        """Time that ``num_bytes`` of payload take one engine at least."""
        return served_ticks(int(num_bytes * self.sent), self.bytes_per_s, line_bytes)


def ways_of(scenario: Scenario, kind: EngineKind) -> tuple[CopyMode, ...]:
    """All ways with engines of ``kind``. What the switch copies or sums has no flags between its bytes."""
    gpu, system = scenario.gpu, scenario.system
    if kind is EngineKind.DMA:
        dma = gpu.dma
        return (CopyMode(kind, min(dma.setup_ticks, dma.prelaunch_ticks), max(1, dma.engines), dma.bytes_per_s),)
    most, rate = max(1, max_copy_sms(gpu)), gpu.sm_copy.bytes_per_s
    sums = reject_reach(system, sums=True) is None
    flagged = [each for each in system.fabric.link.protocols if each is not CopyProtocol.SIMPLE]
    if flagged and (sums or reject_reach(system, sums=False) is None):
        return (CopyMode(kind, 0, most, rate, can_sum=sums),)
    return (
        CopyMode(kind, gpu.sm_copy.setup_ticks, most, rate, can_sum=sums),
        *(CopyMode(kind, 0, most, rate, _SENT[each]) for each in flagged),
    )


def divisions_of(gpu: Gpu, way: CopyMode) -> tuple[Division, ...]:
    """All ways to divide the SMs between kernels and copies, in ranges."""
    whole, sms = Division(gpu.sms, gpu.sms), gpu.sms
    if not way.by_sms:
        return (whole,)
    counts = sorted({1, *(sms // share + 1 for share in SHARES if 0 < sms // share < way.engines), way.engines + 1})
    ranges = ((max(1, sms - after + 1), max(1, sms - first)) for first, after in pairwise(counts))
    return whole, *(Division(fewest, most, apart=True) for fewest, most in ranges)


def served_ticks(num_bytes: int, bytes_per_s: int, line_bytes: int) -> int:
    """The least time in which a server passes ``num_bytes``, at any granularity.

    A unit is a multiple of a line and its service is rounded to the nearest tick, so half a tick a line may be missing.
    """
    per_byte = Fraction(TICKS_PER_SECOND, bytes_per_s) - Fraction(1, 2 * line_bytes)
    return max(0, int(num_bytes * per_byte))
