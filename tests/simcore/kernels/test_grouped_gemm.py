"""Grouped GEMM: all experts in one launch."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import (
    TICKS_PER_SECOND,
    BatchedGemmShape,
    DType,
    GemmShape,
    Gpu,
    GroupedGemmShape,
    GroupedModel,
    RowWiseShape,
)
from magus.simcore.kernels.dispatch import work_of
from magus.simcore.kernels.gemm import ROUNDING_TICKS, gemm_work
from magus.simcore.kernels.gemm_form import min_sm_ticks
from magus.simcore.kernels.grouped_gemm import batched_gemm_work, grouped_gemm_work, grouped_gpu
from tests.helpers.scenarios.scenarios import T, h100, mi300x, ticks

MODEL = GroupedModel(ticks(8), Fraction(9, 10), Fraction(4, 5), ticks(1.5), Fraction(2), Fraction(1, 4))
FITTED = replace(h100(), grouped=MODEL)
PLAIN = (mi300x(), h100())
DT = DType.BF16
plain_gpus, gpus, sizes = st.sampled_from(PLAIN), st.sampled_from((*PLAIN, FITTED)), st.integers(1, 8192)
loads = st.lists(st.integers(0, 2048), min_size=2, max_size=16).filter(lambda rows: sum(map(bool, rows)) > 1).map(tuple)


def ticks_of(gpu: Gpu, rows: tuple[int, ...], n: int, k: int, sms: int) -> int:
    return grouped_gemm_work(gpu, GroupedGemmShape(rows, n, k, DT), sms).alone_ticks


def one_tile() -> Gpu:
    """An H100 with one tile and memory and L2 that nothing waits for."""
    gpu = h100()
    fast = 10**18
    return replace(
        gpu,
        l2=replace(gpu.l2, bytes_per_s=fast),
        hbm=replace(gpu.hbm, peak_bytes_per_s=fast),
        gemm=replace(gpu.gemm, tiles=((128, 128),)),
    )


@given(plain_gpus, st.integers(1, 4096), sizes, sizes, st.integers(1, 132), st.integers(0, 3))
def test_one_expert_is_a_plain_gemm(gpu, m, n, k, sms, idle) -> None:  # type: ignore[no-untyped-def]
    rows = (0,) * idle + (m,)

    assert grouped_gemm_work(gpu, GroupedGemmShape(rows, n, k, DT), sms) == gemm_work(gpu, GemmShape(m, n, k, DT), sms)


def test_experts_that_fill_their_tiles_are_the_gemm_of_all_rows() -> None:
    gpu = one_tile()
    grouped = grouped_gemm_work(gpu, GroupedGemmShape((1024, 2048, 1024), 4096, 4096, DT), gpu.sms)
    whole = gemm_work(gpu, GemmShape(4096, 4096, 4096, DT), gpu.sms)

    assert (grouped.num_units, grouped.unit_ticks, grouped.waves) == (whole.num_units, whole.unit_ticks, whole.waves)
    assert grouped.hbm_read_bytes - whole.hbm_read_bytes == 2 * 4096 * 4096 * 2  # weights of two more experts


def test_a_tile_filled_in_part_costs_a_whole_one() -> None:
    gpu = one_tile()
    # 3 + 1 + 1 + 2 row blocks of 128 by 4 columns: 28 tiles in one wave
    grouped = grouped_gemm_work(gpu, GroupedGemmShape((300, 1, 128, 129), 512, 1024, DT), gpu.sms)
    whole = grouped_gemm_work(gpu, GroupedGemmShape((128, 128), 512, 1024, DT), gpu.sms)

    assert (grouped.num_units, grouped.waves, grouped.label) == (28, 1, "128x128 of 4")
    assert grouped.unit_ticks == whole.unit_ticks


def test_uneven_loads_take_longer_than_even_ones_when_experts_are_many_and_small() -> None:
    even = ticks_of(one_tile(), (128,) * 64, 4096, 4096, 132)
    uneven = ticks_of(one_tile(), (64, 192) * 32, 4096, 4096, 132)

    assert uneven == pytest.approx(1.5 * even, rel=0.02)


def test_fitted_constants_replace_those_of_plain_gemms_and_rows_are_moved_beside_them() -> None:
    gpu = replace(FITTED, gemm=replace(FITTED.gemm, tiles=((128, 128),)))
    own = replace(gpu.gemm, start_ticks=ticks(8), mma_fraction=MODEL.mma_fraction, hbm_fraction=MODEL.hbm_fraction)
    own = replace(own, tile_ticks=ticks(1.5), exponent=MODEL.exponent, quantisation=Fraction(0))
    shape = GroupedGemmShape((100, 28), 4096, 1024, DT)
    work = grouped_gemm_work(gpu, shape, 132)
    without = grouped_gemm_work(replace(gpu, gemm=own, grouped=None), shape, 132)

    assert (work.start_ticks, work.num_units) == (ticks(8), without.num_units)
    rows_us = 128 * (1024 + 4096) * 2 / (3.35e6 / 4)
    assert work.unit_ticks - without.unit_ticks == pytest.approx(ticks(rows_us), abs=2 * ROUNDING_TICKS)
    assert grouped_gemm_work(gpu, replace(shape, rows=(128,)), 132).start_ticks == ticks(8)


def test_fp8_has_constants_of_its_own_and_writes_16_bits() -> None:
    gpu = replace(FITTED, peak_flops=((DT, 989 * T), (DType.FP8, 1979 * T)))
    shape = GroupedGemmShape((100, 28), 4096, 1024, DType.FP8)

    assert grouped_gemm_work(gpu, shape, 132).start_ticks == gpu.gemm.start_ticks
    own = replace(gpu, grouped=replace(MODEL, fp8=replace(MODEL, start_ticks=ticks(9))))
    assert grouped_gemm_work(own, shape, 132).start_ticks == ticks(9)
    assert grouped_gemm_work(own, shape, 132).hbm_write_bytes == shape.output_bytes == 128 * 4096 * 2


def test_a_rank_that_looks_for_its_rows_looks_at_the_choices_of_all_tokens() -> None:
    looks = replace(FITTED, grouped=replace(MODEL, choice_ticks=ticks(0.001)))
    shape = RowWiseShape(1024 * 512, 1, DT, 1 << 20, (4096, 8))
    few, many = (work_of(gpu, shape, 132).alone_ticks for gpu in (FITTED, looks))

    assert many == few + 4096 * 8 * ticks(0.001)
    assert work_of(looks, replace(shape, chosen=(0, 0)), 132) == work_of(FITTED, shape, 132)
    assert work_of(looks, replace(shape, dtype=DType.FP8), 132) == work_of(FITTED, replace(shape, dtype=DType.FP8), 132)


@pytest.mark.parametrize(("chosen", "sorts"), [((256, 8), 0), ((257, 8), 1), ((256, 10), 1), ((1, 22), 1), ((0, 0), 0)])
def test_many_tokens_and_an_uncommon_top_take_longer_to_sort(chosen: tuple[int, int], sorts: int) -> None:
    sorting = replace(FITTED, grouped=replace(MODEL, sort_ticks=ticks(4)))
    shape = RowWiseShape(1024 * 512, 1, DT, 1 << 20, chosen)

    assert work_of(sorting, shape, 132).alone_ticks - work_of(FITTED, shape, 132).alone_ticks == sorts * ticks(4)


def test_rows_are_written_beside_the_products_unless_tiles_are_written_beside_steps() -> None:
    gpu = replace(FITTED, gemm=replace(FITTED.gemm, tiles=((128, 128),)))
    shape = GroupedGemmShape((128, 128), 4096, 1024, DT)
    both = grouped_gemm_work(gpu, shape, 132)
    read = grouped_gemm_work(replace(gpu, grouped=replace(MODEL, epilogue_ticks=1)), shape, 132)

    written_us = shape.output_bytes / (3.35e6 / 4)
    assert both.body_ticks - read.body_ticks == pytest.approx(ticks(written_us), abs=2 * ROUNDING_TICKS)


def test_each_row_takes_its_time_beside_the_products_however_wide_it_is() -> None:
    by_row = replace(FITTED, grouped=replace(MODEL, row_ticks=ticks(0.002)))
    for width in (512, 4096):
        shape = GroupedGemmShape((1000, 0, 24), width, width, DT)
        few, many = (grouped_gemm_work(gpu, shape, 132).body_ticks for gpu in (FITTED, by_row))
        assert many - few == pytest.approx(1024 * ticks(0.002), abs=2 * ROUNDING_TICKS)


def test_a_tile_is_written_beside_the_steps_of_the_next_one() -> None:
    writes = (replace(MODEL, rows_fraction=Fraction(1), epilogue_ticks=ticks(us)) for us in (0, 2, 60))
    gpus = [replace(one_tile(), grouped=model) for model in writes]
    shape = GroupedGemmShape((128 * 33,) * 4, 512, 4096, DT)  # 528 tiles, half as large as those of `epilogue`
    plain, under, over = (grouped_gemm_work(each, shape, 132) for each in gpus)
    step_us = plain.unit_ticks / ticks(1) - 1.5

    assert plain.waves == 4
    assert 4 * (under.unit_ticks - plain.unit_ticks) == pytest.approx(ticks(1), rel=0.02)  # that of the last tile
    longer = 4 * (30 - step_us) + step_us
    assert 4 * (over.unit_ticks - plain.unit_ticks) == pytest.approx(ticks(longer), rel=0.02)


def test_every_expert_reads_its_weights_once() -> None:
    work = grouped_gemm_work(h100(), GroupedGemmShape((1, 0, 2, 5), 4096, 1024, DT), 132)

    assert work.hbm_read_bytes == 2 * (8 * 1024 + 3 * 4096 * 1024)
    assert work.hbm_write_bytes == 2 * 8 * 4096


@given(gpus, loads, sizes, sizes, st.integers(2, 132))
def test_experts_without_rows_cost_nothing_and_order_does_not_matter(gpu, rows, n, k, sms) -> None:  # type: ignore[no-untyped-def]
    work = grouped_gemm_work(gpu, GroupedGemmShape(rows, n, k, DT), sms)

    assert grouped_gemm_work(gpu, GroupedGemmShape((*rows, 0), n, k, DT), sms) == work
    assert grouped_gemm_work(gpu, GroupedGemmShape(rows[::-1], n, k, DT), sms) == work


@given(gpus, loads, sizes, sizes, st.integers(2, 131))
def test_it_grows_with_every_size_and_shrinks_with_sms(gpu, rows, n, k, sms) -> None:  # type: ignore[no-untyped-def]
    work = grouped_gemm_work(gpu, GroupedGemmShape(rows, n, k, DT), sms)
    rounding = 2 * (work.waves + 1) * ROUNDING_TICKS

    assert ticks_of(gpu, rows, n, k, sms + 1) <= work.alone_ticks + rounding
    for larger in ((rows[0] + 1, *rows[1:]), (*rows, 1)):
        assert ticks_of(gpu, larger, n, k, sms) >= work.alone_ticks - rounding
    assert ticks_of(gpu, rows, n + 1, k, sms) >= work.alone_ticks - rounding
    assert ticks_of(gpu, rows, n, k + 1, sms) >= work.alone_ticks - rounding


@given(gpus, loads, sizes, sizes, st.integers(2, 132))
def test_math_and_the_bound_of_plain_gemms_hold(gpu, rows, n, k, sms) -> None:  # type: ignore[no-untyped-def]
    shape = GroupedGemmShape(rows, n, k, DT)
    work = grouped_gemm_work(gpu, shape, sms)
    sm_ticks = work.num_units * work.unit_ticks

    assert sm_ticks >= shape.flops * gpu.sms * TICKS_PER_SECOND // gpu.peak(DT)
    alone = grouped_gpu(gpu, DT)
    assert sm_ticks >= sum(min_sm_ticks(alone, GemmShape(count, n, k, DT)) for count in rows if count) * (1 - 1e-6)
    assert (work.waves - 1) * sms < work.num_units <= work.waves * sms


@pytest.mark.parametrize(
    ("rows", "n", "dtype", "message"),
    [
        ((0, 0), 8, DT, "needs rows"),
        ((), 8, DT, "needs rows"),
        ((4, -1), 8, DT, "needs rows"),
        ((4, 4), 0, DT, "positive"),
        ((4, 4), 8, DType.FP32, "no peak"),
    ],
)
def test_what_cannot_be_is_refused(rows: tuple[int, ...], n: int, dtype: DType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grouped_gemm_work(h100(), GroupedGemmShape(rows, n, 8, dtype), 8)


def test_a_gpu_without_a_tile_for_its_sms_is_refused() -> None:
    pairs = replace(h100(), gemm=replace(h100().gemm, tiles=(), pair_tiles=((256, 128),)))
    with pytest.raises(ValueError, match="no tile"):
        grouped_gemm_work(pairs, GroupedGemmShape((8, 8), 8, 8, DT), 1)


def test_heads_read_their_weights_once_and_nothing_is_sorted() -> None:
    """Of few rows the time is that of the weights; constants of experts, whose rows are sorted, do not count."""
    gpu = h100()
    few, more = (batched_gemm_work(gpu, BatchedGemmShape(128, rows, 512, 128, DT), gpu.sms) for rows in (1, 16))

    assert few.hbm_read_bytes == 2 * 128 * 128 * (512 + 1)
    assert few.body_ticks > TICKS_PER_SECOND * 2 * 128 * 128 * 512 / gpu.hbm.peak_bytes_per_s
    assert more.body_ticks < 1.5 * few.body_ticks
    assert batched_gemm_work(FITTED, BatchedGemmShape(128, 16, 512, 128, DT), gpu.sms) == more
