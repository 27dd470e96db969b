"""Copy modes that the bounds distinguish: by DMA engines, by SMs in each protocol, or stores from tiles.

SMs that copy are either shared with the kernels or reserved for copies; a schedule says how many there are.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ...compiler.ir import TICKS_PER_SECOND, CopyProtocol, EngineKind, Gpu, Scenario
from ...compiler.planning.knobs.engine import max_copy_sms
from ...compiler.planning.template_input import reject_reach
from ...simcore.lower.protocols import LL128_BYTES, LL128_PAYLOAD

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
    that store what they have computed (``from_tiles``) read nothing for it, take no SM time, and may add what lands.
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


def copy_modes_of(scenario: Scenario, kind: EngineKind) -> tuple[CopyMode, ...]:
    """Return all modes with engines of ``kind``. Data that a switch copies or sums has no flags between its bytes."""
    gpu, system = scenario.gpu, scenario.system
    if kind is EngineKind.DMA:
        dma = gpu.dma
        return (CopyMode(kind, min(dma.setup_ticks, dma.prelaunch_ticks), max(1, dma.engines), dma.bytes_per_s),)
    most, rate = max(1, max_copy_sms(gpu)), gpu.sm_copy.bytes_per_s
    sums, workload = reject_reach(system, sums=True) is None, scenario.workload
    tiles: tuple[CopyMode, ...] = ()
    if workload.pattern.produces and workload.may_persist:
        tiles = (CopyMode(kind, 0, gpu.sms, rate, from_tiles=True),)
    flagged = [protocol for protocol in system.fabric.link.protocols if protocol is not CopyProtocol.SIMPLE]
    if flagged and (sums or reject_reach(system, sums=False) is None):
        return (CopyMode(kind, 0, most, rate, can_sum=sums), *tiles)
    return (
        CopyMode(kind, gpu.sm_copy.setup_ticks, most, rate, can_sum=sums),
        *(CopyMode(kind, 0, most, rate, _SENT[protocol]) for protocol in flagged),
        *tiles,
    )


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
    per_byte = Fraction(TICKS_PER_SECOND, bytes_per_s) - Fraction(1, 2 * line_bytes)
    return max(0, int(num_bytes * per_byte))
