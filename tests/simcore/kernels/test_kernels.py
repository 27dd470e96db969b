"""Kernel models against their formulas and limits."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import (
    SPLITS,
    TICKS_PER_US,
    Cache,
    DType,
    GemmShape,
    Gpu,
    OpChoice,
    Sustained,
    TileGroup,
    split_k,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.engine import default_engine
from magus.simcore.kernels.dispatch import compute_work, least_sm_ticks, reduce_work
from magus.simcore.kernels.gemm import ROUNDING_TICKS, gemm_work, group_shape, rounded_ticks, ticks_for
from magus.simcore.kernels.gemm_form import (
    BodyForm,
    TileForm,
    block_of_fewest_waves,
    min_sm_ticks,
    operand_bytes,
    slowdown,
    split_us,
    tile_times,
)
from magus.simcore.kernels.work import hbm_bytes
from magus.simcore.kernels.working_set import extra_hbm_bytes
from tests.helpers.scenarios.scenarios import MIB, ag_gemm, by_waves, h100, mi300x

# A GPU whose SMs also work in pairs, as on Blackwell.
PAIRED = replace(h100(), gemm=replace(h100().gemm, pair_tiles=((256, 128), (256, 192), (256, 256))))
GPUS = (mi300x(), h100(), PAIRED)
sizes = st.integers(min_value=1, max_value=20000)


def reference_us(gpu, m: int, n: int, k: int, sms: int) -> float:  # type: ignore[no-untyped-def]
    """The published form, written out again on its own: the best of all tiles and splits, in us."""
    model, p = gpu.gemm, float(gpu.gemm.exponent)
    best = math.inf
    tiles = [(*block, 1) for block in model.tiles] + [(*block, 2) for block in model.pair_tiles]
    for bm, bn, u in tiles:
        for split in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            ks = 64 * math.ceil(math.ceil(k / split) / 64)
            if split > 1 and ks < 128:
                continue
            waves = math.ceil(m / bm) * math.ceil(n / bn) * split * u / sms
            quantised = 1 if waves <= 1 else waves + float(model.quantisation) * (math.ceil(waves) - waves)
            rate = u * gpu.peak(DType.BF16) * float(model.mma_fraction) / gpu.sms / 1e6
            tile = ((2 * bm * bn * ks / rate) ** p + (ks / 64 * model.k_step_ticks / TICKS_PER_US) ** p) ** (1 / p)
            tile += model.tile_ticks / TICKS_PER_US
            memory = 2 * (m * k + n * k + m * n) / (float(model.hbm_fraction) * gpu.hbm.peak_bytes_per_s / 1e6)
            time = model.start_ticks / TICKS_PER_US + ((quantised * tile) ** p + memory**p) ** (1 / p)
            if split > 1:
                time += model.split_ticks / TICKS_PER_US + 8 * split * m * n / (model.split_bytes_per_s / 1e6)
            best = min(best, time)
    return best


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("shape", [(8192, 8192, 8192), (4096, 1280, 8192), (16, 3584, 8192), (512, 512, 65536)])
def test_a_gemm_takes_what_the_fitted_form_says(gpu, shape: tuple[int, int, int]) -> None:  # type: ignore[no-untyped-def]
    work = gemm_work(gpu, GemmShape(*shape, DType.BF16), gpu.sms)

    assert work.alone_ticks / TICKS_PER_US == pytest.approx(reference_us(gpu, *shape, gpu.sms), rel=2e-3)


def every_kernel(gpu: Gpu, shape: GemmShape, sms: int) -> Iterator[tuple[float, str]]:
    """Time without start and label of each tile and split, none left out."""
    form = BodyForm.of(gpu, gpu.gemm, sum(hbm_bytes(shape, False)), float(gpu.gemm.quantisation))
    for (block, units), splits in tile_times(gpu, shape.dtype, shape.k, SPLITS):
        rows, cols = math.ceil(shape.m / block[0]), math.ceil(shape.n / block[1])
        sides, output = (2 * shape.m * shape.k, 2 * shape.n * shape.k), 2 * shape.m * shape.n
        l2_bytes = operand_bytes(*sides, rows, cols, gpu.gemm.cluster // units) + output
        for split, tile_us in splits:
            waves = rows * cols * split * units / sms
            us = form.body_us(form.waves_us(waves, tile_us)) + split_us(gpu.gemm, shape, split)
            label = f"{block[0]}x{block[1]}{' pair' * (units == 2)}{f' split {split}' * (split > 1)}"
            yield max(us, form.least_us(waves, l2_bytes)), label


@given(sizes, sizes, sizes, st.sampled_from(GPUS), st.integers(min_value=8, max_value=132))
def test_the_pick_is_the_first_of_the_fastest_of_all_tiles_and_splits(m, n, k, gpu, sms) -> None:  # type: ignore[no-untyped-def]
    shape = GemmShape(m, n, k, DType.BF16)
    best_us, label = min(every_kernel(gpu, shape, sms), key=lambda kernel: kernel[0])
    work = gemm_work(gpu, shape, sms)

    assert work.label == label
    assert work.unit_ticks == max(ROUNDING_TICKS, rounded_ticks(best_us / work.waves))


@pytest.mark.parametrize(
    ("m", "n", "block", "waves", "beyond", "uneven"),
    [
        (31, 4096, (16, 128), 1, 0, False),  # A and B change places
        (32, 4096, (64, 32), 1, 32, False),
        (64, 1536, (64, 16), 1, 0, False),
        (129, 1536, (128, 24), 1, 127, True),
        (256, 12288, (128, 96), 2, 0, True),
        (513, 16384, (128, 128), 5, 127, False),
    ],
)
def test_a_block_of_fewest_waves_is_the_one_that_deepgemm_picks(  # type: ignore[no-untyped-def]
    m: int, n: int, block, waves: int, beyond: int, uneven: bool
) -> None:
    found = block_of_fewest_waves(m, n, 132)

    assert (found.block, found.waves, found.beyond, found.uneven) == (block, waves, beyond, uneven)


def test_a_kernel_of_fewest_waves_waits_for_rows_that_are_not_there() -> None:
    gpu = by_waves()

    def us(m: int) -> float:
        return gemm_work(gpu, GemmShape(m, 1536, 10240, DType.BF16), gpu.sms).alone_ticks / TICKS_PER_US

    math_us = 2 * 128 * 24 * 10240 * 1.177 / (989e6 / 132 * 0.801)
    p, latency_us, missing_us = 2.97, 160 * 0.092, 160 * 127 * 128 / 132 * 0.001374  # 128 of 132 SMs have a block
    tile_us = (math_us**p + latency_us**p + missing_us**p) ** (1 / p) + 0.879
    memory_us = 2 * (129 * 10240 + 1536 * 10240 + 129 * 1536) / (0.821 * 3.35e6)
    assert us(129) == pytest.approx(1.951 + (tile_us**p + memory_us**p) ** (1 / p), rel=0.01)
    assert us(129) > 1.3 * us(256) and us(128) < us(256)


def test_few_blocks_hardly_wait_for_rows_that_are_not_there() -> None:
    gpu = by_waves()

    def longer(n: int) -> float:
        """How much longer one row more makes a kernel of ``n`` columns."""
        full, ragged = (gemm_work(gpu, GemmShape(m, n, 16384, DType.BF16), gpu.sms).body_ticks for m in (128, 129))
        return ragged / full - 1

    assert longer(128) < 0.02 < longer(256) < longer(512) < longer(1024)


@given(sizes, sizes, sizes, st.sampled_from((*GPUS, by_waves())), st.integers(min_value=8, max_value=132))
def test_no_kernel_beats_the_bound_on_sm_time(m, n, k, gpu, sms) -> None:  # type: ignore[no-untyped-def]
    shape = GemmShape(m, n, k, DType.BF16)
    work = gemm_work(gpu, shape, sms)

    assert work.num_units * work.unit_ticks >= min_sm_ticks(gpu, shape)
    assert (work.hbm_read_bytes, work.hbm_write_bytes) == hbm_bytes(shape, False)
    assert work.num_units <= work.waves * sms


@given(sizes, sizes, sizes, st.integers(min_value=2, max_value=8))
def test_parts_take_more_sm_time_than_the_bound_of_the_whole(m: int, n: int, k: int, parts: int) -> None:
    gpu = GPUS[1]
    whole = min_sm_ticks(gpu, GemmShape(m * parts, n, k * parts, DType.BF16))
    rows = gemm_work(gpu, GemmShape(m, n, k * parts, DType.BF16), gpu.sms)
    inner = gemm_work(gpu, GemmShape(m * parts, n, k, DType.BF16), gpu.sms, accumulate=True)

    assert parts * rows.num_units * rows.unit_ticks >= whole
    assert parts * inner.num_units * inner.unit_ticks >= whole


def only_pairs(*tiles: tuple[int, int]) -> Gpu:
    """An H100 with nothing but pair tiles, and L2 that nothing waits for."""
    gpu = h100()
    l2 = replace(gpu.l2, bytes_per_s=10**15)
    return replace(gpu, l2=l2, gemm=replace(gpu.gemm, tiles=(), pair_tiles=tiles))


def test_a_pair_tile_takes_two_slots() -> None:
    work = gemm_work(only_pairs((256, 256)), GemmShape(256, 512, 64, DType.BF16), 132)

    assert (work.num_units, work.waves, work.label) == (4, 1, "256x256 pair")


def test_a_pair_computes_a_tile_in_the_time_of_half_of_it_on_one_sm() -> None:
    gpu = only_pairs((256, 256))
    single = replace(gpu, gemm=replace(gpu.gemm, tiles=((256, 128),), pair_tiles=()))
    shape = GemmShape(4096, 4096, 4096, DType.BF16)
    pairs, singles = gemm_work(gpu, shape, 132), gemm_work(single, shape, 132)

    assert (pairs.unit_ticks, pairs.num_units, pairs.waves) == (singles.unit_ticks, singles.num_units, singles.waves)
    assert pairs.l2_hit_bytes < singles.l2_hit_bytes


@given(sizes, sizes, sizes, st.integers(min_value=2, max_value=132))
def test_pair_tiles_fill_the_slots_of_their_waves(m: int, n: int, k: int, sms: int) -> None:
    work = gemm_work(PAIRED, GemmShape(m, n, k, DType.BF16), sms)

    assert (work.waves - 1) * sms < work.num_units <= work.waves * sms
    assert work.alone_ticks == work.start_ticks + work.waves * work.unit_ticks


def only(*tiles: tuple[int, int], cluster: int) -> Gpu:
    gpu = h100()
    return replace(gpu, gemm=replace(gpu.gemm, tiles=tiles, cluster=cluster))


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1024, 2048, 4096), 1024 * 8 + 2048 * 8),  # 8 x 16 tiles: A is the larger read, it halves
        ((2048, 1024, 4096), 2048 * 8 + 1024 * 8),  # 16 x 8 tiles: so is B
        ((128, 640, 4096), 128 * 3 + 640),  # 5 columns of tiles: two pairs and one alone
        ((128, 128, 4096), 128 + 128),  # one tile shares with nobody
    ],
)
def test_tiles_of_a_cluster_read_what_they_share_once(shape: tuple[int, int, int], rows: int) -> None:
    m, n, k = shape
    work = gemm_work(only((128, 128), cluster=2), GemmShape(m, n, k, DType.BF16), 132)

    assert work.l2_hit_bytes + work.hbm_read_bytes == rows * k * 2


def test_a_pair_tile_is_its_own_cluster() -> None:
    shape = GemmShape(2048, 2048, 2048, DType.BF16)
    alone = only_pairs((256, 128))
    clustered, wide = (replace(alone, gemm=replace(alone.gemm, cluster=cluster)) for cluster in (2, 4))

    assert gemm_work(clustered, shape, 132) == gemm_work(alone, shape, 132)
    assert gemm_work(wide, shape, 132).l2_hit_bytes < gemm_work(alone, shape, 132).l2_hit_bytes


def test_a_cluster_makes_no_kernel_slower() -> None:
    gpu = replace(h100(), l2=replace(h100().l2, bytes_per_s=10**12))
    clustered = replace(gpu, gemm=replace(gpu.gemm, cluster=2))
    shape = GemmShape(4096, 4096, 512, DType.BF16)

    assert gemm_work(clustered, shape, 132).alone_ticks < gemm_work(gpu, shape, 132).alone_ticks


def test_no_unit_ends_before_its_operands_are_here() -> None:
    gpu = replace(h100(), gemm=replace(h100().gemm, tile_ticks=0, k_step_ticks=1))
    work = gemm_work(gpu, GemmShape(64, 64, 64, DType.BF16), 132)

    assert work.waves == 1
    assert 0 <= work.unit_ticks - (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) <= 10_000


def test_one_sm_alone_computes_no_pair_tile() -> None:
    shape = GemmShape(512, 512, 512, DType.BF16)

    assert "pair" not in gemm_work(PAIRED, shape, 1).label
    assert gemm_work(PAIRED, shape, 1) == gemm_work(h100(), shape, 1)


def test_a_gpu_without_a_tile_for_its_sms_is_refused() -> None:
    with pytest.raises(ValueError, match="no tile"):
        gemm_work(only_pairs((256, 256)), GemmShape(8, 8, 8, DType.BF16), 1)


def test_accumulating_reads_the_output_too() -> None:
    shape = GemmShape(256, 512, 128, DType.BF16)

    assert hbm_bytes(shape, True)[0] - hbm_bytes(shape, False)[0] == 256 * 512 * 2


def test_a_reduction_reads_every_part_and_writes_once() -> None:
    gpu = GPUS[0]
    work = reduce_work(gpu, 1 << 20, 8, gpu.sms)

    assert (work.hbm_read_bytes, work.hbm_write_bytes) == (8 << 20, 1 << 20)
    assert work.body_ticks == ticks_for(9 << 20, gpu.hbm.achieved_bytes_per_s)


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, -1, 1)])
def test_sizes_that_are_not_positive_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        gemm_work(GPUS[0], GemmShape(*shape, DType.BF16), 8)


def test_a_type_without_a_peak_is_refused() -> None:
    with pytest.raises(ValueError, match="no peak"):
        gemm_work(GPUS[0], GemmShape(8, 8, 8, DType.FP32), 8)


def on_another_l2(size_bytes: int, instances: int = 1, mall: Cache | None = None) -> Gpu:
    """An H100 whose L2 is not the one that its GEMM form was fitted with."""
    gpu = h100()
    l2 = replace(gpu.l2, size_bytes=size_bytes, instances=instances)
    return replace(gpu, l2=l2, gemm=replace(gpu.gemm, fitted_l2=(50 * MIB, 1)), mall=mall)


WIDE = GemmShape(16384, 8192, 1024, DType.BF16)


def test_with_another_l2_a_gemm_reads_what_that_misses_more() -> None:
    fitted = gemm_work(h100(), WIDE, 132)
    rows, cols = map(int, fitted.label.split("x"))
    small = gemm_work(on_another_l2(4 * MIB), WIDE, 132)
    more = extra_hbm_bytes(WIDE, (rows, cols), 132, 4 * MIB, 1) - extra_hbm_bytes(WIDE, (rows, cols), 132, 50 * MIB, 1)

    assert more > fitted.hbm_read_bytes
    assert small.hbm_read_bytes - fitted.hbm_read_bytes == fitted.l2_hit_bytes - small.l2_hit_bytes == more
    assert (small.missed_bytes, small.mall_read_bytes) == (more, 0)
    assert (small.alone_ticks, small.num_units, small.label) == (fitted.alone_ticks, fitted.num_units, fitted.label)


@pytest.mark.parametrize("size_bytes", [50 * MIB, 256 * MIB])
def test_a_larger_l2_leaves_what_every_gemm_has_to_read(size_bytes: int) -> None:
    assert gemm_work(on_another_l2(size_bytes), WIDE, 132) == gemm_work(h100(), WIDE, 132)


def test_a_cache_in_front_of_memory_has_what_the_smaller_l2_misses() -> None:
    fitted, small = gemm_work(h100(), WIDE, 132), gemm_work(on_another_l2(4 * MIB), WIDE, 132)
    backed = gemm_work(on_another_l2(4 * MIB, mall=Cache(256 * MIB, 1, 6 * 10**12, 0)), WIDE, 132)

    assert backed.hbm_read_bytes == fitted.hbm_read_bytes
    assert backed.mall_read_bytes == backed.missed_bytes == small.missed_bytes
    assert backed.l2_hit_bytes == small.l2_hit_bytes


@pytest.mark.parametrize("sms", [1, 2, 7, 132])
@pytest.mark.parametrize("shape", [(16, 3584, 8192), (8192, 8192, 8192), (300, 700, 20000)])
def test_no_gemm_misses_more_than_it_hits(shape: tuple[int, int, int], sms: int) -> None:
    gpu = replace(on_another_l2(MIB, instances=4), gemm=replace(PAIRED.gemm, fitted_l2=(50 * MIB, 1)))
    work, fitted = (gemm_work(each, GemmShape(*shape, DType.BF16), sms) for each in (gpu, PAIRED))

    assert 0 <= work.missed_bytes <= fitted.l2_hit_bytes
    assert work.l2_hit_bytes + work.hbm_read_bytes == fitted.l2_hit_bytes + fitted.hbm_read_bytes


@pytest.mark.parametrize("shape", [(1024, 6656, 4096), (2048, 3584, 8192), (4096, 12288, 6144)])
def test_in_a_static_order_the_last_wave_is_a_whole_one(shape: tuple[int, int, int]) -> None:
    """Whole waves of equal tiles and no split: never faster than what a library balances."""
    gpu, gemm = h100(), GemmShape(*shape, DType.BF16)
    free, static = gemm_work(gpu, gemm, gpu.sms), gemm_work(gpu, gemm, gpu.sms, static_order=True)

    assert static.body_ticks >= free.body_ticks
    assert "split" not in static.label


@pytest.mark.parametrize("gpu", GPUS)
def test_a_kernel_that_is_told_its_tile_has_it(gpu: Gpu) -> None:
    """It takes as long as where the profile has no other, and no less than with the one that is fastest alone."""
    gemm, tiles = GemmShape(1024, 6656, 4096, DType.BF16), dict.fromkeys(block for block, _ in gpu.tiles_of(DType.BF16))
    fastest = gemm_work(gpu, gemm, gpu.sms, static_order=True)
    works = {tile: gemm_work(gpu, gemm, gpu.sms, static_order=True, tile=tile) for tile in tiles}

    for tile, work in works.items():
        kinds = gpu.gemm.tiles, gpu.gemm.pair_tiles
        single, pairs = (tuple(each for each in kind if each == tile) for kind in kinds)
        model = replace(gpu.gemm, tiles=single, pair_tiles=pairs)
        assert work == gemm_work(replace(gpu, gemm=model), gemm, gpu.sms, static_order=True)
        assert (work.block_rows, work.block_cols) == tile
    assert min(work.body_ticks for work in works.values()) == fastest.body_ticks
    assert len({work.body_ticks for work in works.values()}) > len(works) // 2


@pytest.mark.parametrize("gpu", GPUS)
def test_few_tiles_in_parts_along_k_take_as_long_as_those_of_a_library(gpu: Gpu) -> None:
    """40 tiles of 64 x 256 leave SMs without one: as many parts and their sum, as the form has it, take less."""
    gemm, model = GemmShape(512, 1280, 8192, DType.BF16), replace(gpu.gemm, tiles=((64, 256),), pair_tiles=())
    one = replace(gpu, gemm=replace(model, quantisation=Fraction(1)))  # its library balances no last wave either
    works = {split: gemm_work(one, gemm, gpu.sms, static_order=True, split=split) for split in SPLITS}

    best = min(works.values(), key=lambda work: work.body_ticks)
    assert works[1].num_units == 40 and works[2].num_units == 80 and "split 2" in works[2].label
    assert best.body_ticks < 0.8 * works[1].body_ticks and works[32].body_ticks > best.body_ticks
    assert best == gemm_work(one, gemm, gpu.sms)
    with pytest.raises(ValueError, match="no tile"):
        gemm_work(one, replace(gemm, k=128), gpu.sms, static_order=True, split=2)


def test_one_tile_more_than_a_wave_is_another_wave_in_a_static_order() -> None:
    gpu = replace(h100(), gemm=replace(h100().gemm, tiles=((128, 256),)))
    one, more = (GemmShape(128 * 12, 256 * columns, 4096, DType.BF16) for columns in (11, 12))  # 132 and 144 tiles
    ratio = [
        gemm_work(gpu, more, 132, static_order=order).body_ticks
        / gemm_work(gpu, one, 132, static_order=order).body_ticks
        for order in (True, False)
    ]

    assert ratio[0] == pytest.approx(2, rel=0.02)
    assert ratio[1] < 1.2


HELD = Sustained(10**11, Fraction(4, 5))  # 1 ms at the peak, then 80 % of the clock


def sustained(gpu: Gpu) -> Gpu:
    return replace(gpu, sustained=HELD)


def test_a_long_gemm_runs_at_a_lower_clock() -> None:
    gpu, shape = h100(), GemmShape(32768, 8192, 8192, DType.BF16)
    fast, slow = (gemm_work(each, shape, gpu.sms) for each in (gpu, sustained(gpu)))
    at_peak_s = shape.flops / gpu.peak(DType.BF16)

    assert slow.body_ticks / fast.body_ticks == pytest.approx(1 + (1 - 1e-3 / at_peak_s) / 4, rel=1e-4)
    assert (slow.start_ticks, slow.num_units, slow.label) == (fast.start_ticks, fast.num_units, fast.label)
    assert slow.noc_ticks == fast.noc_ticks


def test_a_short_gemm_keeps_its_clock() -> None:
    gpu, shape = h100(), GemmShape(4096, 8192, 8192, DType.BF16)
    assert gemm_work(sustained(gpu), shape, gpu.sms) == gemm_work(gpu, shape, gpu.sms)


def test_a_type_that_takes_more_power_has_a_clock_of_its_own() -> None:
    gpu, flops = sustained(h100()), 10**13
    own = replace(gpu.gemm, fp8_block=replace(gpu.gemm, sustained=replace(HELD, clock=HELD.clock / 2)))
    lower = replace(gpu, gemm=own)

    assert slowdown(lower, DType.BF16, flops) == slowdown(gpu, DType.BF16, flops) > 1
    assert slowdown(lower, DType.FP8_BLOCK, flops) > slowdown(gpu, DType.FP8_BLOCK, flops) > 1
    higher = replace(gpu, gemm=replace(own, fp8_block=replace(gpu.gemm, sustained=replace(HELD, clock=Fraction(1)))))
    assert slowdown(higher, DType.FP8_BLOCK, flops) == slowdown(gpu, DType.FP8_BLOCK, flops)


def test_a_part_runs_at_the_clock_of_the_whole() -> None:
    scenario = ag_gemm(32768, 8192, 8192, ranks=4, gpu=sustained(h100()))
    gemm, plan = scenario.shape.gemm, OpChoice("uniform_fused_1d", 16, default_engine(scenario.system))
    assert gemm is not None
    groups = [step for step in build_op_plan(scenario, plan).steps if isinstance(step, TileGroup)]
    shapes = [group_shape(scenario, group) for group in groups]

    assert len(groups) > 1 and sum(shape.flops for shape in shapes) == gemm.flops
    assert {shape.whole_flops for shape in shapes} == {gemm.flops}
    quick = replace(scenario, system=replace(scenario.system, gpu=h100()))
    longer = slowdown(scenario.gpu, gemm.dtype, gemm.flops)
    works = [[compute_work(each, group, h100().sms) for group in groups] for each in (scenario, quick)]
    for slow, fast in zip(*works, strict=True):
        assert slow.unit_ticks / fast.unit_ticks == pytest.approx(longer, rel=1e-2)
    assert least_sm_ticks(scenario) == pytest.approx(longer * least_sm_ticks(quick))
    assert least_sm_ticks(scenario) <= sum(work.num_units * work.unit_ticks for work in works[0])


@given(st.integers(1, 10**17), st.integers(1, 10**17), st.integers(10**12, 10**16))
def test_more_work_is_never_shorter_and_a_higher_peak_never_longer(one: int, other: int, peak: int) -> None:
    gpu = replace(sustained(h100()), peak_flops=((DType.BF16, peak),))
    faster = replace(gpu, peak_flops=((DType.BF16, 2 * peak),))
    less, more = sorted((one, other))

    assert 1 <= slowdown(gpu, DType.BF16, less) <= slowdown(gpu, DType.BF16, more) < 1.25 + 1e-9
    assert slowdown(faster, DType.BF16, more) <= slowdown(gpu, DType.BF16, more)


@given(sizes, sizes, sizes, st.sampled_from(GPUS), st.integers(min_value=8, max_value=132))
def test_the_units_of_a_kernel_that_shares_the_sms_are_its_tiles(m, n, k, gpu, sms) -> None:  # type: ignore[no-untyped-def]
    shape = GemmShape(m, n, k, DType.BF16)
    work = gemm_work(gpu, shape, sms, shared=True)
    pair, block = "pair" in work.label, (work.block_rows, work.block_cols)
    split = int(work.label.partition(" split ")[2] or 1)

    blocks = math.ceil(m / work.block_rows) * math.ceil(n / work.block_cols) * split
    assert work.num_units == blocks * (1 + pair)
    tile_us = TileForm.of(gpu, shape.dtype).us((block, 1 + pair), split_k(k, split))
    assert work.unit_ticks >= tile_us * TICKS_PER_US * (1 - 1e-9)
    assert work.waves == math.ceil(work.num_units / sms)
