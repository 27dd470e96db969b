"""Kernels that memory bounds: elementwise ones, and matrix times vector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, DType, ElementwiseShape, GemmShape, GemvShape
from magus.simcore.kernels.dispatch import elementwise_work, gemv_work, streaming_ticks
from magus.simcore.kernels.gemm import gemm_work, ticks_for
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


gpus, sizes = st.sampled_from((mi300x(), h100())), st.integers(1, 1 << 15)
few = st.integers(1, 16)


def test_a_large_matrix_takes_its_bytes_at_the_achieved_rate_and_the_overheads() -> None:
    gpu = h100()
    work = gemv_work(gpu, GemvShape(1 << 15, 1 << 15, DType.BF16), gpu.sms)
    overheads = gpu.launch.kernel_ticks + gpu.gemm.tile_ticks + gpu.l2.latency_ticks + gpu.hbm.latency_ticks

    assert work.hbm_read_bytes == (1 << 31) + (1 << 16)
    assert work.alone_ticks == overheads + ticks_for((1 << 31) + (1 << 17), gpu.hbm.achieved_bytes_per_s)
    assert work.l2_hit_bytes == 131 << 16


@pytest.mark.parametrize("shape", [(4096, 4096), (28672, 8192), (8192, 3584), (53248, 16384)])
def test_it_is_near_a_gemm_of_one_row(shape: tuple[int, int]) -> None:
    # The GEMM profile of this GPU is fitted to measurements that have one row too.
    gpu = h100()
    ticks = gemv_work(gpu, GemvShape(*shape, DType.BF16), gpu.sms).alone_ticks

    assert ticks == pytest.approx(gemm_work(gpu, GemmShape(1, *shape, DType.BF16), gpu.sms).alone_ticks, rel=0.15)


@given(gpus, sizes, sizes, few, st.integers(1, 132))
def test_traffic_and_math_bound_it_from_below(gpu, n, k, batch, sms) -> None:  # type: ignore[no-untyped-def]
    shape = GemvShape(n, k, DType.BF16, batch)
    work = gemv_work(gpu, shape, sms)

    assert work.hbm_read_bytes == 2 * (n * k + batch * k)
    assert work.hbm_write_bytes == 2 * batch * n
    assert work.body_ticks >= ticks_for(work.hbm_read_bytes + work.hbm_write_bytes, gpu.hbm.achieved_bytes_per_s)
    assert work.num_units * work.unit_ticks >= shape.flops * gpu.sms * TICKS_PER_SECOND // gpu.peak(shape.dtype)


@given(gpus, sizes, sizes, few, st.integers(1, 131))
def test_it_grows_with_every_size_and_shrinks_with_sms(gpu, n, k, batch, sms) -> None:  # type: ignore[no-untyped-def]
    ticks = gemv_work(gpu, GemvShape(n, k, DType.BF16, batch), sms).alone_ticks

    assert gemv_work(gpu, GemvShape(n, k, DType.BF16, batch), sms + 1).alone_ticks <= ticks
    assert gemv_work(gpu, GemvShape(n, k, DType.BF16, batch + 1), sms).alone_ticks >= ticks
    if n * k * 2 >= sms * gpu.line_bytes:  # below, a larger matrix gives work to more SMs
        assert gemv_work(gpu, GemvShape(n + 1, k, DType.BF16, batch), sms).alone_ticks >= ticks
        assert gemv_work(gpu, GemvShape(n, k + 1, DType.BF16, batch), sms).alone_ticks >= ticks


def test_many_vectors_are_bound_by_math() -> None:
    gpu = h100()
    work = gemv_work(gpu, GemvShape(8192, 8192, DType.BF16, 4096), gpu.sms)

    assert work.unit_ticks / TICKS_PER_US == pytest.approx(0.879 + 2 * 4096 * 8192**2 / (989e6 * 0.801), rel=1e-6)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        gemv_work(h100(), GemvShape(0, 1, DType.BF16), 8)
    with pytest.raises(ValueError, match="no peak"):
        gemv_work(h100(), GemvShape(1, 1, DType.FP32), 8)
