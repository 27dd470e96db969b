"""Elementwise kernels: streams over memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import DType, ElementwiseShape
from magus.simcore.kernels.elementwise import elementwise_work, streaming_ticks
from magus.simcore.kernels.gemm import ticks_for
from tests.helpers.scenarios.scenarios import h100, mi300x

GPUS = (mi300x(), h100())
gpus, counts, inputs = st.sampled_from(GPUS), st.integers(1, 1 << 30), st.integers(1, 8)


def test_a_large_stream_takes_its_bytes_at_the_achieved_rate_after_one_latency() -> None:
    gpu = h100()
    work = elementwise_work(gpu, ElementwiseShape(1 << 28, 2, DType.BF16), gpu.sms)

    assert (work.hbm_read_bytes, work.hbm_write_bytes, work.num_units) == (1 << 30, 1 << 29, 132)
    latency = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    assert work.alone_ticks == gpu.launch.kernel_ticks + latency + ticks_for(3 << 29, 3 * 10**12)


def test_one_sm_moves_what_it_has_under_way_once_in_a_latency() -> None:
    gpu = h100()
    latency = gpu.l2.latency_ticks + gpu.hbm.latency_ticks

    assert streaming_ticks(gpu, 10 * 32 * 1024, 1) == 11 * latency


def test_no_unit_is_smaller_than_a_line() -> None:
    assert elementwise_work(h100(), ElementwiseShape(128, 1, DType.BF16), 132).num_units == 2
    assert elementwise_work(h100(), ElementwiseShape(1, 1, DType.FP8), 132).num_units == 1


@given(gpus, counts, inputs, st.integers(1, 132))
def test_traffic_is_compulsory_and_no_faster_than_memory(gpu, count, num_inputs, sms) -> None:  # type: ignore[no-untyped-def]
    shape = ElementwiseShape(count, num_inputs, DType.BF16)
    work = elementwise_work(gpu, shape, sms)

    assert (work.hbm_read_bytes, work.hbm_write_bytes) == (2 * num_inputs * count, 2 * count)
    assert work.body_ticks >= ticks_for(2 * count * (num_inputs + 1), gpu.hbm.achieved_bytes_per_s)
    assert 1 <= work.num_units <= sms


@given(gpus, counts, counts, inputs, st.integers(1, 131))
def test_more_elements_take_longer_and_more_sms_do_not(gpu, count, more, num_inputs, sms) -> None:  # type: ignore[no-untyped-def]
    shape = ElementwiseShape(count, num_inputs, DType.BF16)
    ticks = elementwise_work(gpu, shape, sms).alone_ticks

    assert elementwise_work(gpu, shape, sms + 1).alone_ticks <= ticks
    assert (
        elementwise_work(gpu, ElementwiseShape(count + more * 8192, num_inputs, DType.BF16), sms).alone_ticks >= ticks
    )


@pytest.mark.parametrize(("count", "num_inputs", "sms"), [(0, 1, 8), (1, 0, 8), (1, 1, 0)])
def test_sizes_that_are_not_positive_are_refused(count: int, num_inputs: int, sms: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        elementwise_work(h100(), ElementwiseShape(count, num_inputs, DType.BF16), sms)
