"""Copies in closed form: the rate by SMs, the time by a DMA engine; and the time of a GEMM beside copies.

    rate(s) = ((k s)^-p + limit^-p)^(-1/p)        s SMs of k bytes/s each, on a link that passes ``limit``
    T(b)    = fixed + b / bandwidth               one DMA copy of b bytes

The first is nearly min(k s, limit) with a short knee; fitted to DeepEP's combine on 4 to 24 SMs of H100, 1-2 % there.
k counts the SMs that send and those that receive together. The second has the phases of AMD's SDMA engines where the
profile tells them apart (AMD-DMA-Latte, arXiv 2511.06605): writing the command, scheduling, copying, signalling.

A GEMM beside copies in closed form: how much longer it takes where both use the memory and the network on chip.

    T / T_alone = max(1, u / (1 - c))    over the servers they share

u is the share of a server's time that the GEMM takes when alone, c the share that the copies take. A server serves in
order of arrival, so copies that come at a constant rate get all they ask for, and the GEMM gets the rest.
"""

from dataclasses import dataclass
from enum import Enum

from ...compiler.ir import TICKS_PER_SECOND, GemmShape, Gpu
from .gemm import gemm_work, ticks_for


class CopyPhase(Enum):
    """A part of the time of a DMA copy; the value is its name. ``SETUP`` is the cost of a command as a whole."""

    SETUP = "setup"
    CONTROL = "control"
    SCHEDULE = "schedule"
    COPY = "copy"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class DmaTime:
    """Time of one copy alone: its phases in order, in ticks."""

    phases: tuple[tuple[CopyPhase, int], ...]

    @property
    def ticks(self) -> int:
        """The whole time."""
        return sum(ticks for _, ticks in self.phases)

    def share(self, phase: CopyPhase) -> float:
        """The part of the time that ``phase`` takes, 0 to 1."""
        return dict(self.phases).get(phase, 0) / self.ticks


def sm_copy_rate(gpu: Gpu, sms: int) -> float:
    """Bytes per second that ``sms`` SMs copy to peers together, as far as the profile knows where the link is full.

    Raises
    ------
    ValueError
        If ``sms`` is below 1 or above what the GPU has, or the profile does not say where the link is full.
    """
    if not 1 <= sms <= gpu.sms:
        raise ValueError(f"copies take 1 to {gpu.sms} SMs of {gpu.name}, got {sms}")
    saturation = gpu.sm_copy.saturation
    if saturation is None:
        raise ValueError(f"the profile of {gpu.name} does not say at which rate copies by SMs fill the link")
    power, limit = float(saturation.exponent), float(saturation.limit_bytes_per_s)
    share = sms * gpu.sm_copy.bytes_per_s / limit
    # Two ways to write one formula, so that no power is huge.
    knee = (1 + min(share, 1 / share) ** power) ** (-1 / power)
    return limit * min(share, 1.0) * float(knee)


def dma_copy_time(gpu: Gpu, num_bytes: int) -> DmaTime:
    """Time of one copy of ``num_bytes`` to a peer by one DMA engine, with the phases that the profile tells apart.

    Without phases it is what the simulator charges: ``dma.setup``, then the bytes. With them it is a copy that the host
    issues and waits for, and whose command is not yet prepared.

    Raises
    ------
    ValueError
        If ``num_bytes`` is below 1.
    """
    if num_bytes < 1:
        raise ValueError(f"a copy needs at least 1 B, got {num_bytes} B")
    moving_ticks, phases = ticks_for(num_bytes, gpu.dma.bytes_per_s), gpu.dma.phases
    if phases is None:
        return DmaTime(((CopyPhase.SETUP, gpu.dma.setup_ticks), (CopyPhase.COPY, moving_ticks)))
    return DmaTime(
        (
            (CopyPhase.CONTROL, phases.control_ticks),
            (CopyPhase.SCHEDULE, phases.schedule_ticks),
            (CopyPhase.COPY, phases.copy_ticks + moving_ticks),
            (CopyPhase.SYNC, phases.sync_ticks),
        )
    )


def slowdown_beside_copies(gpu: Gpu, shape: GemmShape, sms: int, bytes_per_s: float) -> float:
    """Time of a GEMM on ``sms`` SMs beside copies of ``bytes_per_s`` in the same memory, over its time without.

    Each byte of a copy is read and written once.

    Raises
    ------
    ValueError
        If the copies leave nothing of a server, or as in ``gemm_work``.
    """
    work = gemm_work(gpu, shape, sms)
    seconds = work.body_ticks / TICKS_PER_SECOND
    hbm, passed = gpu.hbm.achieved_bytes_per_s, 2 * bytes_per_s
    shares = [((work.hbm_read_bytes + work.hbm_write_bytes) / seconds / hbm, passed / hbm)]
    if gpu.noc is not None:
        shares.append((work.num_units * work.noc_ticks / work.body_ticks, passed / gpu.noc.copy_bytes_per_s))
    if any(copied >= 1 for _, copied in shares):
        raise ValueError(f"copies of {bytes_per_s:.3g} B/s leave the GEMM nothing of a server of {gpu.name}")
    return max(1.0, *(min(1.0, taken) / (1 - copied) for taken, copied in shares))
