"""A GEMM beside copies in closed form: how much longer it takes where both use the memory and the network on chip.

    T / T_alone = max(1, u / (1 - c))    over the servers they share

u is the share of a server's time that the GEMM takes when alone, c the share that the copies take. A server serves in
order of arrival, so copies that come at a constant rate get all they ask for, and the GEMM gets the rest.
"""

from ...compiler.ir import TICKS_PER_SECOND, GemmShape, Gpu
from .gemm import gemm_work


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
