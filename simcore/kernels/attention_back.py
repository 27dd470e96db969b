"""Attention backward: blocks of keys that walk over those of queries, as in FlashAttention-2 and -3.

Each (batch, head, block of 128 keys) is a unit that walks over the blocks of queries that see its keys. Five
products instead of two for each pair of blocks, and as much more work on the scores: a pair takes 2.5 times that of the
forward pass. Without mask, head_dim 128, 16 Ki tokens in all and 16 heads on H100 this gives 560 TFLOP/s at a length of
16 Ki and 546 at 1 Ki; FlashAttention-3 has 561 and 424 (arXiv 2407.08608, figure 6). Each unit adds to the gradients of
its queries, in fp32; a last pass rounds them. The constants are those of the GEMM profile: no backward pass is in the
tables that the others were fitted to.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, AttentionBackShape, Gpu
from .attention import (
    KV_ROWS,
    Q_ROWS,
    SMALL_Q_ROWS,
    EqualUnits,
    KernelTraffic,
    block_us,
    check_sizes,
    equal_units,
    least_sm_ticks,
)
from .work import KernelWork, WorkModel

PRODUCTS = Fraction(5, 2)
"""Products of the backward pass for each of the forward pass."""


@lru_cache(maxsize=1024)
def attention_back_work(gpu: Gpu, shape: AttentionBackShape, sms: int) -> KernelWork:
    """The kernel for ``shape`` on ``sms`` SMs; raises as ``attention_work``."""
    check_sizes(gpu, shape, sms)
    units = _units_of_keys(gpu, shape)
    read = shape.operand_bytes + shape.accumulator_bytes
    written = shape.output_bytes + shape.accumulator_bytes
    # Queries and gradients of the result are read, and gradients of queries added to, for each block of keys.
    cols = shape.dtype.bytes_of(shape.product_cols) + 4 * shape.head_dim
    walked = sum(each.count * each.rows for each in units) * cols
    label = f"attention_back {Q_ROWS}x{KV_ROWS}" + (" causal" if shape.causal else "")
    return equal_units(gpu, units, sms, KernelTraffic(max(0, walked - read), read, written), label)


def _units_of_keys(gpu: Gpu, shape: AttentionBackShape) -> Sequence[EqualUnits]:
    """The units by the rows of queries that each sees; with a mask by block of keys, the last first."""
    num_heads, num_blocks = shape.batch * shape.heads, -(-shape.kv_len // KV_ROWS)
    if shape.causal:
        most = shape.q_len if shape.window is None else KV_ROWS + shape.window - 1
        seen = [(num_heads, min(most, shape.q_len, KV_ROWS * (block + 1))) for block in range(num_blocks)]
    else:
        seen = [(num_heads * num_blocks, shape.q_len)]
    q_rows = SMALL_Q_ROWS if shape.q_len <= SMALL_Q_ROWS else Q_ROWS
    each_us, tile_us = float(PRODUCTS) * block_us(gpu, shape, q_rows), gpu.gemm.tile_ticks / TICKS_PER_US
    return [EqualUnits(count, rows, tile_us + -(-rows // Q_ROWS) * each_us) for count, rows in seen]


BACK = WorkModel(
    AttentionBackShape, attention_back_work, min_sm_ticks=lambda *given: int(PRODUCTS * least_sm_ticks(*given))
)
