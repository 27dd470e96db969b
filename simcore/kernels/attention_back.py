"""Attention backward: blocks of keys against blocks of queries, as in FlashAttention-2 and -3.

Each (batch, head, block of 128 keys) is a unit on one SM that walks over the blocks of queries that see its keys. Five
products instead of two for each pair of blocks, and as much more work on the scores: a pair takes 2.5 times that of the
forward pass. Without mask, head_dim 128, 16 Ki tokens in all and 16 heads on H100 this gives 560
TFLOP/s at a length of 16 Ki and 546 at 1 Ki; FlashAttention-3 has 561 and 424 (arXiv 2407.08608, figure 6).

Each unit adds to the gradients of its queries, in fp32; a last pass rounds them. It takes the constants of the GEMM
profile: no backward pass is in the tables that the others were fitted to.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, AttentionBackShape, Gpu, OpCase
from .attention import KV_ROWS, Q_ROWS, SMALL_Q_ROWS, block_us, equal_units, least_sm_ticks
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
    units = _units_of_keys(gpu, shape)
    read = shape.operand_bytes + shape.accumulator_bytes
    written = shape.output_bytes + shape.accumulator_bytes
    # Queries and gradients of the result are read, and gradients of queries added to, for each block of keys.
    cols = shape.dtype.bytes_of(shape.product_cols) + 4 * shape.head_dim
    walked = sum(count * rows for count, rows, _ in units) * cols
    l2_bytes = max(0, walked - read)
    label = f"attention_back {Q_ROWS}x{KV_ROWS}" + (" causal" if shape.causal else "")
    return equal_units(gpu, [(count, us) for count, _, us in units], sms, (l2_bytes, read, written), label)


def _units_of_keys(gpu: Gpu, shape: AttentionBackShape) -> Sequence[tuple[int, int, float]]:
    """(units, rows of queries that each sees, its time); with a mask by block of keys, the last first."""
    num_heads, num_blocks = shape.batch * shape.heads, -(-shape.kv_len // KV_ROWS)
    if shape.causal:
        most = shape.q_len if shape.window is None else KV_ROWS + shape.window - 1
        seen = [(num_heads, min(most, shape.q_len, KV_ROWS * (block + 1))) for block in range(num_blocks)]
    else:
        seen = [(num_heads * num_blocks, shape.q_len)]
    q_rows = SMALL_Q_ROWS if shape.q_len <= SMALL_Q_ROWS else Q_ROWS
    each_us, tile_us = float(PRODUCTS) * block_us(gpu, shape, q_rows), gpu.gemm.tile_ticks / TICKS_PER_US
    return [(count, rows, tile_us + -(-rows // Q_ROWS) * each_us) for count, rows in seen]


def _least_sm_ticks(scenario: OpCase, shape: AttentionBackShape, share: Fraction) -> int:
    return int(PRODUCTS * least_sm_ticks(scenario, shape, share))


MODEL = WorkModel(AttentionBackShape, attention_back_work, min_sm_ticks=_least_sm_ticks)
