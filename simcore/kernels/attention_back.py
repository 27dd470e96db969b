"""Attention, backward: blocks of keys against blocks of queries, as in FlashAttention-2 and -3.

Each (batch, head, block of 128 keys) is a unit on one SM that walks over the blocks of queries that see its keys. Five
products instead of two for each pair of blocks, and as much more work on the scores: a pair takes 2.5 times that of the
forward pass (``attention.py``). Without mask, head_dim 128, 16 Ki tokens in all and 16 heads on H100 this gives 560
TFLOP/s at a length of 16 Ki and 546 at 1 Ki; FlashAttention-3 has 561 and 424 (arXiv 2407.08608, figure 6).

Each unit adds to the gradients of its queries, in fp32; a last pass rounds them.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, AttentionBackShape, Gpu, Scenario
from .attention import KV_ROWS, Q_ROWS, block_us, least_sm_ticks, makespan_us
from .gemm import ROUNDING_TICKS, rounded_ticks
from .gemm_form import l2_bytes_per_s
from .work import KernelWork, WorkModel

PRODUCTS = Fraction(5, 2)
"""Products of the backward pass for each of the forward pass."""


@lru_cache(maxsize=1024)
def attention_back_work(gpu: Gpu, shape: AttentionBackShape, sms: int) -> KernelWork:
    """The kernel for ``shape`` on ``sms`` SMs.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive.
    """
    if min(shape.batch, shape.heads, shape.kv_heads, shape.q_len, shape.kv_len, shape.head_dim, sms) < 1:
        raise ValueError(f"attention needs positive sizes and SMs, got {shape} on {sms}")
    units = _units(gpu, shape)
    read = shape.operand_bytes + shape.accumulator_bytes
    written = shape.output_bytes + shape.accumulator_bytes
    # Queries and gradients of the result are read, and gradients of queries added to, for each block of keys.
    walked = sum(count * rows for count, rows, _ in units) * shape.head_dim * (2 * shape.dtype.num_bytes + 4)
    l2_bytes = max(0, walked - read)
    memory_us = (read + written) / gpu.hbm.achieved_bytes_per_s * 1e6
    l2_us = (l2_bytes + read + written) / l2_bytes_per_s(gpu) * 1e6
    body_us = max(makespan_us([(count, us) for count, _, us in units], sms), memory_us, l2_us)
    total = sum(count for count, _, _ in units)
    waves = -(-total // sms)
    return KernelWork(
        num_units=total if waves == 1 else waves * sms,
        unit_ticks=max(ROUNDING_TICKS, rounded_ticks(body_us / waves)),
        start_ticks=gpu.gemm.start_ticks,
        waves=waves,
        l2_hit_bytes=l2_bytes,
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label=f"attention_back {Q_ROWS}x{KV_ROWS}" + (" causal" if shape.causal else ""),
    )


def _units(gpu: Gpu, shape: AttentionBackShape) -> Sequence[tuple[int, int, float]]:
    """(units, rows of queries that each sees, its time); with a mask by block of keys, the last first."""
    num_heads, num_blocks = shape.batch * shape.heads, -(-shape.kv_len // KV_ROWS)
    if shape.causal:
        seen = [(num_heads, min(shape.q_len, KV_ROWS * (block + 1))) for block in range(num_blocks)]
    else:
        seen = [(num_heads * num_blocks, shape.q_len)]
    each_us, tile_us = float(PRODUCTS) * block_us(gpu, shape), gpu.gemm.tile_ticks / TICKS_PER_US
    return [(count, rows, tile_us + -(-rows // Q_ROWS) * each_us) for count, rows in seen]


def _least_sm_ticks(scenario: Scenario, shape: AttentionBackShape, share: Fraction) -> int:
    return int(PRODUCTS * least_sm_ticks(scenario, shape, share))


MODEL = WorkModel(AttentionBackShape, attention_back_work, min_sm_ticks=_least_sm_ticks)
