"""The closed forms of collectives and copies against the formulas, written out on their own, and by hand."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.ir import (
    TICKS_PER_US,
    Collectives,
    DmaPhases,
    ExchangeKernel,
    ExchangeModel,
    Gpu,
    NvlsModel,
    ProtocolModel,
    Saturation,
    SumForm,
    SumKernel,
)
from magus.simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from magus.simcore.kernels.nccl import NcclCollective, NcclProtocol, collective_time, early_switch, routed_time
from tests.helpers.scenarios.scenarios import MIB, G, h100, mi300x, ticks

LL, LL128 = ProtocolModel(0, ticks(1), bytes_per_s=10 * G), ProtocolModel(ticks(2), ticks(1), bytes_per_s=100 * G)
SIMPLE = ProtocolModel(ticks(10), ticks(3), bytes_per_s=200 * G)
MODEL = Collectives(
    start_ticks=ticks(5),
    ll=LL,
    ll128=LL128,
    simple=SIMPLE,
    own_bytes_per_s=500 * G,
    reduce_factor=Fraction("0.9"),
    simple_from_bytes=MIB,
    error=Fraction("0.05"),
    validated=True,
    nvls=NvlsModel(ticks(70), 250 * G, 32 * MIB, 8),
    all_to_all=ExchangeModel(ticks(6), LL, ProtocolModel(ticks(3), bytes_per_s=50 * G), SIMPLE, 400 * G, 4 * MIB),
)
GPU = replace(h100(), collectives=MODEL)
LIBRARY_GPUS = ("A100", "H100", "B200")


@cache
def shipped(name: str) -> Gpu:
    text = f'use "nvidia/{name.lower()}"\nsystem s {{ gpus 8 x {name}; fabric switch(nvswitch, link=nvlink) }}'
    return compile_text(f"{text}\nworkload w on s {{ a = tensor bf16[8, 8]; y = gemm(a, a) }}").scenario().case.gpu


def terms(gpu: Gpu, operation: NcclCollective, num_bytes: int, ranks: int) -> tuple[NcclProtocol, list[float]]:
    found = collective_time(gpu, operation, num_bytes, ranks)
    parts = (found.start_ticks, found.step_ticks, found.transfer_ticks, found.own_ticks)
    return found.protocol, [part / TICKS_PER_US for part in parts]


KERNELS = (
    SumKernel(SumForm.ONE_SHOT, ticks(4), ticks(0.1), 250 * G, ((2, MIB), (8, 1000))),
    SumKernel(SumForm.TWO_SHOT, ticks(8), ticks(0.5), 100 * G, ((4, MIB), (8, 2000))),
    SumKernel(SumForm.IN_SWITCH, ticks(9), 0, 200 * G, ((8, MIB),)),
)


@pytest.mark.parametrize(
    ("num_bytes", "ranks", "expected"),
    [
        (1000, 2, [4, 0.1, 0.004, 0]),
        (800, 8, [4, 0.7, 0.0224, 0]),
        (1000, 4, [8, 1.5, 0.015, 0]),
        (1600, 8, [8, 3.5, 0.028, 0]),
        (2000, 8, [9, 0, 0.01, 0]),
    ],
)
def test_an_all_reduce_by_the_first_kernel_that_takes_it(num_bytes: int, ranks: int, expected: list[float]) -> None:
    gpu = replace(GPU, collectives=replace(MODEL, kernels=KERNELS))

    assert terms(gpu, NcclCollective.ALL_REDUCE, num_bytes, ranks) == (NcclProtocol.FRAMEWORK, expected)


@pytest.mark.parametrize(("num_bytes", "ranks"), [(MIB, 8), (MIB, 2), (64 * MIB, 8), (1000, 3)])
def test_what_no_kernel_takes_is_the_library_s(num_bytes: int, ranks: int) -> None:
    gpu = replace(GPU, collectives=replace(MODEL, kernels=KERNELS))

    for operation in NcclCollective:
        assert terms(gpu, operation, num_bytes, ranks) == terms(GPU, operation, num_bytes, ranks)
    assert terms(gpu, NcclCollective.ALL_GATHER, 800, 8) == terms(GPU, NcclCollective.ALL_GATHER, 800, 8)


def test_a_small_all_gather_by_hand() -> None:
    # 7 steps of 1 us; 7/8 of 8000 B at 10 GB/s; 1000 B at 500 GB/s.
    assert terms(GPU, NcclCollective.ALL_GATHER, 8000, 8) == (NcclProtocol.LL, [5, 7, 0.7, 0.002])


def test_a_middling_reduce_scatter_by_hand() -> None:
    # 3 steps; 0.9 of 3/4 of 4 MB at 100 GB/s; 1 MB at 500 GB/s.
    assert terms(GPU, NcclCollective.REDUCE_SCATTER, 4_000_000, 4) == (NcclProtocol.LL128, [7, 3, 27, 2])


def test_a_large_all_reduce_by_hand() -> None:
    # 2 steps; 0.9 of twice a half of 200 MB at 200 GB/s; 100 MB at 500 GB/s.
    assert terms(GPU, NcclCollective.ALL_REDUCE, 200_000_000, 2) == (NcclProtocol.SIMPLE, [15, 6, 900, 200])


def test_an_all_reduce_in_the_switch_by_hand() -> None:
    assert terms(GPU, NcclCollective.ALL_REDUCE, 250_000_000, 8) == (NcclProtocol.NVLS, [70, 0, 1000, 0])


def test_all_to_all_by_hand() -> None:
    # Messages of LL128 start at once, and nobody copies its own part but with SIMPLE.
    assert terms(GPU, NcclCollective.ALL_TO_ALL, 8000, 8) == (NcclProtocol.LL128, [9, 0, 0.14, 0])
    assert terms(GPU, NcclCollective.ALL_TO_ALL, 8000, 2) == (NcclProtocol.LL, [6, 1, 0.4, 0])
    assert terms(GPU, NcclCollective.ALL_TO_ALL, 80_000_000, 8) == (NcclProtocol.SIMPLE, [16, 21, 350, 25])


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    "operation", [NcclCollective.ALL_GATHER, NcclCollective.REDUCE_SCATTER, NcclCollective.ALL_TO_ALL]
)
def test_the_protocol_switches_at_its_size_even_where_that_is_slower(operation: NcclCollective, ranks: int) -> None:
    at = (4 if operation is NcclCollective.ALL_TO_ALL else 1) * MIB * ranks

    assert collective_time(GPU, operation, at - 1, ranks).protocol is NcclProtocol.LL128
    assert collective_time(GPU, operation, at, ranks).protocol is NcclProtocol.SIMPLE


def test_all_gather_on_eight_b200_is_slower_just_above_the_switch() -> None:
    gpu = shipped("B200")
    below, above = (collective_time(gpu, NcclCollective.ALL_GATHER, size * MIB, 8).us for size in (8, 16))

    assert above > 2 * below  # measured: 45 and 102 us


def test_the_switch_sums_only_for_enough_gpus_and_bytes() -> None:
    def protocol(num_bytes: int, ranks: int, gpu: Gpu = GPU) -> NcclProtocol:
        return collective_time(gpu, NcclCollective.ALL_REDUCE, num_bytes, ranks).protocol

    without = replace(GPU, collectives=replace(MODEL, nvls=None))
    assert protocol(32 * MIB, 8) is NcclProtocol.NVLS and protocol(32 * MIB, 16) is NcclProtocol.NVLS
    assert protocol(32 * MIB - 1, 8) is NcclProtocol.SIMPLE
    assert protocol(512 * MIB, 4) is NcclProtocol.SIMPLE
    assert protocol(512 * MIB, 8, without) is NcclProtocol.SIMPLE


@pytest.mark.parametrize("name", LIBRARY_GPUS)
@given(num_bytes=st.integers(1, 1 << 32), ranks=st.integers(2, 72), operation=st.sampled_from(list(NcclCollective)[:3]))
def test_rings_of_the_library_are_the_published_form(
    name: str, num_bytes: int, ranks: int, operation: NcclCollective
) -> None:
    gpu = shipped(name)
    found = collective_time(gpu, operation, num_bytes, ranks)

    assert found.us == pytest.approx(published_us(gpu, operation, num_bytes, ranks), rel=1e-6)


def published_us(gpu: Gpu, operation: NcclCollective, num_bytes: int, ranks: int) -> float:
    """The form as published, in floating point."""
    model = gpu.collectives
    assert model is not None
    nvls = model.nvls
    if operation is NcclCollective.ALL_REDUCE and nvls and ranks >= nvls.ranks and num_bytes >= nvls.from_bytes:
        return nvls.start_ticks / TICKS_PER_US + num_bytes / nvls.bytes_per_s * 1e6
    twice = 2 if operation is NcclCollective.ALL_REDUCE else 1
    moved = num_bytes * twice * (ranks - 1) / ranks
    moved *= 1 if operation is NcclCollective.ALL_GATHER else float(model.reduce_factor)

    def us(protocol: ProtocolModel) -> float:
        fixed = model.start_ticks + protocol.start_ticks + twice * (ranks - 1) * protocol.step_ticks
        own = num_bytes / ranks / model.own_bytes_per_s
        return fixed / TICKS_PER_US + (moved / protocol.bytes_per_s + own) * 1e6

    if num_bytes >= model.simple_from_bytes * ranks:
        return us(model.simple)
    return min(us(model.ll), us(model.ll128))


@given(st.integers(1, 1 << 36), st.integers(2, 72), st.sampled_from(NcclCollective))
def test_the_terms_are_whole_ticks_that_sum_to_the_time(num_bytes: int, ranks: int, operation: NcclCollective) -> None:
    found = collective_time(GPU, operation, num_bytes, ranks)
    parts = (found.start_ticks, found.step_ticks, found.transfer_ticks, found.own_ticks)

    assert all(isinstance(part, int) and part >= 0 for part in parts)
    assert found.ticks == sum(parts) and found.us == found.ticks / TICKS_PER_US


@given(st.integers(1, 1 << 34), st.integers(2, 16), st.sampled_from(NcclCollective))
def test_more_bytes_in_the_same_protocol_take_no_less(num_bytes: int, ranks: int, operation: NcclCollective) -> None:
    small = collective_time(GPU, operation, num_bytes, ranks)
    large = collective_time(GPU, operation, num_bytes + 4096, ranks)

    assert large.protocol is not small.protocol or large.ticks >= small.ticks


@pytest.mark.parametrize(("num_bytes", "ranks"), [(0, 8), (-1, 8), (1, 1), (1, 0)])
def test_sizes_that_make_no_collective_are_refused(num_bytes: int, ranks: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        collective_time(GPU, NcclCollective.ALL_GATHER, num_bytes, ranks)


def test_profiles_without_constants_are_refused() -> None:
    without = replace(GPU, collectives=replace(MODEL, all_to_all=None))

    with pytest.raises(ValueError, match="MI300X has no collectives"):
        collective_time(mi300x(), NcclCollective.ALL_GATHER, 1, 2)
    with pytest.raises(ValueError, match="no all_to_all"):
        collective_time(without, NcclCollective.ALL_TO_ALL, 1, 2)


def saturating(exponent: str) -> Gpu:
    gpu = h100()
    return replace(gpu, sm_copy=replace(gpu.sm_copy, saturation=Saturation(315 * G, Fraction(exponent))))


def test_copies_by_sms_fill_the_link() -> None:
    rates = [sm_copy_rate(saturating("10"), sms) / G for sms in (4, 8, 12, 16, 20, 24)]

    # Measured on H100, DeepEP's combine.
    assert rates == pytest.approx([71, 141, 208, 276, 313, 316], rel=0.05)


@given(st.integers(1, 132), st.sampled_from(["1", "2.5", "10", "64"]))
def test_copies_by_sms_never_beat_their_sms_or_the_link(sms: int, exponent: str) -> None:
    gpu = saturating(exponent)
    rate, ends = sm_copy_rate(gpu, sms), (sms * gpu.sm_copy.bytes_per_s, 315 * G)

    assert rate <= min(ends) * (1 + 1e-12)
    assert rate == pytest.approx(G * sum((end / G) ** -float(exponent) for end in ends) ** (-1 / float(exponent)))
    assert sms == 1 or rate >= sm_copy_rate(gpu, sms - 1)


def test_a_rate_far_below_the_limit_is_no_overflow() -> None:
    gpu = h100()
    slow = replace(gpu.sm_copy, bytes_per_s=10**6, saturation=Saturation(10**15, Fraction(64)))

    assert sm_copy_rate(replace(gpu, sm_copy=slow), 1) == pytest.approx(1e6)


@pytest.mark.parametrize("sms", [0, -1, 133])
def test_sms_that_the_gpu_does_not_have_are_refused(sms: int) -> None:
    with pytest.raises(ValueError, match="1 to 132"):
        sm_copy_rate(saturating("10"), sms)


def test_a_profile_without_a_limit_has_no_rate() -> None:
    with pytest.raises(ValueError, match="does not say"):
        sm_copy_rate(h100(), 8)


def test_a_dma_copy_is_its_setup_and_its_bytes() -> None:
    gpu = mi300x()
    found = dma_copy_time(gpu, 52_700)

    assert found.phases == ((CopyPhase.SETUP, ticks(4)), (CopyPhase.COPY, ticks(1)))
    assert found.ticks == ticks(5) and found.share(CopyPhase.COPY) == 0.2 and found.share(CopyPhase.SYNC) == 0


def test_a_dma_copy_has_phases_where_the_profile_has() -> None:
    gpu = mi300x()
    phases = DmaPhases(ticks(0.5), ticks(2), ticks(1.5), ticks(2))
    found = dma_copy_time(replace(gpu, dma=replace(gpu.dma, phases=phases)), 52_700 * 4)

    assert found.ticks == ticks(10)
    shares = [found.share(each) for each in (CopyPhase.CONTROL, CopyPhase.SCHEDULE, CopyPhase.COPY, CopyPhase.SYNC)]
    assert shares == [0.05, 0.2, 0.55, 0.2]
    assert math.isclose(sum(shares), 1)


def test_a_copy_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 B"):
        dma_copy_time(mi300x(), 0)


B200 = shipped("B200")


def test_b200_switches_too_early() -> None:
    """Measured: 45 us at 8 MiB and 102 us at 16 MiB."""
    found = early_switch(B200, NcclCollective.ALL_GATHER, 8)

    assert found is not None
    assert found.from_bytes == 16 << 20
    assert (found.taken.protocol, found.better.protocol) == (NcclProtocol.SIMPLE, NcclProtocol.LL128)
    assert found.taken.ticks == collective_time(B200, NcclCollective.ALL_GATHER, 16 << 20, 8).ticks
    assert found.better.ticks < found.taken.ticks


def test_from_where_it_pays_it_is_no_slower() -> None:
    found = early_switch(B200, NcclCollective.REDUCE_SCATTER, 4)
    assert found is not None and B200.collectives is not None

    late = replace(B200, collectives=replace(B200.collectives, simple_from_bytes=found.pays_from_bytes // 4))
    assert early_switch(late, NcclCollective.REDUCE_SCATTER, 4) is None


def test_an_all_to_all_switches_where_its_own_model_says() -> None:
    model = B200.collectives
    assert model is not None and model.all_to_all is not None
    late = replace(B200, collectives=replace(model, all_to_all=replace(model.all_to_all, simple_from_bytes=1 << 40)))
    soon = replace(B200, collectives=replace(model, all_to_all=replace(model.all_to_all, simple_from_bytes=1 << 10)))

    assert early_switch(late, NcclCollective.ALL_TO_ALL, 8) is None
    found = early_switch(soon, NcclCollective.ALL_TO_ALL, 8)
    assert found is not None and found.from_bytes == 8 << 10
    assert early_switch(soon, NcclCollective.ALL_GATHER, 8) == early_switch(B200, NcclCollective.ALL_GATHER, 8)


def test_a_gpu_without_collectives_is_refused() -> None:
    with pytest.raises(ValueError, match="no collectives"):
        early_switch(replace(B200, collectives=None), NcclCollective.ALL_GATHER, 8)


def test_a_dispatch_by_a_kernel_of_its_own_is_the_sum_of_its_terms() -> None:
    us, rate = TICKS_PER_US, 100 * 10**9
    kernel = ExchangeKernel(10 * us, rate, 2, 64, step_ticks=us, expert_ticks=us // 10, row_ticks=us // 100)
    sent, copied = (
        routed_time(each, 8, 600_000, 600, 100, 800, 256) for each in (kernel, replace(kernel, copies=True))
    )

    assert sent.us == pytest.approx(10 + 3 + 3.2 + 1 + 600_000 * 7 / 8 / 100e3)
    assert copied.us - sent.us == pytest.approx((800_000 - 600_000) * 7 / 8 / 100e3)
