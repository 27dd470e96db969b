"""Bytes on a link for each byte of data, by protocol of copies by SMs (NVIDIA NCCL: Simple, LL and LL128)."""

from fractions import Fraction

from ...compiler.ir import CopyProtocol, EngineKind, Schedule

LL128_BYTES, LL128_PAYLOAD = 128, 120


def sent_per_byte(schedule: Schedule) -> Fraction | int:
    """Bytes that copies put on a link, and write at the destination, for each byte of data."""
    if schedule.engine.kind is EngineKind.DMA:
        return 1
    match schedule.tactics.protocol:
        case CopyProtocol.SIMPLE:
            return 1
        case CopyProtocol.LL:
            return 2
        case CopyProtocol.LL128:
            return Fraction(LL128_BYTES, LL128_PAYLOAD)
