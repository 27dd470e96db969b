"""Attention, backward: its rate, what it moves, and its units by hand."""

import pytest

from magus.compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, AttentionBackShape, AttentionShape, DType
from magus.simcore.kernels.attention import block_us
from magus.simcore.kernels.attention_back import attention_back_work
from magus.simcore.kernels.dispatch import work_of
from magus.simcore.kernels.gemm import ROUNDING_TICKS
from tests.helpers.scenarios.scenarios import h100

DT = DType.BF16
# FlashAttention-3, arXiv 2407.08608, figure 6: backward, fp16 on H100, no mask, 16 heads of 128, in TFLOP/s.
MEASURED = {(2048, 8): 501, (4096, 4): 542, (8192, 2): 559, (16384, 1): 561}


def square(length: int, batch: int = 1, *, causal: bool = False, head_dim: int = 128) -> AttentionBackShape:
    return AttentionBackShape(batch, 16, 16, length, length, head_dim, DT, causal)


def test_rates_are_near_those_measured_on_h100() -> None:
    gpu = h100()
    rates = {
        each: square(*each).flops / work_of(gpu, square(*each), gpu.sms).alone_ticks * TICKS_PER_SECOND / 1e12
        for each in MEASURED
    }
    assert {each: rates[each] / rate for each, rate in MEASURED.items()} == pytest.approx(
        dict.fromkeys(MEASURED, 1), abs=0.11
    )


def test_one_unit_by_hand() -> None:
    gpu, shape = h100(), AttentionBackShape(1, 1, 1, 256, 128, 128, DT, causal=False)
    forward = AttentionShape(1, 1, 1, 256, 128, 128, DT, causal=False)
    work = attention_back_work(gpu, shape, gpu.sms)

    us = gpu.gemm.tile_ticks / TICKS_PER_US + 2 * 2.5 * block_us(gpu, forward, 128)
    assert work.num_units == work.waves == 1
    assert work.unit_ticks == pytest.approx(us * TICKS_PER_US, abs=ROUNDING_TICKS)
    accumulator, row = 4 * 256 * 128, 2 * 128
    assert work.hbm_read_bytes == (3 * 256 + 2 * 128) * row + accumulator
    assert work.hbm_write_bytes == (256 + 2 * 128) * row + accumulator


def test_a_mask_leaves_out_what_it_hides() -> None:
    gpu = h100()
    whole, masked = (attention_back_work(gpu, square(8192, causal=causal), gpu.sms) for causal in (False, True))

    assert 0.48 < masked.body_ticks / whole.body_ticks < 0.55


def test_the_mask_of_few_queries() -> None:
    """Blocks of keys that all queries see are as long as without a mask."""
    gpu, shape = h100(), AttentionBackShape(1, 16, 16, 128, 8192, 128, DT, causal=True)
    whole = AttentionBackShape(1, 16, 16, 128, 8192, 128, DT, causal=False)

    assert attention_back_work(gpu, shape, gpu.sms).body_ticks == attention_back_work(gpu, whole, gpu.sms).body_ticks


def test_sizes_are_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        attention_back_work(h100(), square(8192), 0)
